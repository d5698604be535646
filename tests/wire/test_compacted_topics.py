"""Compacted topics, as clients see them: of each key the last record, at its offset, and nothing that was aborted.

With --bootstrap the same runs against Apache Kafka: the broker is told to look for dirty logs all the time.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
import raw
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from headrace_process import HeadraceProcess
from java import JavaTools
from raw import Client, ErrorCode
from topic_setup import create_topic, delete_topic, fresh_name
from waits import WAIT_S_MAX, eventually

from headrace.protocol.batch import read_header

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "internal.segment.bytes": "20000",
    "segment.ms": "100",
    "file.delete.delay.ms": "100",
}
DUMP = "org.apache.kafka.tools.DumpLogSegments"


class Seen(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@pytest.fixture(scope="module")
def eager(bootstrap: str) -> Iterator[str]:
    """The broker looks for dirty logs ten times a second."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    set_backoff(admin, "100")
    yield bootstrap
    set_backoff(admin, None)


def set_backoff(admin: AdminClient, value: str | None) -> None:
    (node,) = admin.describe_cluster().result(WAIT_S_MAX).nodes
    operation = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
    entry = ConfigEntry("log.cleaner.backoff.ms", value or "", incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node.id), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S_MAX)


def alter(admin: AdminClient, topic: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S_MAX)


@pytest.fixture
def compacted(eager: str, request: pytest.FixtureRequest) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": eager})
    name = fresh_name(request.node.name)
    create_topic(admin, name, config=COMPACT)
    yield name
    delete_topic(admin, name)


def producer(bootstrap: str, **more: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, **more})


def flush(each: Producer) -> None:
    assert each.flush(WAIT_S_MAX) == 0


def roll(bootstrap: str, topic: str, count: int = 2) -> None:
    """A segment is sealed by the first record that comes when it is old enough; the active one is never compacted."""
    other = producer(bootstrap)
    for _ in range(count):
        time.sleep(0.15)
        other.produce(topic, b"", key=b"roll")
        flush(other)


