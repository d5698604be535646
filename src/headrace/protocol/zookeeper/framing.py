"""Frames out of a stream of bytes, however it was split: a length of four bytes, then so many bytes."""

from collections.abc import Iterator

from headrace.protocol.zookeeper.jute import MalformedError


class Frames:
    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole now. Whoever stops in between gets the others with the next bytes."""
        self._data += data
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big", signed=True)
            if not 0 <= size <= self._frame_bytes_max:
                raise MalformedError(f"a frame of {size} bytes; the limit is {self._frame_bytes_max}")
            if len(self._data) < 4 + size:
                return
            frame = bytes(memoryview(self._data)[4 : 4 + size])
            del self._data[: 4 + size]
            yield frame

    def clear(self) -> None:
        self._data.clear()
