"""The shards of one coordinator: for each partition of its internal topic that this broker leads, what is in it.

It loads a shard and lets it go, both in steps: whoever calls `load` and `unload` works them off. A shard that is given
up is out of reach at once, and goes out of memory a part at a time. One that comes back is a new one, so nothing that
was under way for the former one, be it a write, a timer or an answer, can touch it.
"""

import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from headrace.coordinator.journal import Journal, JournalRecord
from headrace.coordinator.journal_loading import Steps, replay_to_end
from headrace.coordinator.placing import partition_for
from headrace.coordinator.shard_journal import ShardJournal
from headrace.coordinator.shard_states import ShardState, ShardStates
from headrace.core.errors import InvariantError, StorageError
from headrace.core.telemetry import failure
from headrace.protocol.error_codes import COORDINATOR_NOT_AVAILABLE

logger = logging.getLogger(__name__)


class Shard(Protocol):
    epoch: int  # of the leader: this broker

    @property
    def journal(self) -> ShardJournal: ...

    def replay(self, record: JournalRecord) -> None: ...

    def prepared(self) -> Steps:
        """After the last record, and before anyone is served: deadlines begin."""

    def begun(self) -> Steps:
        """From its first step on requests are served: what was left to be done is done."""

    def emptied(self) -> Steps:
        """It was given up, and its journal is closed. Those who wait are told, and its memory is given back."""


S = TypeVar("S", bound=Shard)


class Shards(Generic[S]):
    def __init__(self, journal: Journal, make: Callable[[ShardJournal, int], S]) -> None:
        """`make` a shard, for its journal and its leader epoch."""
        self._journal = journal
        self._make = make
        self.states = ShardStates()
        self.active: dict[int, S] = {}
        self.lost: dict[int, str] = {}  # those that cannot be read, and why
        self.on_change: Callable[[], None] = lambda: None  # one has come or gone
        self._loading: dict[int, S] = {}
        self._awaited: dict[int, list[Callable[[S | None], None]]] = {}

    # ── looking up ───────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, key: str) -> S | int:
        """The shard of a group or a transactional id, or the error code that says why there is none now."""
        journal = self._journal
        shard = self.active.get(partition_for(key, journal.partition_count))
        if shard is not None:
            return shard
        try:
            journal.make()
        except StorageError:
            return COORDINATOR_NOT_AVAILABLE
        partition = partition_for(key, journal.partition_count)  # perhaps of a topic that was made just now
        shard = self.active.get(partition)
        return shard if shard is not None else self.states.answer(partition)

    @property
    def is_loaded(self) -> bool:
        """Whether all that is led here can be told of."""
        return not self._loading

    def all(self) -> list[S]:
        return list(self.active.values())

    def loading(self) -> list[int]:
        return self.states.all_in(ShardState.LOADING)

    def when_loaded(self, partition: int, told: Callable[[S | None], None]) -> None:
        """Once, with the shard that is loading now; with None if nothing comes of it."""
        self._awaited.setdefault(partition, []).append(told)

    # ── coming and going ─────────────────────────────────────────────────────────────────────────────────────────

    def load(self, partition: int, epoch: int) -> Steps | None:
        """This broker leads the partition. None: there is nothing to do for that."""
        if not self.states.lead(partition, epoch):
            active = self.active.get(partition)
            if active is not None:
                active.epoch = self.states.epoch(partition)
            return None
        self.lost.pop(partition, None)
        overtaken = self._loading.get(partition)
        if overtaken is not None:
            overtaken.journal.close()
        shard = self._loading[partition] = self._make(ShardJournal(self._journal, partition), epoch)
        return self._load(partition, shard)

    def unload(self, partition: int, epoch: int | None) -> Steps | None:
        """It does not lead it any more; None: the topic is deleted."""
        if not self.states.resign(partition, epoch):
            return None
        self.lost.pop(partition, None)
        active, loading = self.active.pop(partition, None), self._loading.pop(partition, None)
        for shard in (active, loading):
            if shard is not None:
                shard.journal.close()
        self._journal.let_go(partition)
        self._tell_awaiting(partition, None)
        self.on_change()
        return active.emptied() if active is not None else None  # a load that is overtaken empties what it has made

    def _load(self, partition: int, shard: S) -> Steps:
        try:
            yield from self._while_wanted(partition, shard, self._replayed(partition, shard))
        except (StorageError, OSError) as error:
            self._lose(partition, shard, error)
        except InvariantError:
            raise
        except Exception as error:
            failure(logger, "shard of a coordinator failed while it was loaded", error, partition=partition)
            self._lose(partition, shard, error)
        if shard.journal.is_closed:
            yield from shard.emptied()
            return
        del self._loading[partition]
        self.active[partition] = shard
        self.states.loaded(partition)
        self.on_change()
        self._tell_awaiting(partition, shard)
        yield from shard.begun()

    def _replayed(self, partition: int, shard: S) -> Steps:
        reader = self._journal.reader(partition)
        yield from replay_to_end(self._journal, reader, partition, shard.replay)
        yield from shard.prepared()
        # Markers of transactions have come meanwhile: they are written past the shard.
        yield from replay_to_end(self._journal, reader, partition, shard.replay)

    def _while_wanted(self, partition: int, shard: S, steps: Steps) -> Steps:
        """Ends early if another epoch, or another broker, has taken over between two steps."""
        for count in steps:
            yield count
            if shard.journal.is_closed:
                steps.close()
                return

    def _lose(self, partition: int, shard: S, error: Exception) -> None:
        if shard.journal.is_closed:
            return  # it was given up anyway
        shard.journal.close()
        del self._loading[partition]
        self.states.lost(partition)
        self.lost[partition] = str(error)
        self._journal.lost(partition, error)
        self._tell_awaiting(partition, None)

    def _tell_awaiting(self, partition: int, shard: S | None) -> None:
        for told in self._awaited.pop(partition, ()):
            told(shard)
