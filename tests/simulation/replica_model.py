"""Brokers that replicate one partition, as a model: the real decisions (`plan`, `elect`, `LeaderState`), and
everything around them reduced to lists. A log is a list of (epoch, value), the tree is one value with a version, and a
message is a function that is called later, or never. One `Random` decides what happens next, so a seed replays.

What must hold is checked after each step: `Model.check`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from headrace.replication.election import Way, has_all
from headrace.replication.image import BrokerImage, ClusterImage, ImageDelta, PartitionImage, TopicImage
from headrace.replication.leader_state import LeaderState
from headrace.replication.operations import SetState, change, with_partition
from headrace.replication.plan import Wishes, plan

TOPIC = "orders"
LAG_MS_MAX = 200
RECORDS_PER_FETCH = 3
Record = tuple[int, int]  # leader epoch, value


class BrokenPromiseError(AssertionError):
    """Something that must hold does not."""


@dataclass
class Broker:
    id: int
    log: list[Record] = field(default_factory=list)
    image: ClusterImage | None = None  # what it knows; None while it is down
    incarnation: int = 0
    intact_from: int = 1
    epoch: int = -1  # of the leadership that it follows or has
    high_watermark: int = 0
    leader: LeaderState | None = None
    waiting: dict[int, int] = field(default_factory=dict)  # values without an acknowledgement, by offset
    writes: int = 0  # of the ISR that are on their way to the tree
    fetches: int = 0  # the answer of the last one counts, as on a connection that has one request under way
    is_fetching: bool = False

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch in the log that is not above this one, and where its records end."""
        known = [each for each, _ in self.log if each <= epoch]
        return (known[-1], len(known)) if known else (-1, 0)


