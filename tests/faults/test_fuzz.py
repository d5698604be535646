"""Requests of every API and version, good, hostile and mutated, from many clients at once: nobody else notices.

20,000 frames, or `--frames N` (`make fuzz FRAMES=1000000 SEED=7`). Every choice comes from the seed that is printed;
`--seed N` makes the same choices again, in the order that the machine's threads give them.
"""

from __future__ import annotations

import resource
import uuid
from dataclasses import dataclass

import raw
from broker_process import BrokerProcess
from fuzz_attack import Attack
from fuzz_world import (
    CLASSIC_GROUPS,
    CONSUMER_GROUPS,
    DELETE_GROUPS,
    INTERNAL,
    OFFSET_FETCH,
    PARTITIONS,
    TOPICS,
    World,
)
from waits import WAIT_MS_MAX, eventually

MB = 1 << 20
FRAMES = 20_000
WARM_UP_SHARE = 0.3
TIDY_EVERY = 30  # records of the bystander
ATTACKERS = 5
# One mutated number may make a topic of thousands of partitions; what the allocator keeps of it is some 30 MB, once.
RSS_GROWTH_MAX = 100 * MB
# Of the broker's addresses: a request that would take all memory fails in the broker, with an error in the log, and
# does not end whatever else runs on the machine.
ADDRESSES_MAX = 6 << 30
OPEN_FILES_MAX = 50
OTHER_DESCRIPTORS_MAX = 10  # the pipes of the process that compacts, the journal of topics
BYSTANDER = "witness"
LIST_GROUPS = 16
SOFTWARE = {"client_software_name": "fuzz", "client_software_version": "1"}
SETTINGS = {
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "50",
    "group.max.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "45000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "transactional.id.expiration.ms": "60000",
    "headrace.log.open.files.max": str(OPEN_FILES_MAX),
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
}
# The bystander's topic decides all for itself: attackers change the broker's defaults.
OWN_SETTINGS = {"retention_ms": -1, "retention_bytes": -1, "max_message_bytes": 1 << 20, "min_insync_replicas": 1}


