"""A client that sends frames as they are: what any ZooKeeper client may send, and all that came back, in its order."""

import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from waits import WAIT_S_MAX

from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.jute import (
    Reader,
    boolean_bytes,
    buffer_bytes,
    int_bytes,
    long_bytes,
    string_bytes,
    vector_bytes,
)

OPEN = ((31, "world", "anyone"),)
STAT_BYTES = 68


class Reply(NamedTuple):
    xid: int
    zxid: int
    error: int
    body: bytes


class ClosedError(Exception):
    """The server has closed the connection."""


def acl_bytes(acl: Iterable[tuple[int, str, str]] = OPEN) -> bytes:
    return vector_bytes([int_bytes(perms) + string_bytes(scheme) + string_bytes(id) for perms, scheme, id in acl])


def create_body(path: str, data: bytes | None, flags: int = 0, acl: Iterable[tuple[int, str, str]] = OPEN) -> bytes:
    return string_bytes(path) + buffer_bytes(data) + acl_bytes(acl) + int_bytes(flags)


class RawClient:
    def __init__(
        self, port: int, *, timeout_ms: int = 30_000, session: int = 0, password: bytes = bytes(16), last_zxid: int = 0
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S_MAX)
        self._xid = 0
        self.events: list[Reply] = []  # not taken yet
        body = int_bytes(0) + long_bytes(last_zxid) + int_bytes(timeout_ms) + long_bytes(session)
        self.send_frame(body + buffer_bytes(password) + boolean_bytes(False))
        reader = Reader(self.read_frame())
        reader.int32()
        self.timeout_ms, self.session = reader.int32(), reader.int64()
        self.password = reader.buffer() or b""

    def send_raw(self, data: bytes) -> None:
        """Bytes as they are: no frame."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise ClosedError from None

    def send_frame(self, frame: bytes) -> None:
        self.send_raw(struct.pack(">i", len(frame)) + frame)

    def read_frame(self) -> bytes:
        return self._read(struct.unpack(">i", self._read(4))[0])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self._socket.recv(size - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                raise ClosedError
            data += more
        return data

    def send(self, kind: int, body: bytes = b"", xid: int | None = None) -> int:
        if xid is None:
            self._xid += 1
            xid = self._xid
        self.send_frame(int_bytes(xid) + int_bytes(kind) + body)
        return xid

    def receive(self) -> Reply:
        """The next answer or event."""
        frame = self.read_frame()
        reader = Reader(frame)
        return Reply(reader.int32(), reader.int64(), reader.int32(), frame[16:])

    def ask(self, kind: int, body: bytes = b"", xid: int | None = None) -> Reply:
        """The answer; events that come before it are kept."""
        sent = self.send(kind, body, xid)
        while True:
            reply = self.receive()
            if reply.xid != codes.NOTIFICATION_XID:
                assert reply.xid == sent
                return reply
            self.events.append(reply)

    def take_events(self) -> list[Reply]:
        """All that were sent up to now: a ping is answered behind them."""
        self.ask(codes.PING, xid=codes.PING_XID)
        events, self.events = self.events, []
        return events

    def close(self) -> None:
        self._socket.close()
