"""What one connection has still to send: small byte strings, and slices of files in between.

Byte strings go out together in one call, file slices by sendfile. A socket that takes no more stalls the outbox until
it is writable again; `bytes_held` is what waits in memory (slices do not count: they wait on the disk).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import Final

from headrace.core.file_slice import COPIED_BYTES_MAX, Slice
from headrace.net.traffic import Traffic
from headrace.net.transport import Transport

GATHERED_BYTES_MAX: Final = 512 << 10
PIECES_MAX: Final = 512
SENDFILE_BYTES_MAX: Final = 8 << 20  # in one call, so that one reader cannot hold up the loop for long

Part = bytes | memoryview | Slice


class Outbox:
    __slots__ = ("_parts", "_send", "_traffic", "_transport", "bytes_held", "stalled")

    def __init__(self, transport: Transport, traffic: Traffic) -> None:
        self._transport = transport
        self._send = transport.send  # once, since it is called with nearly every answer
        self._traffic = traffic
        self._parts: deque[Part] = deque()
        self.bytes_held = 0
        self.stalled = False

    def __len__(self) -> int:
        return len(self._parts)

    def put(self, part: Part) -> None:
        self._parts.append(part)
        if type(part) is not Slice:
            self.bytes_held += len(part)

    def send(self) -> None:
        """As much as the socket takes. OSError: the client is gone."""
        parts = self._parts
        if len(parts) == 1 and type(parts[0]) is bytes:
            # The usual case: one small answer, and a socket that takes it.
            part = parts[0]
            try:
                sent = self._send(part)
            except BlockingIOError:
                self.stalled = True
                return
            self._traffic.bytes_out += sent
            self.bytes_held -= sent
            if sent == len(part):
                parts.clear()
            else:
                parts[0] = memoryview(part)[sent:]
        else:
            while parts:
                first = parts[0]
                if type(first) is Slice and first.size > COPIED_BYTES_MAX:
                    all_sent = self._send_file(first)
                else:
                    all_sent = self._send_gathered()
                if not all_sent:
                    break
        self.stalled = bool(parts)

    def _send_gathered(self) -> bool:
        """One call for all that lies before the next large slice. False when the socket takes no more."""
        pieces: list[bytes | memoryview] = []
        size = 0
        large_follows = False
        for part in self._parts:
            if type(part) is Slice:
                if part.size > COPIED_BYTES_MAX:
                    large_follows = True
                    break
                pieces.append(os.pread(part.file.fd, part.size, part.position))
                if len(pieces[-1]) != part.size:
                    raise OSError("a file is shorter than it was")
            else:
                pieces.append(part)  # type: ignore[arg-type]
            size += len(pieces[-1])
            if size >= GATHERED_BYTES_MAX or len(pieces) >= PIECES_MAX:
                break
        try:
            sent = self._transport.send_pieces(pieces, large_follows)
        except BlockingIOError:
            return False
        self._traffic.bytes_out += sent
        self._forget(pieces, sent)
        return sent == size

    def _forget(self, pieces: list[bytes | memoryview], sent: int) -> None:
        """Drops what was sent, and keeps the rest of the piece that was sent in part."""
        parts = self._parts
        for piece in pieces:
            part = parts[0]
            if sent < len(piece):
                if type(part) is Slice:
                    part.position += sent
                    part.size -= sent
                else:
                    self.bytes_held -= sent
                    parts[0] = memoryview(part)[sent:]  # type: ignore[arg-type]
                return
            sent -= len(piece)
            parts.popleft()
            if type(part) is Slice:
                part.close()
            else:
                self.bytes_held -= len(piece)

    def _send_file(self, part: Slice) -> bool:
        count = min(part.size, SENDFILE_BYTES_MAX)
        try:
            sent = self._transport.send_file(part.file.fd, part.position, count)
        except BlockingIOError:
            return False
        if sent == 0:
            raise OSError("a file is shorter than it was")
        self._traffic.bytes_out += sent
        part.position += sent
        part.size -= sent
        if part.size == 0:
            self._parts.popleft()
            part.close()
        return sent == count

    def drop(self) -> None:
        drop(self._parts)
        self._parts.clear()
        self.bytes_held = 0


def drop(parts: Iterable[Part]) -> None:
    """Lets go of the files of parts that will not be sent."""
    for part in parts:
        if type(part) is Slice:
            part.close()