class Model:
    def __init__(self, random: Random, *, brokers: int = 3, min_isr: int = 2, unclean: bool = False) -> None:
        self.random = random
        self.now_ms = 0
        self.min_isr = min_isr
        self.unclean = unclean
        self.brokers = {each: Broker(each) for each in range(1, brokers + 1)}
        replicas = tuple(random.sample(sorted(self.brokers), min(3, brokers)))
        topic = TopicImage(name=TOPIC, id=uuid.UUID(int=1), partitions=(PartitionImage(replicas=replicas),))
        self.tree = ClusterImage(cluster_id="c").changed(ImageDelta(topics={TOPIC: topic}))
        self.controllers = [self.tree, self.tree]  # what each of two knows
        self.controller_epochs = [1, 1]
        self.controller_epoch = 1
        self.messages: list[tuple[Callable[[], object], Callable[[], object]]] = []  # and what is done if it is lost
        self.acknowledged: dict[int, Record] = {}  # by offset
        self.leaders: dict[int, tuple[int, int]] = {}  # who led, by epoch
        self.sent = self.acknowledged_count = self.losses = self.steps = 0
        for each in self.brokers.values():
            self.start(each)

    # ── the tree ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> PartitionImage:
        return self.tree.topics[TOPIC].partitions[0]

    def set_state(self, state: PartitionImage) -> None:
        topic = with_partition(self.tree.topics[TOPIC], 0, state)
        self.tree = self.tree.changed(ImageDelta(topics={TOPIC: topic}))

    def control(self) -> None:
        """One of two controllers, perhaps one that was deposed, plans by what it knows and writes."""
        which = self.random.randrange(2)
        for operation in list(plan(self.controllers[which], Wishes(), is_unclean=lambda topic: self.unclean)):
            if self.controller_epochs[which] != self.controller_epoch or not isinstance(operation, SetState):
                continue
            if operation.expected_version == self.state.version:
                self.tree = self.tree.changed(change(self.tree, operation))
                if operation.way in (Way.LAST_RESORT, Way.UNCLEAN):
                    self.losses += 1
                    self.forget_what_may_be_lost()

    def elect_controller(self) -> None:
        which = self.random.randrange(2)
        self.controller_epoch += 1
        self.controller_epochs[which] = self.controller_epoch
        self.controllers[which] = self.tree

    def inform(self) -> None:
        """A controller or a broker hears of what has changed."""
        which = self.random.randrange(2)
        if self.controller_epochs[which] == self.controller_epoch or self.random.random() < 0.3:
            self.controllers[which] = self.tree
        self.follow(self.random.choice(list(self.brokers.values())))

    # ── brokers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, broker: Broker) -> None:
        broker.incarnation += 1
        broker.epoch, broker.leader, broker.waiting = -1, None, {}
        told = BrokerImage(id=broker.id, endpoints={}, incarnation=broker.incarnation, intact_from=broker.intact_from)
        self.tree = self.tree.changed(ImageDelta(brokers={broker.id: told}))
        broker.image = self.tree

    def stop(self) -> None:
        """`kill -9`; or power or a disk is lost with it, and with them the end of the log or all of it."""
        broker = self.random.choice(list(self.brokers.values()))
        if broker.image is None:
            return
        broker.image, broker.leader = None, None
        if self.random.random() < 0.3:
            del broker.log[self.random.randrange(len(broker.log) + 1) :]
            broker.intact_from = broker.incarnation + 1
        broker.high_watermark = min(broker.high_watermark, len(broker.log))
        self.tree = self.tree.changed(ImageDelta(brokers={broker.id: None}))

    def start_again(self) -> None:
        down = [each for each in self.brokers.values() if each.image is None]
        if down:
            self.start(self.random.choice(down))

    def follow(self, broker: Broker) -> None:
        """The broker reads the tree and takes its role."""
        if broker.image is None:
            return
        broker.image = self.tree
        state = self.state
        if state.version < 0:
            return
        if state.leader_epoch > broker.epoch:
            broker.epoch, broker.leader, broker.waiting = state.leader_epoch, None, {}
            if state.leader == broker.id and state.leader_incarnation == broker.incarnation:
                self.lead(broker, state)
        elif broker.leader is not None:
            broker.leader.observed(state, is_settled=not broker.writes)

    def lead(self, broker: Broker, state: PartitionImage) -> None:
        if self.leaders.setdefault(state.leader_epoch, (broker.id, broker.incarnation)) != (
            broker.id,
            broker.incarnation,
        ):
            raise BrokenPromiseError(f"two leaders in epoch {state.leader_epoch}")
        for offset, record in self.acknowledged.items():
            if broker.log[offset : offset + 1] != [record]:
                raise BrokenPromiseError(f"leader {broker.id} of epoch {broker.epoch} has no {record} at {offset}")
        broker.leader = LeaderState(
            broker.id,
            state,
            epoch_start=len(broker.log),
            high_watermark=broker.high_watermark,
            min_isr=self.min_isr,
            now_ms=self.now_ms,
        )

    def produce(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        if broker.leader is None or not broker.leader.has_enough:
            return
        self.sent += 1
        broker.waiting[len(broker.log)] = self.sent
        broker.log.append((broker.epoch, self.sent))
        broker.leader.appended(len(broker.log))
        self.acknowledge(broker)

    def acknowledge(self, broker: Broker) -> None:
        leader = broker.leader
        if leader is None:
            return
        if leader.high_watermark < broker.high_watermark:
            raise BrokenPromiseError(f"the high watermark fell to {leader.high_watermark}")
        broker.high_watermark = leader.high_watermark
        for offset in [each for each in broker.waiting if each < leader.high_watermark]:
            del broker.waiting[offset]
            self.acknowledged[offset] = broker.log[offset]
            self.acknowledged_count += 1

    # ── replication ──────────────────────────────────────────────────────────────────────────────────────────────

    def fetch(self) -> None:
        follower = self.random.choice(list(self.brokers.values()))
        if follower.image is None or follower.leader is not None:
            return
        state = follower.image.topics[TOPIC].partitions[0]
        source = self.brokers.get(state.leader)
        if source is None or follower.id not in state.replicas or state.leader_epoch != follower.epoch:
            return
        if follower.is_fetching and self.random.random() < 0.9:
            return  # otherwise: a connection broke, and another one asks
        follower.fetches += 1
        follower.is_fetching = True
        number = follower.fetches
        epoch, incarnation, end = follower.epoch, follower.incarnation, len(follower.log)
        last_epoch = follower.log[-1][0] if follower.log else -1

        def asked() -> None:
            if source.leader is None or source.epoch != epoch:
                self.send(is_late, is_late)  # it is refused
                return
            known, known_end = source.end_of(last_epoch)
            if end and (known < last_epoch or known_end < end):
                self.send(lambda: cut(known, known_end), is_late)
                return
            source.leader.fetched(follower.id, incarnation, end, self.now_ms)
            self.acknowledge(source)
            records, high_watermark = source.log[end : end + RECORDS_PER_FETCH], source.leader.high_watermark
            self.send(lambda: answered(records, high_watermark), is_late)

        def is_late() -> bool:
            if follower.fetches == number:
                follower.is_fetching = False
            return (
                follower.image is None
                or (follower.incarnation, follower.epoch, follower.fetches) != (incarnation, epoch, number)
                or follower.leader is not None
            )

        def answered(records: list[Record], high_watermark: int) -> None:
            if not is_late():
                follower.log += records
                follower.high_watermark = max(follower.high_watermark, min(high_watermark, len(follower.log)))

        def cut(known: int, known_end: int) -> None:
            if is_late():
                return
            to = min(known_end, follower.end_of(known)[1])
            if to < follower.high_watermark and not self.losses:
                raise BrokenPromiseError(f"broker {follower.id} cuts to {to}, below {follower.high_watermark}")
            del follower.log[to:]
            follower.high_watermark = min(follower.high_watermark, to)

        self.send(asked, is_late)

    def propose(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        if broker.leader is None or broker.image is None:
            return
        leader, epoch = broker.leader, broker.epoch
        proposal = leader.propose(broker.image.brokers, now_ms=self.now_ms, lag_ms_max=LAG_MS_MAX)
        if proposal is None:
            return

        broker.writes += 1

        def ended() -> None:
            broker.writes -= 1

        def written() -> None:
            ended()
            state = self.state
            known = all(self.brokers[each].incarnation == incarnation for each, incarnation in proposal.joining.items())
            if state.version != proposal.expected_version or not known:
                return  # refused; the leader reads the state again
            self.set_state(replace(state.with_isr(proposal.isr), version=state.version + 1))
            if self.random.random() < 0.8 and broker.leader is leader and broker.epoch == epoch:
                leader.accepted()
                self.acknowledge(broker)

        self.send(written, ended)

    # ── the world ────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, call: Callable[[], object], lost: Callable[[], object]) -> None:
        self.messages.append((call, lost))

    def deliver(self) -> None:
        if self.messages:
            call, lost = self.messages.pop(self.random.randrange(len(self.messages)))
            (call if self.random.random() < 0.95 else lost)()

    def step(self) -> None:
        self.now_ms += self.random.choice((1, 1, 5, 40))
        happenings = (
            (self.produce, 20),
            (self.fetch, 30),
            (self.deliver, 60),
            (self.inform, 12),
            (self.control, 6),
            (self.propose, 6),
            (self.elect_controller, 1),
            (self.stop, 2),
            (self.start_again, 3),
        )
        self.random.choices([each for each, _ in happenings], [weight for _, weight in happenings])[0]()
        self.check()

    def forget_what_may_be_lost(self) -> None:
        """An election that may lose records was made, and said: what was acknowledged before is not promised now."""
        self.acknowledged.clear()
        for each in self.brokers.values():
            each.high_watermark = 0

    def check(self) -> None:
        self.steps += 1
        state = self.state
        for each in self.brokers.values():
            if each.id in state.isr and has_all(state, each.id, self.tree.brokers):
                for offset, record in self.acknowledged.items():
                    if each.log[offset : offset + 1] != [record]:
                        raise BrokenPromiseError(f"broker {each.id} is in the ISR and has no {record} at {offset}")
        if not self.losses:
            common = min(each.high_watermark for each in self.brokers.values())
            logs = {tuple(each.log[:common]) for each in self.brokers.values()}
            if len(logs) > 1:
                raise BrokenPromiseError(f"logs differ below the lowest high watermark, {common}")

    def calm_down(self) -> None:
        """Everybody is back and nothing is lost any more: the partition must work again."""
        for each in self.brokers.values():
            if each.image is None:
                self.start(each)
        for _ in range(600):
            self.now_ms += 5
            for happens in (self.elect_controller, self.control, self.inform, self.fetch, self.deliver, self.propose):
                happens()
            self.produce()
            self.check()
