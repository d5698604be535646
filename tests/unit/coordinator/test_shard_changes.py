"""Partitions of the coordinators' topics come and go at random while groups and transactions are at work.

Whatever happens: each request is answered once, nothing of a shard that was given up is woken or written, and what is
in memory after the last load is what a reader of the journal finds. The journal is as a broker's log: what is given up
while it is under way may still be written, or not, and another broker writes to it meanwhile.
"""

import random

import pytest
from group_harness import Box, Scheduler, finish, join_request

from headrace.coordinator.classic.group import ClassicGroup
from headrace.coordinator.classic.members import SyncRequest
from headrace.coordinator.consumer.requests import Heartbeat
from headrace.coordinator.consumer.state import ConsumerGroup
from headrace.coordinator.group_records import CommittedOffset, encode_offset_commit
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.groups import Groups
from headrace.coordinator.journal import ABORT, COMMIT, MemoryJournal
from headrace.coordinator.journal_loading import WAITING
from headrace.coordinator.placing import partition_for
from headrace.coordinator.topic_view import TopicTable
from headrace.coordinator.transactions.coordinator import Transactions
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.coordinator.transactions.state import DECIDED
from headrace.core.clock import ManualClock
from headrace.protocol import error_codes as codes

PARTITIONS = 3
SEEDS = range(40)
STEPS = 250
DAY_MS = 86_400_000
GROUPS = ["g0", "g1", "g2", "k0", "k1"]  # those with a k are of KIP-848
IDS = ["t0", "t1", "t2", "t3"]
PRODUCERS = [71, 72]


class Log(MemoryJournal):
    """Appends take a while, also those of a shard that is given up: some of them have reached the log by then."""

    def __init__(self, rng):
        super().__init__(PARTITIONS)
        self._rng = rng
        self.slice_records = 3
        self.holds = True

    def let_go(self, partition):
        mine = [entry for entry in self._held if entry[0] == partition]
        kept = mine[: self._rng.randint(0, len(mine))]
        self._held = [entry for entry in self._held if entry[0] != partition or entry in kept]

    def land(self, count):
        """So many of those under way are written, in their order."""
        landed, self._held = self._held[:count], self._held[count:]
        for entry in landed:
            self._write(*entry)


