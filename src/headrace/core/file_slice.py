"""A run of bytes in an open file: what a log reads and a connection sends, without a copy in between."""

from __future__ import annotations

from typing import Final

from headrace.core.files import OpenFile

COPIED_BYTES_MAX: Final = (
    96 << 10
)  # up to this size a copy is cheaper than sendfile (measured: they meet at 64 to 128 KB)


class Slice:
    """The file stays open until `close`."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        file.pins += 1
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def close(self) -> None:
        self.file.unpin()
