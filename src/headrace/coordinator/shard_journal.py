"""The journal as one shard may write to it: to its own partition, and as long as this broker is in charge of it.

Whoever waits for a write is told once. When the shard is given up all of them are told to look for the coordinator,
since nobody here will learn what became of their records; what the log says later goes to nobody.
"""

import itertools
import logging
from collections.abc import Sequence
from typing import Final

from headrace.coordinator.journal import Done, Journal, Pair
from headrace.core.errors import InvariantError, PeerError
from headrace.core.telemetry import failure
from headrace.protocol.error_codes import NOT_LEADER_OR_FOLLOWER

TOLD_PER_STEP: Final = 128

logger = logging.getLogger(__name__)


class _Append:
    """One who waits for a write. A class, as all that is made for each commit: see docs/internals/decisions.md."""

    __slots__ = ("_done", "_journal")

    def __init__(self, journal: "ShardJournal", done: Done) -> None:
        self._journal = journal
        self._done = done

    def __call__(self, error: Exception | None) -> None:
        waiting = self._journal.waiting
        if self in waiting:
            del waiting[self]
            self._done(error)


class ShardJournal:
    __slots__ = ("_journal", "is_closed", "partition", "waiting")

    def __init__(self, journal: Journal, partition: int) -> None:
        self._journal = journal
        self.partition = partition
        self.is_closed = False
        self.waiting: dict[_Append, None] = {}  # in the order in which they came

    def append(self, records: Sequence[Pair], done: Done, *, producer: tuple[int, int] | None = None) -> None:
        """One atomic batch. `done(None)` when it is as safe as acks=all makes it, `done(error)` if it will not be."""
        if self.is_closed:
            done(self._given_up())
            return
        append = _Append(self, done)
        self.waiting[append] = None
        self._journal.append(self.partition, records, append, producer=producer)

    def close(self) -> None:
        """Nothing more is written. Those who wait are told by `tell_some`, until nobody is left."""
        self.is_closed = True

    def tell_some(self) -> int:
        """To how many it was said that the shard is given up."""
        told = list(itertools.islice(self.waiting, TOLD_PER_STEP))
        for append in told:
            try:
                append(self._given_up())
            except InvariantError:
                raise
            except Exception as error:  # the others are told all the same
                failure(logger, "what follows the end of a shard failed", error, partition=self.partition)
        return len(told)

    def _given_up(self) -> PeerError:
        why = f"partition {self.partition} of the coordinator's topic is led by another broker; look for it again"
        return PeerError(NOT_LEADER_OR_FOLLOWER, why)
