"""Where a coordinator writes down what it decides, before it answers: a compacted internal topic.

The broker implements it over its own logs. `MemoryJournal` is for tests: it keeps what was appended, can hold back or
fail what it is given, and can be read again as after a restart.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from headrace.core.errors import StorageError

Pair = tuple[bytes, bytes | None]  # a key and its value; None is a tombstone
Done = Callable[[Exception | None], None]

ABORT, COMMIT = 0, 1
SLICE_RECORDS: Final = 100  # of a journal in memory, that are read at once


class JournalRecord(NamedTuple):
    key: bytes
    value: bytes | None
    offset: int
    timestamp_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    is_control: bool = False
    control_type: int = -1


class JournalReader(Protocol):
    """One partition from its start on, in slices. It finds its place again if the log was compacted in between."""

    def take(self) -> Sequence[JournalRecord] | None:
        """The next few, oldest first; None at the end of what is written. StorageError where it cannot be read."""


class Journal(Protocol):
    @property
    def partition_count(self) -> int: ...

    def make(self) -> None:
        """The topic, if it is not there yet. StorageError if it cannot be made, or is not made yet."""

    def append(
        self, partition: int, records: Sequence[Pair], done: Done, *, producer: tuple[int, int] | None = None
    ) -> None:
        """One atomic batch. `done(None)` when it is as safe as acks=all makes it; `done(error)` if it is not written.

        `producer` (id, epoch) makes it a part of that producer's transaction.
        """

    def reader(self, partition: int) -> JournalReader: ...

    def is_ready(self, partition: int) -> bool:
        """Whether nothing is on its way to the log any more, and what earlier leaders wrote to it is committed: only
        then is the end of what can be read the end of what was decided."""

    def let_go(self, partition: int) -> None:
        """This broker does not lead it any more: what was appended and has not reached the log stays out of it."""

    def skipped(self, partition: int, offset: int, error: Exception) -> None:
        """A record that was read makes no sense, and was passed over."""

    def lost(self, partition: int, error: Exception) -> None:
        """The partition could not be read: until it is led again nobody asks for what is in it."""


class AllOf:
    """Calls back once, when all that was expected has been told; with the first error, if there was one."""

    __slots__ = ("_done", "_error", "_left")

    def __init__(self, done: Done) -> None:
        self._done = done
        self._left = 1
        self._error: Exception | None = None

    def expect(self) -> None:
        self._left += 1

    def told(self, error: Exception | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self._done(self._error)


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
        self.unready: set[int] = set()  # partitions whose end is not certain yet
        self.slice_records = SLICE_RECORDS

    @property
    def partition_count(self) -> int:
        return self._partition_count

    def make(self) -> None:
        """It is always there."""

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

    def crash(self) -> None:
        """What was on its way is not written, and nobody is told."""
        self._held.clear()

    def mark(self, partition: int, producer_id: int, epoch: int, control_type: int) -> None:
        """The end of a transaction, as a control record."""
        log = self._records[partition]
        log.append(JournalRecord(b"", None, len(log), 0, producer_id, epoch, True, control_type))

    def read_all(self, partition: int) -> Iterator[JournalRecord]:
        yield from list(self._records[partition])
        if partition in self.unreadable:
            raise StorageError(f"partition {partition} was told to be unreadable")

    def reader(self, partition: int) -> "MemoryReader":
        return MemoryReader(self, partition)

    def is_ready(self, partition: int) -> bool:
        return partition not in self.unready and all(entry[0] != partition for entry in self._held)

    def let_go(self, partition: int) -> None:
        gone = [entry for entry in self._held if entry[0] == partition]
        self._held = [entry for entry in self._held if entry[0] != partition]
        for entry in gone:
            entry[2](StorageError(f"partition {partition} was let go"))

    def skipped(self, partition: int, offset: int, error: Exception) -> None:
        self.skips.append((partition, offset))

    def lost(self, partition: int, error: Exception) -> None:
        self.losses.append(partition)


class MemoryReader:
    def __init__(self, journal: MemoryJournal, partition: int) -> None:
        self._journal = journal
        self._partition = partition
        self._at = 0

    def take(self) -> Sequence[JournalRecord] | None:
        found: list[JournalRecord] = []
        for record in itertools.islice(self._journal.read_all(self._partition), self._at, None):
            found.append(record)
            if len(found) == self._journal.slice_records:
                break
        self._at += len(found)
        return found or None