def read(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[Seen]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen = []
    deadline = time.monotonic() + WAIT_S_MAX
    try:
        while True:
            assert time.monotonic() < deadline, f"{topic}: its end was not reached"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return seen
            headers = tuple(message.headers() or ())
            seen.append(Seen(message.offset(), message.key(), message.value(), headers))
    finally:
        consumer.close()


def compacted_to(bootstrap: str, topic: str, count: int, isolation: str = "read_uncommitted") -> list[Seen]:
    """What is left, once no more than `count` records other than the rolling ones are."""

    def look() -> list[Seen]:
        found = [each for each in read(bootstrap, topic, isolation) if each.key != b"roll"]
        return found if len(found) <= count else []

    return eventually(look, f"{topic} is compacted to {count} records")


def test_of_each_key_the_last_record_stays_at_its_offset(eager: str, compacted: str) -> None:
    sent: list[Seen] = []

    def delivered(error: object, message: object) -> None:
        assert error is None
        sent.append(Seen(message.offset(), message.key(), message.value(), (("n", message.value()[:4]),)))

    for codec in CODECS:
        each = producer(eager, **{"compression.type": codec})
        for number in range(200):
            value = b"%04d" % number + codec.encode() * 20
            each.produce(
                compacted, value, key=b"key-%d" % (number % 20), headers=[("n", value[:4])], callback=delivered
            )
            if number % 40 == 39:
                flush(each)
    roll(eager, compacted)
    found = compacted_to(eager, compacted, 20)
    last = {seen.key: seen for seen in sorted(sent)}
    assert found == sorted(last.values())


def test_a_tombstone_takes_its_key_away_and_then_goes_itself(eager: str, compacted: str) -> None:
    admin = AdminClient({"bootstrap.servers": eager})
    each = producer(eager)
    for key in (b"kept", b"gone"):
        each.produce(compacted, b"value", key=key)
    each.produce(compacted, None, key=b"gone")
    flush(each)
    roll(eager, compacted)
    found = compacted_to(eager, compacted, 2)
    assert [(seen.offset, seen.key, seen.value) for seen in found] == [(0, b"kept", b"value"), (2, b"gone", None)]
    alter(admin, compacted, "delete.retention.ms", "0")
    time.sleep(0.2)
    # It keeps the horizon of a day that it was given: only one that comes now goes at once.
    each.produce(compacted, None, key=b"kept")
    flush(each)
    roll(eager, compacted)
    roll(eager, compacted)

    def is_gone() -> bool:
        roll(eager, compacted, 1)
        return [seen.key for seen in read(eager, compacted) if seen.key != b"roll"] == [b"gone"]

    eventually(is_gone, "the tombstone without a day's grace is gone")


def test_of_an_aborted_transaction_nothing_stays(eager: str, compacted: str) -> None:
    each = producer(eager, **{"transactional.id": fresh_name("compaction")})
    each.init_transactions(WAIT_S_MAX)
    for number in range(30):
        each.begin_transaction()
        for key in range(3):
            each.produce(compacted, b"%d" % number, key=b"key-%d" % key)
        if number % 3 == 0:
            each.commit_transaction(WAIT_S_MAX)
        else:
            each.abort_transaction(WAIT_S_MAX)
    roll(eager, compacted)
    found = compacted_to(eager, compacted, 3)
    assert [(seen.key, seen.value) for seen in found] == [(b"key-%d" % key, b"27") for key in range(3)]
    committed = [seen for seen in read(eager, compacted, "read_committed") if seen.key != b"roll"]
    assert committed == found
    each.begin_transaction()
    each.produce(compacted, b"again", key=b"key-0")
    each.commit_transaction(WAIT_S_MAX)
    assert (b"key-0", b"again") in [seen[1:3] for seen in read(eager, compacted, "read_committed")]


def test_an_idempotent_producer_goes_on_after_its_records_are_gone(eager: str, compacted: str) -> None:
    with Client(eager) as client:
        topic = raw.Topic(compacted, topic_id(client, compacted))
        identity = client.call(raw.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1000})
        first = (identity.producer_id, identity.producer_epoch, 0)
        records = [raw.Record(b"old", b"key", raw.now_ms())]
        assert raw.produce(client, topic, raw.batch(records, producer=first)).error_code == ErrorCode.none
    each = producer(eager)
    each.produce(compacted, b"new", key=b"key")
    flush(each)
    roll(eager, compacted)
    assert [(seen.offset, seen.value) for seen in compacted_to(eager, compacted, 1)] == [(1, b"new")]
    with Client(eager) as client:
        duplicate = raw.produce(client, topic, raw.batch(records, producer=first))
        assert (duplicate.error_code, duplicate.base_offset) == (ErrorCode.none, 0)
        gap = raw.produce(client, topic, raw.batch(records, producer=(*first[:2], 2)))
        assert gap.error_code == ErrorCode.out_of_order_sequence_number
        assert raw.produce(client, topic, raw.batch(records, producer=(*first[:2], 1))).error_code == ErrorCode.none


def topic_id(client: Client, name: str) -> object:
    (found,) = client.call(raw.METADATA, 12, {"topics": [{"topic_id": None, "name": name}]}).topics
    return found.topic_id


@pytest.mark.parametrize("codec", [raw.NONE, raw.GZIP])
def test_a_record_without_a_key_is_refused_and_named(bootstrap: str, codec: int) -> None:
    with Client(bootstrap) as client:
        topic = raw.make_topic(client, **{"cleanup.policy": "compact,delete"})
        now_ms = raw.now_ms()
        keys = (b"k", None, b"", None, None, None)
        answer = raw.produce(client, topic, raw.batch([raw.Record(b"v", key, now_ms) for key in keys], codec=codec))
        why = f"Compacted topic cannot accept message without key in topic partition {topic.name}-0"
        assert answer.error_code == ErrorCode.invalid_record
        assert [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors] == [
            (at, why) for at in (1, 3, 4, 5)
        ]
        named = ", ".join(f"RecordError(batchIndex={at}, message='{why}')" for at in (1, 3, 4))
        assert answer.error_message == (
            "One or more records have been rejected due to 4 record errors in total, and only showing the first"
            f" three errors at most: [{named}]"
        )
        assert raw.list_offset(client, topic) == 0


