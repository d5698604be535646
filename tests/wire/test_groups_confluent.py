"""Classic groups with confluent-kafka (librdkafka): the documents' pictures of who reads what, and offsets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from memberships import consumer_of, crew_of, send, take
from topic_setup import create_topic, fresh_name
from waits import WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return fresh_name(request.node.name)


def test_one_consumer_of_four_partitions_gets_four_two_get_two_each_four_one_each_and_a_fifth_idles(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=4)
    with crew_of(bootstrap, group, topic) as crew:
        crew.join()
        assert crew.settle(4) == [[0, 1, 2, 3]]
        crew.join()
        crew.settle(2, 2)
        crew.join(2)
        crew.settle(1, 1, 1, 1)
        crew.join()
        crew.settle(1, 1, 1, 1, 0)
        # When members leave, the rest take over.
        while len(crew.members) > 1:
            crew.leave(crew.members[0])
        crew.settle(4)


def test_eight_consumers_of_six_partitions_leave_two_idle_and_each_record_is_read_once(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=6)
    with crew_of(bootstrap, group, topic) as crew:
        crew.join(8)
        crew.settle(1, 1, 1, 1, 1, 1, 0, 0)
        send(bootstrap, topic, range(60), partitions=6)
        assert sorted(int(message.value()) for message in crew.receive(60)) == list(range(60))


def test_a_second_group_gets_everything_again(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    send(bootstrap, topic, range(10))
    for name in (group, group + "-second"):
        with consumer_of(bootstrap, name) as consumer:
            consumer.subscribe([topic])
            assert take(consumer, 10) == [str(n) for n in range(10)]
            consumer.commit(asynchronous=False)


def test_a_group_goes_on_where_it_committed(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    send(bootstrap, topic, range(10))
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        assert take(consumer, 10) == [str(n) for n in range(10)]
        (done,) = consumer.commit(
            offsets=[TopicPartition(topic, 0, 4, metadata="of four", leader_epoch=0)], asynchronous=False
        )
        assert done.error is None
        (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S_MAX)
        assert (kept.offset, kept.metadata, kept.leader_epoch) == (4, "of four", 0)
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        assert take(consumer, 6) == [str(n) for n in range(4, 10)]


def test_offsets_are_committed_automatically_and_on_close(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    send(bootstrap, topic, range(10))
    automatic = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    with consumer_of(bootstrap, group, **automatic) as consumer:
        consumer.subscribe([topic])
        assert len(take(consumer, 5)) == 5

        def kept() -> int:
            consumer.poll(0)
            return consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S_MAX)[0].offset

        eventually(lambda: kept() >= 5, "a commit by itself")
    with consumer_of(bootstrap, group) as consumer:
        (kept_after,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S_MAX)
    assert kept_after.offset >= 5


DYING_MEMBER = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 6000,
                     "heartbeat.interval.ms": 100})
consumer.subscribe([topic])
while True:
    consumer.poll(0.05)
"""


def test_the_partitions_of_a_consumer_that_is_killed_move_within_the_session_timeout(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=4)
    command = [sys.executable, "-c", DYING_MEMBER, bootstrap, group, topic]
    process = subprocess.Popen(command)
    try:
        with crew_of(bootstrap, group, topic) as crew:
            crew.join()
            crew.until(lambda: list(map(len, crew.shares())) == [2], lambda: f"two and two; {crew.shares()}")
            process.kill()
            process.wait(WAIT_S_MAX)
            crew.settle(4)
    finally:
        process.kill()
        process.wait()


def test_a_static_member_that_restarts_gets_its_partitions_back_without_a_rebalance(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=4)
    revoked: list[list[TopicPartition]] = []
    with crew_of(bootstrap, group, topic) as crew:
        first = crew.join(group_instance_id="first")
        crew.settle(4)
        crew.join(group_instance_id="second", on_revoke=lambda _, lost: revoked.append(lost))
        of_first, of_second = crew.settle(2, 2)
        crew.leave(first)
        crew.join(group_instance_id="first")
        assert crew.settle(2, 2) == [of_second, of_first]
        assert revoked == []


def test_an_instance_that_starts_twice_fences_the_first(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    with consumer_of(bootstrap, group, group_instance_id="one") as old:
        old.subscribe([topic])
        eventually(lambda: old.poll(0.05) or old.assignment(), "an assignment")
        with consumer_of(bootstrap, group, group_instance_id="one") as new:
            new.subscribe([topic])
            eventually(lambda: new.poll(0.05) or new.assignment(), "an assignment")

            def fenced() -> bool:
                message = old.poll(0.05)
                return message is not None and message.error().code() == KafkaError._FATAL

            eventually(fenced, "the first is told that it is fenced")


def test_a_cooperative_group_takes_from_a_member_only_what_moves(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=4)
    lost: list[int] = []

    def note(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lost.extend(each.partition for each in partitions)
        consumer.incremental_unassign(partitions)

    with crew_of(bootstrap, group, topic, partition_assignment_strategy="cooperative-sticky") as crew:
        first = crew.join(on_revoke=note)
        crew.settle(4)
        crew.join()
        shares = crew.settle(2, 2)
        assert sorted(lost) == shares[1]
        crew.leave(first)
        crew.settle(4)


def test_a_member_gets_the_partitions_that_a_topic_gains(
    bootstrap: str, make_topic: MakeTopic, admin: AdminClient, group: str
) -> None:
    topic = make_topic(partitions=1)
    with crew_of(bootstrap, group, topic, topic_metadata_refresh_interval_ms=200) as crew:
        crew.join()
        crew.settle(1)
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S_MAX)
        crew.settle(3)


def test_a_pattern_subscribes_to_topics_that_come_later(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic, group: str
) -> None:
    stem = fresh_name("pattern")
    create_topic(admin, f"{stem}-a")
    make_topic()
    with consumer_of(bootstrap, group, topic_metadata_refresh_interval_ms=200) as consumer:
        consumer.subscribe([f"^{stem}-.*"])

        def has(*topics: str) -> bool:
            consumer.poll(0.05)
            return {each.topic for each in consumer.assignment()} == set(topics)

        eventually(lambda: has(f"{stem}-a"), "the first topic")
        create_topic(admin, f"{stem}-b")
        eventually(lambda: has(f"{stem}-a", f"{stem}-b"), "both topics")


def test_a_commit_by_a_member_that_was_thrown_out_is_refused(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    """A consumer that did not poll for so long that its place was given away."""
    topic = make_topic()
    send(bootstrap, topic, range(3))
    slow = {"max_poll_interval_ms": 6000, "session_timeout_ms": 6000}
    with consumer_of(bootstrap, group, **slow) as late:
        late.subscribe([topic])
        eventually(lambda: late.poll(0.2) is not None and late.assignment(), "an assignment")
        with consumer_of(bootstrap, group) as other:
            other.subscribe([topic])
            eventually(lambda: other.poll(0.2) or other.assignment(), "the other takes over")
            with pytest.raises(KafkaException) as refused:
                late.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert refused.value.args[0].code() in {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
