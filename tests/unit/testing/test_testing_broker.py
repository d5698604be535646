"""The faults, each seen by a real client."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waits import WAIT_S_MAX, eventually

from headrace.core.errors import HeadraceError
from headrace.testing import Broker


@pytest.fixture
def broker(headrace_broker: Broker) -> Broker:
    return headrace_broker


def producer_of(broker: Broker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "log_level": 0, **settings})


def send(broker: Broker, topic: str, *values: bytes, **settings: Any) -> list[KafkaError | None]:
    producer = producer_of(broker, **settings)
    errors: list[KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S_MAX) == 0
    return errors


def read(broker: Broker, topic: str, count: int, **settings: Any) -> list[bytes | None]:
    given = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer({**given, **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [each.value() for each in consumer.consume(count, WAIT_S_MAX)]
    finally:
        consumer.close()


def make_topic(broker: Broker, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(WAIT_S_MAX)


def first_offset(broker: Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "offsets", "log_level": 0})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S_MAX)[0]
    finally:
        consumer.close()


def test_each_test_gets_a_broker_of_its_own(broker: Broker) -> None:
    assert send(broker, "t", b"a") == [None]
    assert read(broker, "t", 1) == [b"a"]


def test_and_so_does_the_next(broker: Broker) -> None:
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}).list_topics(
        timeout=WAIT_S_MAX
    )
    assert list(metadata.topics) == []


@pytest.mark.headrace(num_partitions=3, auto_create_topics_enable=True)
def test_a_marker_gives_settings(broker: Broker) -> None:
    send(broker, "t", b"a")
    assert (
        len(
            AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            .list_topics("t", WAIT_S_MAX)
            .topics["t"]
            .partitions
        )
        == 3
    )


def test_a_shared_broker_is_another_one(broker: Broker, headrace_shared_broker: Broker) -> None:
    assert headrace_shared_broker.running
    assert headrace_shared_broker.port != broker.port


def test_nothing_is_answered_while_it_is_paused_and_all_of_it_after(broker: Broker) -> None:
    make_topic(broker, "t")
    producer = producer_of(broker)
    done: list[KafkaError | None] = []
    broker.pause()
    assert broker.paused
    producer.produce("t", b"a", on_delivery=lambda error, _: done.append(error))
    assert producer.flush(0.3) == 1, "it was answered though the broker stands still"
    with socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S_MAX):
        pass  # as with SIGSTOP, the kernel still takes connections
    with pytest.raises(HeadraceError, match="paused"):
        broker.drop_connections()
    broker.resume()
    assert producer.flush(WAIT_S_MAX) == 0
    assert len(done) == 1


def test_what_was_acknowledged_is_there_after_a_kill(broker: Broker) -> None:
    make_topic(broker, "t")
    assert send(broker, "t", b"a", b"b") == [None, None]
    data = Path(broker.data)
    port = broker.port
    broker.kill()
    assert not broker.running
    assert broker.port == port
    assert not (data / ".kafka_cleanshutdown").exists(), "a kill is no clean stop"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=WAIT_S_MAX)
    broker.restart()
    assert broker.port == port
    assert read(broker, "t", 2) == [b"a", b"b"]


def test_what_was_only_in_memory_is_gone_after_a_kill(broker: Broker) -> None:
    """Requests that were read but never handled: the broker stood still when it was killed."""
    make_topic(broker, "t")
    send(broker, "t", b"a")
    producer = producer_of(broker)
    producer.list_topics("t", WAIT_S_MAX)
    errors: list[Any] = []
    broker.delay(60_000)
    producer.produce("t", b"lost", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(0.3) == 1
    broker.kill()

    def purged() -> bool:
        # Else it would be sent again. One purge may miss it: while it goes from one queue to the other it is in none.
        producer.purge()
        return producer.flush(0.1) == 0

    eventually(purged, "the record is given up")
    assert errors[0].code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
    broker.restart()
    assert send(broker, "t", b"b") == [None]
    assert read(broker, "t", 2) == [b"a", b"b"]


def test_a_client_goes_on_after_a_restart(broker: Broker) -> None:
    make_topic(broker, "t")
    producer = producer_of(broker)
    producer.produce("t", b"a")
    assert producer.flush(WAIT_S_MAX) == 0
    broker.restart()
    producer.produce("t", b"b")
    assert producer.flush(WAIT_S_MAX) == 0
    assert read(broker, "t", 2) == [b"a", b"b"]
    assert (Path(broker.data) / ".kafka_cleanshutdown").exists() is False, "it runs again"


def test_dropped_connections_are_made_again(broker: Broker) -> None:
    make_topic(broker, "t")
    with socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S_MAX) as link:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.list_topics(timeout=WAIT_S_MAX)
        assert broker.drop_connections() >= 1
        assert link.recv(1) == b""
    assert send(broker, "t", b"a") == [None]


def test_a_delay_makes_every_answer_late_until_its_end(broker: Broker) -> None:
    make_topic(broker, "t")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.list_topics(timeout=WAIT_S_MAX)
    with broker.delay(60_000):
        described = admin.describe_cluster()
        with pytest.raises(TimeoutError):
            described.result(0.1)

        def answered() -> bool:
            """A minute at a time, until the request was there before one of them passed."""
            broker.clock.advance(minutes=1)
            return described.done()

        eventually(answered, "the request is answered a minute later")
        assert len(described.result().nodes) == 1
    assert send(broker, "t", *[b"%d" % number for number in range(50)]) == [None] * 50


def test_delayed_requests_keep_their_order(broker: Broker) -> None:
    make_topic(broker, "t")
    values = [b"%d" % number for number in range(200)]
    producer = producer_of(broker, **{"batch.num.messages": 10, "enable.idempotence": False, "max.in.flight": 5})
    broker.delay(30)
    for value in values:
        producer.produce("t", value)
    producer.poll(0.1)
    broker.delay(0)  # those that are under way are not overtaken
    assert producer.flush(WAIT_S_MAX) == 0
    assert read(broker, "t", 200) == values


def test_a_client_tries_again_after_an_error_that_passes(broker: Broker) -> None:
    make_topic(broker, "t")
    failure = broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    assert send(broker, "t", b"a") == [None]
    assert failure.happened == 1
    assert read(broker, "t", 1) == [b"a"]


def test_a_client_is_told_an_error_that_does_not_pass(broker: Broker) -> None:
    make_topic(broker, "t")
    failure = broker.fail_next("produce", "TOPIC_AUTHORIZATION_FAILED")
    (error,) = send(broker, "t", b"a")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert failure.happened == 1
    assert send(broker, "t", b"b") == [None], "only the next one fails"


def test_a_request_can_fail_several_times_or_lose_its_connection(broker: Broker) -> None:
    make_topic(broker, "t")
    broken = broker.fail_next("Produce", "disconnect")
    assert send(broker, "t", b"a") == [None]
    assert broken.happened == 1
    refused = broker.fail_next("CreateTopics", "POLICY_VIOLATION", times=2)
    for _ in range(2):
        with pytest.raises(KafkaException) as raised:
            make_topic(broker, "u")
        assert raised.value.args[0].code() == KafkaError.POLICY_VIOLATION
    make_topic(broker, "u")
    assert refused.happened == 2


def test_a_fetch_and_a_group_can_be_refused(broker: Broker) -> None:
    make_topic(broker, "t")
    send(broker, "t", b"a")
    fetch = broker.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert read(broker, "t", 1) == [b"a"]
    assert fetch.happened == 2
    coordinator = broker.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")
    commit = broker.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g2", "log_level": 0})
    try:
        with pytest.raises(KafkaException) as raised:
            consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()
    assert (coordinator.happened, commit.happened) == (1, 1)


def test_faults_that_have_not_happened_can_be_cleared(broker: Broker) -> None:
    make_topic(broker, "t")
    failure = broker.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED")
    broker.delay(10_000)
    broker.clear_faults()
    assert send(broker, "t", b"a") == [None]
    assert failure.happened == 0


@pytest.mark.parametrize(
    ("api", "error", "said"),
    [
        ("Prodcue", "NOT_COORDINATOR", "did you mean Produce"),
        ("Produce", "NOT_LEADER", "did you mean NOT_LEADER_OR_FOLLOWER"),
        (999, "NOT_COORDINATOR", "API 999"),
        ("Produce", 0, "0 is not an error"),
    ],
)
def test_a_wrong_name_is_said_where_it_was_written(broker: Broker, api: Any, error: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        broker.fail_next(api, error)


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_retention_happens_when_time_passes(broker: Broker) -> None:
    make_topic(broker, "t", **{"retention.ms": "3600000"})
    send(broker, "t", b"old")
    broker.clock.advance(minutes=50)
    assert first_offset(broker, "t") == 0
    broker.clock.advance(minutes=11)
    assert first_offset(broker, "t") == 1


def test_a_transaction_times_out_when_time_passes(broker: Broker) -> None:
    make_topic(broker, "t")
    producer = producer_of(broker, **{"transactional.id": "tx", "transaction.timeout.ms": 60_000})
    producer.init_transactions(WAIT_S_MAX)
    producer.begin_transaction()
    producer.produce("t", b"never")
    assert producer.flush(WAIT_S_MAX) == 0
    broker.clock.advance(minutes=2)
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S_MAX)
    assert send(broker, "t", b"next") == [None]
    assert read(broker, "t", 1, **{"isolation.level": "read_committed"}) == [b"next"]


@pytest.fixture
def member(broker: Broker) -> Iterator[Consumer]:
    make_topic(broker, "t")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "sessions",
            "session.timeout.ms": 45_000,
            "heartbeat.interval.ms": 15_000,
            "log_level": 0,
        }
    )
    yield consumer
    consumer.close()


def test_a_session_ends_when_time_passes(broker: Broker, member: Consumer) -> None:
    joined: list[int] = []
    member.subscribe(["t"], on_assign=lambda *_: joined.append(1))
    eventually(lambda: (member.poll(0.05), joined)[1], "the member has joined")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    assert len(admin.describe_consumer_groups(["sessions"])["sessions"].result(WAIT_S_MAX).members) == 1
    broker.clock.advance(seconds=46)
    assert len(admin.describe_consumer_groups(["sessions"])["sessions"].result(WAIT_S_MAX).members) == 0


def test_time_goes_forward_only(broker: Broker) -> None:
    with pytest.raises(ValueError, match="forward"):
        broker.clock.advance(seconds=-1)
    broker.clock.advance(days=1)
    assert broker.clock.ahead.days == 1


def test_a_broker_that_does_not_run_says_so() -> None:
    broker = Broker()
    with pytest.raises(HeadraceError, match="not running"):
        broker.kill()
    broker.start()
    broker.kill()
    data = Path(broker.data)
    with pytest.raises(HeadraceError, match="not running"):
        broker.drop_connections()
    broker.stop()
    assert not data.exists(), "its temporary directory goes with it"