@pytest.mark.xdist_group("java")
def test_apache_kafka_reads_the_files_without_a_complaint(
    is_headrace: bool, java: JavaTools, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not is_headrace:
        pytest.skip("Apache Kafka wrote its files itself")
    data = str(tmp_path_factory.mktemp("compacted") / "data")
    topic = "compacted"
    with HeadraceProcess(data, {"log.cleaner.backoff.ms": "100"}) as broker:
        create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), topic, config=COMPACT)
        test_of_each_key_the_last_record_stays_at_its_offset(broker.bootstrap, topic)
        each = producer(broker.bootstrap, **{"transactional.id": "files"})
        each.init_transactions(WAIT_S_MAX)
        for number in range(6):
            each.begin_transaction()
            each.produce(topic, b"t", key=b"txn")
            each.produce(topic, None, key=b"key-%d" % number)
            each.abort_transaction(WAIT_S_MAX) if number % 2 else each.commit_transaction(WAIT_S_MAX)
        roll(broker.bootstrap, topic)
        before = {seen.key: seen for seen in read(broker.bootstrap, topic, "read_committed")}
        compacted_to(broker.bootstrap, topic, 21, "read_committed")
    path = os.path.join(data, f"{topic}-0")
    files = sorted(os.path.join(path, name) for name in os.listdir(path))
    complaints = re.compile(r"mismatch|missing|out of order|invalid|isvalid: false|corrupt|exception", re.IGNORECASE)
    for suffix, options in {
        ".log": ("--deep-iteration", "--print-data-log"),
        ".index": (),
        ".timeindex": (),
        ".txnindex": (),
    }.items():
        chosen = [file for file in files if file.endswith(suffix)]
        if chosen:
            printed = java.ok(DUMP, *options, "--files", ",".join(chosen)).out
            complaint = complaints.search(printed)
            assert complaint is None, printed[max(0, complaint.start() - 500) : complaint.end() + 500]
            assert suffix != ".log" or "deleteHorizonMs: OptionalLong[" in printed
    with open(os.path.join(data, "cleaner-offset-checkpoint")) as checkpoint:
        version, count, *entries = checkpoint.read().splitlines()
    assert (version, count) == ("0", str(len(entries)))
    assert any(entry.startswith(f"{topic} 0 ") for entry in entries)
    with HeadraceProcess(data, {"log.cleaner.backoff.ms": "100"}) as broker:
        assert {seen.key: seen for seen in read(broker.bootstrap, topic, "read_committed")} == before