class World:
    """One coordinator over such a log, the shards that it has, and the work that this makes."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.log = Log(self.rng)
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.epochs = [0] * PARTITIONS
        self.work = []
        self.boxes = []

    def box(self):
        self.boxes.append(Box())
        return self.boxes[-1]

    def begin(self, work):
        if work is not None:
            self.work.append(work)

    def lead(self, partition):
        self.epochs[partition] += self.rng.choice((0, 1, 1, 2))
        self.begin(self.coordinator.load(partition, self.epochs[partition]))

    def resign(self, partition):
        self.epochs[partition] += 1
        self.begin(self.coordinator.unload(partition, self.rng.choice((None, *[self.epochs[partition]] * 9))))

    def is_led(self, partition):
        return partition in self.coordinator.shards.active or partition in self.coordinator.shards.loading()

    def step(self):
        """One step of some work."""
        if self.work:
            work = self.work.pop(self.rng.randrange(len(self.work)))
            if next(work, None) is not None:
                self.work.append(work)

    def settle(self):
        """This broker leads everything, and all that was under way has come to its end."""
        for partition in range(PARTITIONS):
            self.epochs[partition] += 1
            self.begin(self.coordinator.load(partition, self.epochs[partition]))
        while self.work or self.log._held:
            self.log.land(len(self.log._held))
            self.step()
        self.log.holds = False
        assert self.coordinator.shards.active.keys() == set(range(PARTITIONS))

    def run(self, choices):
        for partition in range(PARTITIONS):
            self.lead(partition)
        for _ in range(STEPS):
            kind = self.rng.random()
            if kind < 0.5:
                self.rng.choice(choices)()
            elif kind < 0.65:
                self.log.land(self.rng.randint(1, 4))
            elif kind < 0.9:
                self.step()
            elif kind < 0.96:
                self.scheduler.pass_ms(self.rng.choice((0, 20, 500, 12_000)))
            else:
                partition = self.rng.randrange(PARTITIONS)
                resigns = self.is_led(partition) and self.rng.random() < 0.6
                (self.resign if resigns else self.lead)(partition)


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class GroupWorld(World):
    def __init__(self, seed):
        super().__init__(seed)
        settings = GroupSettings(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0)
        topics = TopicTable({"orders": 4})
        self.coordinator = Groups(self.log, self.clock, self.scheduler.call_later, settings, topics)
        self.coordinator.start()
        self.fresh = Groups(self.log, self.clock, Scheduler(self.clock).call_later, settings, topics)
        self.members = {}  # group → member id → generation or epoch

    def some_group(self, prefix):
        group_id = self.rng.choice([each for each in GROUPS if each.startswith(prefix)])
        members = self.members.setdefault(group_id, {})
        member_id = self.rng.choice(["", *members])
        return group_id, member_id, members.get(member_id, -1)

    def join(self):
        group_id, member_id, _ = self.some_group("g")
        box = self.box()

        def joined(body):
            if body["error_code"] in (codes.NONE, codes.MEMBER_ID_REQUIRED):
                self.members[group_id][body["member_id"]] = body.get("generation_id", -1)
            box(body)

        self.coordinator.join(join_request(member_id, group_id=group_id), joined)

    def sync(self):
        group_id, member_id, generation = self.some_group("g")
        asked = (group_id, member_id, generation, None, "consumer", "range", {member_id: b"all"})
        self.coordinator.sync(SyncRequest(*asked), self.box())

    def heartbeat(self):
        self.coordinator.heartbeat(*self.some_group("g"), None)

    def leave(self):
        group_id, member_id, _ = self.some_group("g")
        self.coordinator.leave(group_id, [(member_id, None)], self.box())

    def beat(self):
        group_id, member_id, epoch = self.some_group("k")
        joins = epoch < 0 or self.rng.random() < 0.2
        beat = Heartbeat(
            group_id,
            member_id or f"m{self.rng.random()}",
            0 if joins else self.rng.choice((epoch, epoch, epoch, -1)),
            rebalance_timeout_ms=60_000 if joins else -1,
            topics=frozenset({"orders"}) if joins else None,
            owned={} if joins else None,
        )
        box = self.box()

        def told(body):
            if body["error_code"] == codes.NONE:
                self.members[group_id][body["member_id"]] = body["member_epoch"]
            box(body)

        self.coordinator.consumer_heartbeat(beat, told)

    def commit(self):
        group_id, member_id, generation = self.some_group(self.rng.choice("gk"))
        entries = [("orders", self.rng.randrange(2), self.offset())]
        who = (member_id, generation) if self.rng.random() < 0.5 else ("", -1)
        self.coordinator.commit_offsets(group_id, *who, None, entries, self.box(), version=9)

    def offset(self):
        return CommittedOffset(self.rng.randrange(1000), commit_timestamp_ms=self.clock.now_ms())

    def commit_in_transaction(self):
        group_id, entries = self.rng.choice(GROUPS), [("orders", self.rng.randrange(2), self.offset())]
        producer = (self.rng.choice(PRODUCERS), 0)
        self.coordinator.commit_offsets(group_id, "", -1, None, entries, self.box(), version=5, producer=producer)

    def end_transaction(self):
        """A marker is written to a partition that is led here, as soon as what came before it is."""
        partition, producer_id, commits = (
            self.rng.randrange(PARTITIONS),
            self.rng.choice(PRODUCERS),
            self.rng.random() < 0.6,
        )
        if self.is_led(partition) and all(entry[0] != partition for entry in self.log._held):
            self.log.mark(partition, producer_id, 0, COMMIT if commits else ABORT)
            self.coordinator.transaction_ended(producer_id, partition, commits)

    def write_elsewhere(self):
        """Another broker, while this one does not lead."""
        group_id = self.rng.choice(GROUPS)
        partition = partition_for(group_id, PARTITIONS)
        if not self.is_led(partition) and all(entry[0] != partition for entry in self.log._held):
            key, value = encode_offset_commit(group_id, "orders", self.rng.randrange(2), self.offset())
            self.log._write(partition, [(key, value)], lambda error: None, None)

    def delete(self):
        self.begin(zeros(self.coordinator.delete([self.rng.choice(GROUPS)], self.box())))

    def fetch(self):
        group_id, box = self.rng.choice(GROUPS), self.box()

        def steps():
            body = yield from self.coordinator.fetch_offsets(group_id, None, -1, None, False)
            box(body)

        self.begin(zeros(steps()))

    def state(self, groups):
        found = {}
        for partition, shard in groups.shards.active.items():
            offsets = shard.table.offsets
            for group_id in sorted(offsets.group_ids() | set(shard.consumers.groups)):
                pending = {each for each in (0, 1) if offsets.has_pending(group_id, "orders", each)}
                group = shard.consumers.groups.get(group_id)
                table = group and (group.table.members, group.table.targets, group.table.epochs)
                found[partition, group_id] = offsets.all(group_id), pending, table
            for group_id, group in shard.table.classic.items():
                facts = group.facts
                if facts.generation:
                    found[partition, group_id, "classic"] = facts.generation, str(facts.state), facts.protocol_type
        return found


def zeros(steps):
    """A request in steps, as if it were the work of a shard."""
    for _ in steps:
        yield 0


def assert_in_charge(world, group):
    """Whoever is woken is in a shard that is active."""
    shard = world.coordinator.shards.active.get(partition_for(group.group_id, PARTITIONS))
    assert shard is not None
    assert group in (shard.table.classic.get(group.group_id), shard.consumers.get(group.group_id))


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_outlive_every_change_of_the_leader(seed, monkeypatch):
    world = GroupWorld(seed)
    for machine in (ClassicGroup, ConsumerGroup):

        def expire(group, now, expire=machine.expire):
            assert_in_charge(world, group)
            return expire(group, now)

        monkeypatch.setattr(machine, "expire", expire)
    choices = [world.join] * 4 + [world.sync, world.beat, world.commit] * 2 + [world.commit_in_transaction] * 2
    choices += [world.heartbeat, world.leave, world.end_transaction, world.write_elsewhere, world.delete, world.fetch]
    world.run(choices)
    world.settle()
    world.scheduler.pass_ms(DAY_MS // 24)  # every session ends, and with it every wait
    assert [len(box.bodies) for box in world.boxes] == [1] * len(world.boxes)
    for partition in range(PARTITIONS):
        finish(world.fresh.load(partition, 0))
    found = world.state(world.coordinator)
    assert found == world.state(world.fresh)
    for groups in (world.coordinator, world.fresh):
        for partition in range(PARTITIONS):
            for producer_id in PRODUCERS:
                groups.transaction_ended(producer_id, partition, True)
    assert world.state(world.coordinator) == world.state(world.fresh)
    tables = [shard.table for shard in world.coordinator.shards.all()]
    assert not any(len(group.facts.roster) for table in tables for group in table.classic.values())
    left = sum(table.usage().byte_count for table in tables)
    assert world.coordinator.metadata_bytes() == left, "nothing is counted of a shard that was given up"


# ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────────────


class TransactionWorld(World):
    def __init__(self, seed):
        super().__init__(seed)
        self.coordinator, self.fresh = self.make(), self.make()
        self.coordinator.start()
        self.held_markers = []
        self.marker_epochs = {}  # by producer id: those of its coordinators
        self.producers = {}
        self.next_producer_id = 1000

    def make(self):
        return Transactions(
            self.log,
            self.clock,
            self.scheduler.call_later,
            TransactionSettings(),
            self.producer_id,
            self,
            lambda group_id: partition_for(group_id, PARTITIONS),
        )

    def producer_id(self):
        self.next_producer_id += 1
        return self.next_producer_id

    def write(self, end, partitions, done):
        """As the port of markers. Some are written at once, some later, and some fail."""
        self.marker_epochs.setdefault(end.producer_id, []).append(end.coordinator_epoch)
        self.held_markers.append(done)

    def mark(self):
        held, self.held_markers = self.held_markers, []
        for done in held:
            done(None if self.rng.random() < 0.8 else OSError("the disk of another broker"))

    def init(self):
        name, box = self.rng.choice(IDS), self.box()

        def told(body):
            if body["error_code"] == codes.NONE:
                self.producers[name] = body["producer_id"], body["producer_epoch"]
            box(body)

        self.coordinator.init_producer_id(name, 60_000, None, told)

    def add(self):
        name = self.rng.choice(IDS)
        producer = self.producers.get(name, (1, 0))
        partitions = [("orders", self.rng.randrange(4))]
        self.coordinator.add_partitions(name, *producer, partitions, 2, self.box())

    def end(self):
        name, box = self.rng.choice(IDS), self.box()
        producer = self.producers.get(name, (1, 0))

        def told(body):
            if "producer_id" in body:
                self.producers[name] = body["producer_id"], body["producer_epoch"]
            box(body)

        self.coordinator.end(name, *producer, self.rng.random() < 0.6, 2, told)

    def state(self, transactions):
        return {
            held.transactional_id: (each.state, each.producer_id, each.producer_epoch, dict(each.partitions))
            for shard in transactions.shards.all()
            for held in shard.ledger.all()
            for each in [held.machine.current]
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_outlive_every_change_of_the_leader(seed):
    world = TransactionWorld(seed)
    world.run([world.init, world.add, world.add, world.end, world.end, world.mark])
    world.settle()
    for _ in range(150):  # seconds: what is open takes too long by then, and markers that failed are written again
        world.mark()
        world.scheduler.pass_ms(1_000)
    assert [len(box.bodies) for box in world.boxes] == [1] * len(world.boxes)
    found = world.state(world.coordinator)
    assert not any(state in DECIDED for state, *_ in found.values()), "what is decided is carried to its end"
    assert all(epochs == sorted(epochs) for epochs in world.marker_epochs.values())
    assert not any(held.machine.pending for shard in world.coordinator.shards.all() for held in shard.ledger.all())
    for partition in range(PARTITIONS):
        steps = world.fresh.load(partition, 0)
        assert WAITING not in list(steps)
    assert found == world.state(world.fresh)
