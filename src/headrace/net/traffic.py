"""The bytes that a server's connections have read and sent. They bump it in place; nobody else writes it."""

from __future__ import annotations


class Traffic:
    __slots__ = ("bytes_in", "bytes_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