def test_what_stays_of_each_batch_is_what_apache_kafka_leaves_of_it(eager: str) -> None:
    start_ms = raw.now_ms() - 5000
    # Compacted only when all of it is written: a round in between could leave other batches empty.
    config = {**COMPACT, "cleanup.policy": "delete", "internal.segment.bytes": "1000", "segment.ms": "3600000"}
    with Client(eager) as client:
        topic = raw.make_topic(client, **config)
        init = {"transactional_id": None, "transaction_timeout_ms": 1000}
        producers = [client.call(raw.INIT_PRODUCER_ID, 4, init).producer_id for _ in range(3)]
        sequences = [0, 0, 0]
        for who, records in (
            (0, [(b"a", b"1", 0), (b"b", b"1", 5), (b"c", b"1", 9)]),
            (0, [(b"a", b"2", 3), (b"b", None, 7), (b"d", b"1", 2)]),
            (1, [(b"a", b"3", 3)]),
            (-1, [(b"e", b"x" * 400, 8), (b"a", b"4", 30)]),
            (2, [(b"f", b"x" * 400, 8), (b"a", b"4", 30)]),
            (0, [(b"c", None, 12), (b"g", None, 1)]),
            (-1, [(b"h", b"x" * 700, 12)]),
            (1, [(b"h", b"y" * 700, 12), (b"g", b"9", 13)]),
            (-1, [(b"last", b"y" * 700, 12)]),
            (-1, [(b"last", b"y" * 700, 12)]),
        ):
            identity = (producers[who], 0, sequences[who]) if who >= 0 else (-1, -1, -1)
            sequences[who] += len(records) if who >= 0 else 0
            batch = raw.batch(
                [raw.Record(v, k, start_ms + ms, (("h", b"1"),)) for k, v, ms in records], producer=identity
            )
            assert raw.produce(client, topic, batch).error_code == ErrorCode.none
        alter(AdminClient({"bootstrap.servers": eager}), topic.name, "cleanup.policy", "compact")

        def left() -> list[tuple[object, ...]]:
            found, offset = [], 0
            while batches := raw.batches(raw.fetch(client, topic, offset=offset).records):
                for batch in batches:
                    header = read_header(batch.raw)
                    offset = header.last_offset + 1
                    horizon = header.attributes & raw.DELETE_HORIZON
                    stamp = None if horizon else header.base_timestamp - start_ms
                    who = producers.index(header.producer_id) if header.producer_id >= 0 else -1
                    records = [(each.offset, each.key, each.timestamp - start_ms) for each in batch.records()]
                    largest = header.max_timestamp - start_ms
                    # Headrace keeps the last batch of each segment, if need be empty: see log/compaction/filter.
                    if records or who >= 0:
                        found.append((header.base_offset, header.last_offset, stamp, largest, who, records))
            return found

        expected = [
            (3, 5, None, 7, 0, [(4, b"b", 7), (5, b"d", 2)]),
            (7, 8, 8, 8, -1, [(7, b"e", 8)]),
            (9, 10, 8, 30, 2, [(9, b"f", 8), (10, b"a", 30)]),
            (11, 12, None, 12, 0, [(11, b"c", 12)]),
            (14, 15, 12, 13, 1, [(14, b"h", 12), (15, b"g", 13)]),
            (16, 16, 12, 12, -1, [(16, b"last", 12)]),
            (17, 17, 12, 12, -1, [(17, b"last", 12)]),
        ]
        with suppress(AssertionError):
            eventually(lambda: left() == expected, "it is compacted")
        assert left() == expected


def test_acknowledged_values_survive_kill_9_while_logs_are_compacted(
    is_headrace: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not is_headrace:
        pytest.skip("kills the broker")
    data = str(tmp_path_factory.mktemp("killed") / "data")
    topic, settings = "killed", {"log.cleaner.backoff.ms": "10", "log.flush.offset.checkpoint.interval.ms": "300"}
    acknowledged: dict[bytes, int] = {}
    told: list[bytes] = []

    def delivered(error: object, message: object) -> None:
        if error is None:
            told.append(message.key())
            acknowledged[message.key()] = max(acknowledged.get(message.key(), -1), int(message.value()[:8]))

    def compacted_until() -> str:
        """How far the logs are compacted: the broker writes it down after each compaction."""
        with suppress(FileNotFoundError), open(os.path.join(data, "cleaner-offset-checkpoint")) as file:
            return file.read()
        return ""

    number = 0
    for round in range(4):
        broker = HeadraceProcess(data, settings)
        if not round:
            create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), topic, config=COMPACT)
        each = producer(broker.bootstrap, **{"compression.type": CODECS[round], "log_level": 0})
        # Several segments, every key among them, and until the log was compacted: the next compaction is under way.
        enough, before = len(told) + 2000 + 370 * round, compacted_until()
        deadline = time.monotonic() + WAIT_S_MAX
        while len(told) < enough or compacted_until() == before:
            assert time.monotonic() < deadline, f"{len(told)} acknowledged, compacted until {compacted_until()!r}"
            for _ in range(50):
                number += 1
                each.produce(topic, b"%08d" % number + b"x" * 200, key=b"key-%d" % (number % 37), callback=delivered)
            each.poll(0.01)
        broker.kill()  # and waits: one that is inside a flush holds its directory until that has ended
        each.purge()
        each.flush(1.0)
    with HeadraceProcess(data, settings) as broker:
        found = read(broker.bootstrap, topic)
        assert [seen.offset for seen in found] == sorted({seen.offset for seen in found})
        last = {seen.key: int(seen.value[:8]) for seen in found}
        assert all(last[key] >= value for key, value in acknowledged.items())
        roll(broker.bootstrap, topic)
        assert len(compacted_to(broker.bootstrap, topic, 37)) == 37
    path = os.path.join(data, f"{topic}-0")
    assert not [name for name in os.listdir(path) if name.endswith((".cleaned", ".swap"))]