class Bystander:
    """Produces and reads all the time, and knows every record that it was told is written."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.client = raw.Client(broker.bootstrap)
        self.topic = raw.make_topic(self.client, 1, BYSTANDER, **OWN_SETTINGS)
        self.values: list[bytes] = []

    def work(self) -> None:
        value = b"%d" % len(self.values)
        answer = raw.produce(self.client, self.topic, raw.batch(raw.values(value)))
        assert (answer.error_code, answer.base_offset) == (0, len(self.values)), answer
        self.values.append(value)
        found = raw.fetch(self.client, self.topic, len(self.values) - 1)
        assert (found.error_code, raw.values_of(found.records)) == (0, [value]), found

    def check_all(self, client: raw.Client) -> None:
        read: list[bytes | None] = []
        while len(read) < len(self.values):
            found = raw.fetch(client, self.topic, len(read))
            assert found.error_code == 0, found
            more = raw.values_of(found.records)
            assert more, f"{len(read)} of {len(self.values)} records can be read"
            read += more
        assert read == self.values


@dataclass
class Janitor:
    """Removes what mutated names left behind, so that what is measured is what a broker cannot forget."""

    client: raw.Client
    world: World

    def tidy(self) -> None:
        topics = self.client.call(raw.METADATA, 12, {"topics": None}).topics
        for topic in topics:
            if topic.name not in (BYSTANDER, *INTERNAL, *TOPICS) or len(topic.partitions) > 3 * PARTITIONS:
                self.client.call(raw.DELETE_TOPICS, 6, {"topics": [{"name": topic.name}], "timeout": WAIT_MS_MAX})
        self.make_topics()
        groups = [group.group_id for group in self.client.call(LIST_GROUPS, 4, {}).groups]
        strange = [group for group in groups if group not in CLASSIC_GROUPS + CONSUMER_GROUPS]
        if strange:
            self.client.call(DELETE_GROUPS, 2, {"groups_names": strange})
        self._forget_settings()

    def make_topics(self) -> None:
        specs = [{"name": name, "num_partitions": PARTITIONS, "replication_factor": 1} for name in TOPICS]
        self.client.call(raw.CREATE_TOPICS, 7, {"topics": specs, "timeout": WAIT_MS_MAX})
        for topic in self.client.call(raw.METADATA, 12, {"topics": None}).topics:
            if topic.name != BYSTANDER and isinstance(topic.topic_id, uuid.UUID):
                self.world.topic_ids[topic.name] = topic.topic_id

    def _forget_settings(self) -> None:
        resources = [{"resource_type": 4, "resource_name": name, "configs": []} for name in ("", "1")]
        resources += [{"resource_type": 2, "resource_name": name, "configs": []} for name in TOPICS]
        self.client.call(raw.ALTER_CONFIGS, 2, {"resources": resources, "validate_only": False})


class Fuzz:
    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self.broker = broker
        self.world = World()
        self.bystander = Bystander(broker)
        self.janitor = Janitor(raw.Client(broker.bootstrap), self.world)
        self.janitor.make_topics()
        asked = self.bystander.client.call(raw.API_VERSIONS, 4, SOFTWARE).api_keys
        # Produce is advertised from 0 on, for old clients' sake, and served from 3 on.
        self.served = [
            (each.api_key, max(each.min_version, 3 * (each.api_key == 0)), each.max_version) for each in asked
        ]
        self.attack = Attack(broker.bootstrap, self.world, seed, ATTACKERS, self.served)

    def run(self, frames: int, *, every_version: bool = False) -> None:
        self.attack.start(frames, every_version=every_version)
        done = 0
        while not self.attack.is_over:
            assert self.broker.running, "the broker has died"
            self.bystander.work()
            done += 1
            if done % TIDY_EVERY == 0:
                self.janitor.tidy()
            self.attack.wait(0.02)
        self.attack.join()
        self.janitor.tidy()
        self.bystander.work()

    def check_log(self) -> None:
        lines = self.broker.log_lines()
        for number, line in enumerate(lines):
            # An error that was contained is a bug of the broker, too: what is wrong with a request is a warning.
            for bad in ("Traceback", " ERROR ", "skipped: it cannot be read", "cannot be read: what belongs to it"):
                assert bad not in line, "\n".join(lines[max(0, number - 2) : number + 30])


def test_fuzzed_requests_hurt_nobody_and_leave_nothing_behind(start_broker, seed, request):
    frames = request.config.getoption("--frames") or FRAMES
    broker = start_broker(SETTINGS)
    resource.prlimit(broker.pid, resource.RLIMIT_AS, (ADDRESSES_MAX, ADDRESSES_MAX))
    fuzz = Fuzz(broker, seed)
    descriptors_max = broker.descriptor_count() + OPEN_FILES_MAX + OTHER_DESCRIPTORS_MAX
    fuzz.run(int(frames * WARM_UP_SHARE), every_version=True)
    verdict(fuzz)
    rss_bytes = broker.rss_bytes()
    fuzz.run(frames - fuzz.attack.seen.frames)
    verdict(fuzz)
    eventually(lambda: broker.descriptor_count() <= descriptors_max, f"no more than {descriptors_max} descriptors")
    grown = broker.rss_bytes() - rss_bytes
    report(fuzz, grown, seed)
    assert grown < RSS_GROWTH_MAX, f"{grown / MB:.0f} MB more than after the first {WARM_UP_SHARE:.0%}"
    check_coverage(fuzz)
    with raw.Client(broker.bootstrap) as client:
        offsets = committed_offsets(client)
    broker.stop()
    again = start_broker(SETTINGS)
    with raw.Client(again.bootstrap) as client:
        fuzz.bystander.check_all(client)
        assert committed_offsets(client) == offsets
    fuzz.check_log()


def committed_offsets(client: raw.Client) -> dict[tuple[str, str, int], int]:
    groups = [{"group_id": group, "topics": None} for group in CLASSIC_GROUPS + CONSUMER_GROUPS]
    return {
        (group.group_id, topic.name, each.partition_index): each.committed_offset
        for group in client.call(OFFSET_FETCH, 9, {"groups": groups}).groups
        for topic in group.topics
        for each in topic.partitions
    }


def verdict(fuzz: Fuzz) -> None:
    fuzz.check_log()
    problems = fuzz.attack.seen.problems
    assert not problems, "\n".join(problems[:3])
    with raw.Client(fuzz.broker.bootstrap) as client:
        fuzz.bystander.check_all(client)


def check_coverage(fuzz: Fuzz) -> None:
    """Every version was asked in earnest, and every API answered: a fuzzer that is always refused tests nothing."""
    seen = fuzz.attack.seen
    every = {(key, version) for key, low, high in fuzz.served for version in range(low, high + 1)}
    assert every == set(seen.sent)
    assert set(seen.answered) == {key for key, _, _ in fuzz.served}


def report(fuzz: Fuzz, grown: int, seed: int) -> None:
    seen = fuzz.attack.seen
    print(
        f"seed {seed}: {seen.frames} frames ({seen.mutated} mutated), {seen.answered.total()} answers,"
        f" {seen.left_waiting} connections left waiting, {len(fuzz.bystander.values)} records of the bystander,"
        f" {grown / MB:+.1f} MB, {fuzz.broker.cpu_s():.1f} s of the broker's CPU time"
    )
