"""Classic groups with kafka-python, the documents' samples among them, and its view of groups as an admin."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from json import loads
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import OffsetAndMetadata
from topic_setup import fresh_name
from waits import SESSION_MS, WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]
QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": SESSION_MS, "fetch_max_wait_ms": 50}


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return fresh_name(request.node.name)


def send(bootstrap: str, topic: str, values: list[bytes], partitions: int = 1) -> None:
    with closing(KafkaProducer(bootstrap_servers=[bootstrap], linger_ms=5)) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % partitions)


def consumer_of(bootstrap: str, *topics: str, **config: Any) -> closing[KafkaConsumer]:
    fixed = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | QUICK
    return closing(KafkaConsumer(*topics, bootstrap_servers=[bootstrap], **(fixed | config)))


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    values: list[Any] = []
    deadline = time.monotonic() + WAIT_S_MAX
    while len(values) < count and (left_s := deadline - time.monotonic()) > 0:
        for batch in consumer.poll(timeout_ms=left_s * 1000, max_records=count - len(values)).values():
            values += [record.value for record in batch]
    return values


class Polling(ConsumerRebalanceListener):
    """A member in a thread of its own: kafka-python rebalances while it polls.

    It polls for long. A poll of kafka-python 3.0.12 that runs out of time just when the answer to its SyncGroup
    arrives loses the assignment, on any broker. So what ends a poll is a record.
    """

    def __init__(self, bootstrap: str, topic: str, group: str, **config: Any) -> None:
        self._bootstrap, self._topic, self._config = bootstrap, topic, {"group_id": group} | config
        self._ending = threading.Event()
        self._held: set[TopicPartition] = set()
        self.has_share = False  # it was told what it has, which may be nothing
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def partitions(self) -> list[int]:
        return sorted(each.partition for each in self._held)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._held = self._held | set(assigned)
        self.has_share = True

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._held = self._held - set(revoked)

    def _run(self) -> None:
        with consumer_of(self._bootstrap, **self._config) as consumer:
            consumer.subscribe([self._topic], listener=self)
            while not self._ending.is_set():
                consumer.poll(timeout_ms=round(WAIT_S_MAX * 1000))

    def leave(self) -> None:
        self._ending.set()
        send(self._bootstrap, self._topic, [b"wake up"] * 4, partitions=4)
        self._thread.join(WAIT_S_MAX)
        assert not self._thread.is_alive()


@pytest.fixture
def join(bootstrap: str, group: str) -> Iterator[Callable[..., Polling]]:
    members: list[Polling] = []

    def one_more(topic: str, **config: Any) -> Polling:
        members.append(Polling(bootstrap, topic, group, **config))
        return members[-1]

    yield one_more
    for member in members:
        member.leave()


def await_shares(members: list[Polling], *sizes: int) -> None:
    shares: list[list[int]] = []

    def settled() -> bool:
        shares[:] = [list(member.partitions) for member in members]
        owned = sorted(partition for share in shares for partition in share)
        all_in = all(member.has_share for member in members)  # until then the shares are those of the others alone
        return all_in and sorted(map(len, shares)) == sorted(sizes) and owned == list(range(sum(sizes)))

    try:
        eventually(settled, f"shares of {sizes}")
    except AssertionError as late:
        raise AssertionError(f"{late}; the shares are {shares}") from None


# The sample of the documents that names a group, as it is printed there.
GROUP_SAMPLE = """
consumer = KafkaConsumer(
    'numtest',
    bootstrap_servers=['localhost:9092'],
    auto_offset_reset='earliest',
    enable_auto_commit=True,
    group_id='my-group',
    value_deserializer=lambda x: loads(x.decode('utf-8')))
"""


def test_the_documents_consumer_with_a_group_commits_by_itself_and_goes_on_where_it_was(
    bootstrap: str, topic: str, group: str
) -> None:
    sample = GROUP_SAMPLE.replace("localhost:9092", bootstrap).replace("numtest", topic).replace("my-group", group)
    send(bootstrap, topic, [json.dumps({"number": n}).encode() for n in range(10)])
    for first, after in ((0, 10), (10, 13)):
        names: dict[str, Any] = {"KafkaConsumer": KafkaConsumer, "loads": loads}
        exec(sample, names)
        with closing(names["consumer"]) as consumer:
            assert take(consumer, after - first) == [{"number": n} for n in range(first, after)]
        send(bootstrap, topic, [json.dumps({"number": n}).encode() for n in range(after, after + 3)])


def test_four_partitions_are_shared_by_one_two_four_and_five_consumers(
    make_topic: MakeTopic, join: Callable[..., Polling]
) -> None:
    topic = make_topic(partitions=4)
    members = [join(topic)]
    await_shares(members, 4)
    members.append(join(topic))
    await_shares(members, 2, 2)
    members += [join(topic), join(topic)]
    await_shares(members, 1, 1, 1, 1)
    members.append(join(topic))
    await_shares(members, 1, 1, 1, 1, 0)
    for sizes in ((1, 1, 1, 1), (2, 1, 1), (2, 2)):
        leaving = next(each for each in members if each.partitions)  # an idle one has no record that ends its poll
        members.remove(leaving)
        leaving.leave()
        await_shares(members, *sizes)


def test_a_group_goes_on_where_it_committed(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    here = TopicPartition(topic, 0)
    send(bootstrap, topic, [b"%d" % n for n in range(6)])
    with consumer_of(bootstrap, topic, group_id=group) as consumer:
        assert len(take(consumer, 6)) == 6
        consumer.commit({here: OffsetAndMetadata(2, "of two", 0)})
        assert consumer.committed(here) == 2
        assert consumer.committed(here, metadata=True) == OffsetAndMetadata(2, "of two", 0)
    with consumer_of(bootstrap, topic, group_id=group) as consumer:
        assert take(consumer, 4) == [b"2", b"3", b"4", b"5"]
    # Another group is not concerned.
    with consumer_of(bootstrap, topic, group_id=group + "-second") as consumer:
        assert take(consumer, 6) == [b"%d" % n for n in range(6)]


def test_a_static_member_and_a_cooperative_group_settle(make_topic: MakeTopic, join: Callable[..., Polling]) -> None:
    topic = make_topic(partitions=4)
    config = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
    members = [join(topic, group_instance_id="first", **config)]
    await_shares(members, 4)
    members.append(join(topic, group_instance_id="second", **config))
    await_shares(members, 2, 2)


def test_an_admin_lists_describes_moves_and_deletes_groups(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic(partitions=2)
    here = TopicPartition(topic, 0)
    send(bootstrap, topic, [b"%d" % n for n in range(6)])
    admin = KafkaAdminClient(bootstrap_servers=[bootstrap])
    with closing(admin):
        with consumer_of(bootstrap, topic, group_id=group) as consumer:
            assert len(take(consumer, 6)) == 6
            consumer.commit()
            assert group in {each["group_id"] for each in admin.list_groups()}
            described = admin.describe_groups([group])[group]
            assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
            assert len(described["members"]) == 1
        offsets = admin.list_group_offsets(group)[group]
        assert offsets[here].offset == 6
        admin.alter_group_offsets(group, {here: OffsetAndMetadata(1, "", -1)})
        with consumer_of(bootstrap, topic, group_id=group) as consumer:
            assert take(consumer, 5) == [b"%d" % n for n in range(1, 6)]
        admin.delete_groups([group])
        assert group not in {each["group_id"] for each in admin.list_groups()}
