"""One connection that sends the same requests as fast as they are taken, and reads whatever is answered.

A process of its own, so that it takes no time from the one who measures: flooding.py PORT FRAMES_FILE COUNT. It sends
the frames once and awaits COUNT answers, or, with 0, sends them again and again; it stays until its standard input
ends. It prints how many bytes were answered, and the seconds from the first request to the last answer.
"""

import selectors
import socket
import sys
import time
from pathlib import Path

PIECE_BYTES = 256 << 10
QUIET_S_MAX = 120.0


def main() -> None:
    port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    frames = Path(path).read_bytes()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setblocking(False)
        print("ready", flush=True)
        took_s, received = _answered(connection, frames, count) if count else _until_told(connection, frames)
    print(f"{received} {took_s}", flush=True)


def _until_told(connection: socket.socket, frames: bytes) -> tuple[float, int]:
    began, received, at = time.monotonic(), 0, 0
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, mask in selector.select():
                if key.fileobj is sys.stdin:
                    return time.monotonic() - began, received
                if mask & selectors.EVENT_READ:
                    received += len(connection.recv(PIECE_BYTES))
                if mask & selectors.EVENT_WRITE:
                    at = (at + _send(connection, frames[at : at + PIECE_BYTES])) % len(frames)


def _answered(connection: socket.socket, frames: bytes, count: int) -> tuple[float, int]:
    """All the frames once, until so many answers have come; then the connection stays silent and open until told."""
    began, received, at, answers, pending = time.monotonic(), 0, 0, 0, bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while answers < count:
            events = selector.select(QUIET_S_MAX)
            if not events:
                raise SystemExit(f"flooding: {answers} of {count} answers, then none for {QUIET_S_MAX:g} s")
            for _, mask in events:
                if mask & selectors.EVENT_READ:
                    piece = connection.recv(PIECE_BYTES)
                    if not piece:
                        raise SystemExit(f"flooding: the connection was closed after {answers} of {count} answers")
                    received += len(piece)
                    pending += piece
                    answers += _take(pending)
                if mask & selectors.EVENT_WRITE:
                    at += _send(connection, frames[at : at + PIECE_BYTES])
                    if at == len(frames):
                        selector.modify(connection, selectors.EVENT_READ)
    took_s = time.monotonic() - began
    print("answered", flush=True)
    sys.stdin.read()
    return took_s, received


def _take(pending: bytearray) -> int:
    """How many whole answers there are; they are taken away."""
    count = at = 0
    while len(pending) - at >= 4:
        size = int.from_bytes(pending[at : at + 4], "big")
        if len(pending) - at < 4 + size:
            break
        at += 4 + size
        count += 1
    del pending[:at]
    return count


def _send(connection: socket.socket, piece: bytes) -> int:
    try:
        return connection.send(piece)
    except BlockingIOError:
        return 0


if __name__ == "__main__":
    main()
