"""A partition as clients see it: who leads it, the gate to its log, and the fetches that wait for it to grow.

Every handler reaches a log through the gate: `led` is the log while this broker leads the partition, `refusal` says why
it is not there, and `log_for` compares leader epochs as well. `local` is whatever copy this broker holds, for those who
look after files and not after clients.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, Protocol

from headrace.core.errors import PeerError
from headrace.log.partition_log import PartitionLog
from headrace.protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
)

if TYPE_CHECKING:
    from headrace.broker.purgatory import FetchWait

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
OFFLINE: Final = "offline"  # it should be here, but its directory has failed
ELSEWHERE: Final = "elsewhere"  # other brokers have it

NO_EPOCH: Final = -1  # a client that does not say which leader it knows


class Watcher(Protocol):
    """Who is told of each change of a partition: of its high watermark, or of its role."""

    def wake(self) -> None: ...


class Partition:
    __slots__ = (
        "_waits",
        "index",
        "isr",
        "leader_epoch",
        "led",
        "local",
        "replicas",
        "role",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(self, topic: str, topic_id: uuid.UUID, index: int, local: PartitionLog | None, broker_id: int) -> None:
        """A new partition is led by the broker itself, which is its only replica."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.local = local
        self.role = LEADER if local is not None else OFFLINE
        self.led = local
        self.leader_epoch = local.leader_epoch if local is not None else 0
        self.replicas: tuple[int, ...] = (broker_id,)
        self.isr: tuple[int, ...] = (broker_id,) if local is not None else ()
        self.watchers: list[Watcher] = []  # followers, who stay when they are woken
        self._waits: dict[FetchWait, None] | None = None
        if local is not None:
            local.on_high_watermark.append(self.wake)

    def hold(self) -> None:
        """Nobody is served before a role is given."""
        self.role = OFFLINE
        self.led = None

    def attach(self, log: PartitionLog) -> None:
        """Its log was made. Nobody is served from it before a role is given."""
        self.local = log
        log.on_high_watermark.append(self.wake)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    # ── the gate ─────────────────────────────────────────────────────────────────────────────────────────────────

    def log_for(self, leader_epoch: int = NO_EPOCH) -> PartitionLog:
        """The log, for a client that believes in the leader of that epoch; otherwise a PeerError."""
        if leader_epoch != NO_EPOCH and leader_epoch != self.leader_epoch and self.role != OFFLINE:
            code = FENCED_LEADER_EPOCH if leader_epoch < self.leader_epoch else UNKNOWN_LEADER_EPOCH
            raise PeerError(code, f"{self.name}: leader epoch {leader_epoch}; it is {self.leader_epoch}")
        if self.led is None:
            raise self.refusal()
        return self.led

    def refusal(self) -> PeerError:
        """Why there is no log to be led here."""
        if self.role == OFFLINE:
            return PeerError(KAFKA_STORAGE_ERROR, f"{self.name}: its log directory is offline")
        return PeerError(NOT_LEADER_OR_FOLLOWER, f"{self.name}: this broker is not the leader; ask for metadata again")

    def too_few(self) -> PeerError | None:
        """Why acks=all cannot be promised: fewer replicas in sync than the topic demands. As in Kafka, a topic never
        demands more than it has replicas."""
        log = self.led
        if log is None:
            return None
        wanted = min(log.config.min_insync_replicas, len(self.replicas))
        if len(self.isr) >= wanted:
            return None
        why = f"{self.name}: {len(self.isr)} replica(s) in sync, min.insync.replicas is {wanted}"
        return PeerError(NOT_ENOUGH_REPLICAS, f"{why}; produce with acks=1, lower it, or bring a broker back")

    # ── roles ────────────────────────────────────────────────────────────────────────────────────────────────────

    def lead(self, epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...] | None = None) -> None:
        """This broker leads from now on. The epoch is on disk before anyone is served."""
        log = self.local
        if log is None:
            return
        if epoch != self.leader_epoch or epoch != log.leader_epoch:
            log.begin_epoch(epoch)
        self.leader_epoch = epoch
        self.isr = isr
        self.replicas = replicas or self.replicas
        self.role = LEADER
        self.led = log
        self.wake()

    def follow(self, epoch: int, replicas: tuple[int, ...] | None = None) -> None:
        """Another broker leads. Who waits for an acknowledgement or for records is told to look for it."""
        self._leave(FOLLOWER, epoch, replicas)

    def go_offline(self, epoch: int | None = None, replicas: tuple[int, ...] | None = None) -> None:
        """Its directory has failed. Those who wait for it are told."""
        self._leave(OFFLINE, epoch, replicas)
        self._give_up_log()

    def go_elsewhere(self, epoch: int, replicas: tuple[int, ...]) -> None:
        """Other brokers have it. A copy that was here is no longer its."""
        self._leave(ELSEWHERE, epoch, replicas)
        self._give_up_log()

    def _give_up_log(self) -> None:
        """A log that another one of this partition may replace tells it of nothing more."""
        if self.local is not None:
            self.local.on_high_watermark.remove(self.wake)
        self.local = None
        self.isr = ()

    def _leave(self, role: str, epoch: int | None, replicas: tuple[int, ...] | None) -> None:
        self.leader_epoch = self.leader_epoch if epoch is None else epoch
        self.replicas = replicas or self.replicas
        self.role = role
        self.led = None
        if self.local is not None:
            self.local.fail_uncommitted(self.refusal())
        self.wake()

    # ── those who wait for records ───────────────────────────────────────────────────────────────────────────────

    def await_growth(self, wait: FetchWait) -> None:
        if self._waits is None:
            self._waits = {}
        self._waits[wait] = None

    def forget(self, wait: FetchWait) -> None:
        if self._waits is not None:
            self._waits.pop(wait, None)

    def wake(self) -> None:
        """The log has grown, or is gone: those who wait look again at the end of this turn."""
        for wait in self._waits or ():
            wait.wake()
        for watcher in self.watchers:
            watcher.wake()
