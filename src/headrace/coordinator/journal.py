"""Where a coordinator writes down what it decides, before it answers: a compacted internal topic.

The broker implements it over its own logs. `MemoryJournal` is for tests: it keeps what was appended, can hold back or
fail what it is given, and can be read again as after a restart.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from headrace.core.errors import StorageError

Pair = tuple[bytes, bytes | None]  # a key and its value; None is a tombstone
Done = Callable[[Exception | None], None]

ABORT, COMMIT = 0, 1


class JournalRecord(NamedTuple):
    key: bytes
    value: bytes | None
    offset: int
    timestamp_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    is_control: bool = False
    control_type: int = -1


class Journal(Protocol):
    @property
    def partition_count(self) -> int: ...

    def append(
        self, partition: int, records: Sequence[Pair], done: Done, *, producer: tuple[int, int] | None = None
    ) -> None:
        """One atomic batch. `done(None)` when it is as safe as acks=all makes it; `done(error)` if it is not written.

        `producer` (id, epoch) makes it a part of that producer's transaction.
        """

    def read_all(self, partition: int) -> Iterator[JournalRecord]:
        """Everything in the partition, oldest first. StorageError where it cannot be read. Used once, at start."""

    def skipped(self, partition: int, offset: int, error: Exception) -> None:
        """A record that was read makes no sense, and was passed over."""

    def lost(self, partition: int, error: Exception) -> None:
        """The partition could not be read: until the next start nobody asks for what is in it."""


class MemoryJournal:
    def __init__(self, partition_count: int = 4) -> None:
        self._partition_count = partition_count
        self._records: list[list[JournalRecord]] = [[] for _ in range(partition_count)]
        self._held: list[tuple[int, Sequence[Pair], Done, tuple[int, int] | None]] = []
        self.holds = False  # appends wait for `release`
        self.fails = False  # appends are refused
        self.unreadable: set[int] = set()  # partitions that cannot be read to their end
        self.skips: list[tuple[int, int]] = []  # partition, offset
        self.losses: list[int] = []

    @property
    def partition_count(self) -> int:
        return self._partition_count

    def append(
        self, partition: int, records: Sequence[Pair], done: Done, *, producer: tuple[int, int] | None = None
    ) -> None:
        if self.holds:
            self._held.append((partition, records, done, producer))
        else:
            self._write(partition, records, done, producer)

    def release(self) -> None:
        held, self._held = self._held, []
        for entry in held:
            self._write(*entry)

    def _write(self, partition: int, records: Sequence[Pair], done: Done, producer: tuple[int, int] | None) -> None:
        if self.fails:
            done(StorageError("the journal was told to fail"))
            return
        log = self._records[partition]
        for key, value in records:
            log.append(JournalRecord(key, value, len(log), 0, *(producer or (-1, -1))))
        done(None)

    def mark(self, partition: int, producer_id: int, epoch: int, control_type: int) -> None:
        """The end of a transaction, as a control record."""
        log = self._records[partition]
        log.append(JournalRecord(b"", None, len(log), 0, producer_id, epoch, True, control_type))

    def read_all(self, partition: int) -> Iterator[JournalRecord]:
        yield from list(self._records[partition])
        if partition in self.unreadable:
            raise StorageError(f"partition {partition} was told to be unreadable")

    def skipped(self, partition: int, offset: int, error: Exception) -> None:
        self.skips.append((partition, offset))

    def lost(self, partition: int, error: Exception) -> None:
        self.losses.append(partition)
