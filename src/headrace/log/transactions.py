"""Transactions as one partition sees them: which are open, which were aborted.

A producer's first transactional batch opens one; a marker, written by the coordinator as a control batch, ends it. Up
to the first offset of the oldest open one the log is stable, and a `read_committed` reader sees no further. Aborted
ones are listed in the segment's `.txnindex`, in Kafka's format, and told to such readers, who skip their records.
"""

import os
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from headrace.core.files import OpenFiles
from headrace.protocol.records import Record, build_batch, iter_records

ABORT, COMMIT = 0, 1
SUFFIX = ".txnindex"

_ENTRY = Struct(">hqqqq")
_ENTRY_VERSION = 0
_MARKER_KEY = Struct(">hh")  # version, type
_MARKER_VALUE = Struct(">hi")  # version, coordinator epoch


class Marker(NamedTuple):
    """The end of a producer's transaction in this partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int  # the last stable offset when it was aborted


def build_marker(marker: Marker, now_ms: int) -> bytearray:
    """The control batch that says so."""
    key = _MARKER_KEY.pack(0, COMMIT if marker.commit else ABORT)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(0, now_ms, key, value, ())],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: bytes | memoryview, producer_id: int, producer_epoch: int) -> Marker | None:
    """What a control batch says; None if it is of a kind that ends no transaction."""
    for record in iter_records(batch):
        if record.key is not None and record.value is not None and len(record.key) >= _MARKER_KEY.size:
            kind = _MARKER_KEY.unpack_from(record.key)[1]
            if kind in (ABORT, COMMIT):
                coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)[1]
                return Marker(producer_id, producer_epoch, coordinator_epoch, kind == COMMIT)
    return None


def decode_aborted(data: bytes) -> list[Aborted]:
    """The whole entries of a `.txnindex`."""
    whole = data[: len(data) - len(data) % _ENTRY.size]
    return [Aborted(*fields[1:]) for fields in _ENTRY.iter_unpack(whole)]


def encode_aborted(entries: Iterable[Aborted]) -> bytes:
    return b"".join(_ENTRY.pack(_ENTRY_VERSION, *entry) for entry in entries)


class AbortedIndex:
    """The `.txnindex` of one segment. The file is made with the first entry; most segments have none.

    An entry counts from the moment it is in memory: a reader must never miss one because a disk was full.
    """

    __slots__ = ("_entries", "_files", "_written", "path")

    def __init__(self, segment_path: str, files: OpenFiles) -> None:
        self.path = segment_path + SUFFIX
        self._files = files
        self._entries: list[Aborted] | None = None
        self._written = 0

    def entries(self) -> list[Aborted]:
        if self._entries is None:
            data = self._files.disk.read_file(self.path) or b""
            self._entries = decode_aborted(data)
            self._written = len(self._entries)
        return self._entries

    def problem(self) -> str:
        """What is wrong with the file by itself; nothing if it is good or not there."""
        data = self._files.disk.read_file(self.path) if self.exists() else b""
        if not data:
            return ""
        if len(data) % _ENTRY.size:
            return f"{self.path} has {len(data)} bytes, which is no whole number of entries of {_ENTRY.size}"
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
            if version != _ENTRY_VERSION or producer_id < 0 or not 0 <= first <= last or stable < 0:
                return f"{self.path} has an entry that makes no sense"
        return ""

    def append(self, aborted: Aborted) -> None:
        self.entries().append(aborted)

    def spill(self) -> None:
        """Writes what is in memory only."""
        if self._entries is not None and self._written < len(self._entries):
            new = [_ENTRY.pack(_ENTRY_VERSION, *entry) for entry in self._entries[self._written :]]
            file = self._files.get(self.path)
            self._files.disk.write(file.fd, [b"".join(new)], self._written * _ENTRY.size)
            self._written = len(self._entries)

    def truncate(self, end_offset: int) -> None:
        """Forgets what was aborted at or above `end_offset`: it is found again when the log is read."""
        kept = [entry for entry in self.entries() if entry.last_offset < end_offset]
        if len(kept) < self._written:
            self._files.disk.truncate(self._files.get(self.path).fd, len(kept) * _ENTRY.size)
            self._written = len(kept)
        self._entries = kept

    @property
    def written(self) -> int:
        return self._written

    def exists(self) -> bool:
        return os.path.exists(self.path)


def aborted_between(indexes: Iterable[AbortedIndex], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """(producer id, first offset) of the aborted transactions that have records in [start, end)."""
    found = []
    for index in indexes:
        for entry in index.entries():
            if entry.last_offset >= start and entry.first_offset < end:
                found.append((entry.producer_id, entry.first_offset))
            if entry.stable_offset >= end:
                return tuple(found)
    return tuple(found)
