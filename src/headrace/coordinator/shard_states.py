"""Whether this broker is in charge of a partition of an internal topic, and in which leader epoch. No IO, no clock.

Groups and transactional ids are sharded by the partition of the internal topic in which their records are. Whoever
leads the partition is the coordinator of its shard, and nobody else is:

    absent ── led here ──► loading ── read to its end ──► active ── led elsewhere ──► absent
                            │ ▲  └─── cannot be read ───► lost ──── led elsewhere ──► absent
                            └─┘ led here in a newer epoch (from lost, too): read again from its start

- **Absent**: led elsewhere, or not at all: clients are told to look for the coordinator.
- **Loading**: its records are being read. Clients are told to try again; nothing is decided yet.
- **Active**: requests are served. A newer epoch of this broker's own changes nothing but the epoch: nobody else has
  written meanwhile, so memory and log still agree.
- **Lost**: the log is damaged. Half of its state would be worse than none, so there is no coordinator.

An epoch below the known one is news that has been overtaken, and changes nothing. A topic that is deleted takes its
epochs along: the next topic of that name begins with its own.
"""

from enum import Enum
from typing import Final

from headrace.core.errors import InvariantError
from headrace.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS, NONE, NOT_COORDINATOR

NO_EPOCH: Final = -1


class ShardState(Enum):
    ABSENT = "absent"
    LOADING = "loading"
    ACTIVE = "active"
    LOST = "lost"


LEGAL_NEXT: Final = {
    ShardState.ABSENT: frozenset({ShardState.LOADING}),
    ShardState.LOADING: frozenset({ShardState.LOADING, ShardState.ACTIVE, ShardState.LOST, ShardState.ABSENT}),
    ShardState.ACTIVE: frozenset({ShardState.ABSENT}),
    ShardState.LOST: frozenset({ShardState.LOADING, ShardState.ABSENT}),
}

ANSWERS: Final = {
    ShardState.ABSENT: NOT_COORDINATOR,
    ShardState.LOADING: COORDINATOR_LOAD_IN_PROGRESS,
    ShardState.ACTIVE: NONE,
    ShardState.LOST: NOT_COORDINATOR,
}


class ShardStates:
    def __init__(self) -> None:
        self._states: dict[int, ShardState] = {}  # those that are not absent
        self._epochs: dict[int, int] = {}  # the newest that was heard of, kept while the shard is absent

    def state(self, partition: int) -> ShardState:
        return self._states.get(partition, ShardState.ABSENT)

    def epoch(self, partition: int) -> int:
        return self._epochs.get(partition, NO_EPOCH)

    def answer(self, partition: int) -> int:
        """What a client is told who asks for something in this shard; NONE if it is served."""
        return ANSWERS[self.state(partition)]

    def all_in(self, state: ShardState) -> list[int]:
        return [partition for partition, each in self._states.items() if each is state]

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def lead(self, partition: int, epoch: int) -> bool:
        """This broker leads the partition in that epoch. True: read it, from its start."""
        known, state = self.epoch(partition), self.state(partition)
        if epoch < known or (epoch == known and state is not ShardState.ABSENT):
            return False
        self._epochs[partition] = epoch
        if state is ShardState.ACTIVE:
            return False
        self._go(partition, ShardState.LOADING)
        return True

    def resign(self, partition: int, epoch: int | None) -> bool:
        """It does not lead it any more; None: the topic is deleted. True: what was known of it is to be let go."""
        if epoch is None:
            self._epochs.pop(partition, None)
        elif epoch < self.epoch(partition):
            return False
        else:
            self._epochs[partition] = epoch
        if self.state(partition) is ShardState.ABSENT:
            return False
        self._go(partition, ShardState.ABSENT)
        return True

    def loaded(self, partition: int) -> None:
        """It was read to its end."""
        self._go(partition, ShardState.ACTIVE)

    def lost(self, partition: int) -> None:
        """It cannot be read."""
        self._go(partition, ShardState.LOST)

    def _go(self, partition: int, state: ShardState) -> None:
        before = self.state(partition)
        if state not in LEGAL_NEXT[before]:
            raise InvariantError(f"partition {partition}: {before.value} cannot become {state.value}")
        if state is ShardState.ABSENT:
            del self._states[partition]
        else:
            self._states[partition] = state
