"""Transactions with kafka-python and with aiokafka: commit, abort, offsets, and a zombie that is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import ProducerFenced
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from memberships import send
from topic_setup import fresh_name
from waits import WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]
Result = TypeVar("Result")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return fresh_name(request.node.name)


def started(bootstrap: str, name: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=[bootstrap], transactional_id=name)
    producer.init_transactions()
    return producer


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    config = {"isolation_level": isolation, "fetch_max_wait_ms": 50}
    with closing(KafkaConsumer(bootstrap_servers=[bootstrap], **config)) as consumer:
        here = TopicPartition(topic, 0)
        consumer.assign([here])
        consumer.seek_to_beginning(here)
        end = consumer.end_offsets([here])[here]
        values: list[bytes] = []

        def at_end() -> bool:
            for batch in consumer.poll(timeout_ms=100).values():
                values.extend(record.value for record in batch)
            return consumer.position(here) >= end

        eventually(at_end, "the end")
        return values


def test_kafka_python_commits_and_aborts(bootstrap: str, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic()
    with closing(started(bootstrap, name)) as producer:
        for value, end in (
            (b"kept", producer.commit_transaction),
            (b"dropped", producer.abort_transaction),
            (b"kept too", producer.commit_transaction),
        ):
            producer.begin_transaction()
            producer.send(topic, value).get(WAIT_S_MAX) if value == b"dropped" else producer.send(topic, value)
            end()
    eventually(lambda: read(bootstrap, topic) == [b"kept", b"kept too"], "what was committed")
    assert read(bootstrap, topic, "read_uncommitted") == [b"kept", b"dropped", b"kept too"]


def test_kafka_python_sends_offsets_with_its_transaction(bootstrap: str, make_topic: MakeTopic, name: str) -> None:
    source, target = make_topic(), make_topic()
    here = TopicPartition(source, 0)
    with (
        closing(started(bootstrap, name)) as producer,
        closing(KafkaAdminClient(bootstrap_servers=[bootstrap])) as admin,
    ):
        for offset, end in ((3, producer.commit_transaction), (5, producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(target, b"%d" % offset).get(WAIT_S_MAX)
            producer.send_offsets_to_transaction({here: OffsetAndMetadata(offset, "", -1)}, name)
            end()
        eventually(lambda: read(bootstrap, target) == [b"3"], "the committed round")
        eventually(lambda: admin.list_group_offsets(name)[name][here].offset == 3, "the committed round's offset")


def test_kafka_python_is_fenced_by_its_successor(bootstrap: str, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic()
    zombie = started(bootstrap, name)
    zombie.begin_transaction()
    zombie.send(topic, b"of the zombie").get(WAIT_S_MAX)
    with closing(started(bootstrap, name)) as successor:
        successor.begin_transaction()
        successor.send(topic, b"of the successor")
        successor.commit_transaction()
    with pytest.raises(KafkaError):
        zombie.commit_transaction()
    zombie.close(timeout=0)
    eventually(lambda: read(bootstrap, topic) == [b"of the successor"], "only the successor's")


def run(steps: Coroutine[Any, Any, Result]) -> Result:
    async def with_deadline() -> Result:
        async with asyncio.timeout(WAIT_S_MAX):
            return await steps

    return asyncio.run(with_deadline())


def test_aiokafka_commits_aborts_and_sends_offsets(bootstrap: str, make_topic: MakeTopic, name: str) -> None:
    source, target = make_topic(), make_topic()
    send(bootstrap, source, range(10))

    async def steps() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        config = {"isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
        consumer = AIOKafkaConsumer(source, bootstrap_servers=bootstrap, group_id=name, fetch_max_wait_ms=50, **config)
        async with producer, consumer:
            for round_number in range(4):
                records = []
                while len(records) < 5:
                    found = await consumer.getmany(timeout_ms=200, max_records=5 - len(records))
                    records += [record for batch in found.values() for record in batch]
                at = AioTopicPartition(source, 0)
                await producer.begin_transaction()
                for record in records:
                    await producer.send(target, b"2 x " + record.value)
                await producer.send_offsets_to_transaction({at: records[-1].offset + 1}, name)
                if round_number % 2 == 0:
                    await producer.abort_transaction()
                    consumer.seek(at, records[0].offset)
                else:
                    await producer.commit_transaction()
            # Apache Kafka may answer a commit before it is written everywhere.
            while await consumer.committed(at) != 10:
                await asyncio.sleep(0.02)

    run(steps())
    eventually(lambda: read(bootstrap, target) == [b"2 x %d" % n for n in range(10)], "each once")


def test_aiokafka_is_fenced_by_its_successor(bootstrap: str, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic()

    async def steps() -> None:
        zombie = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        successor = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await zombie.start()
        try:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"of the zombie")
            async with successor, successor.transaction():
                await successor.send_and_wait(topic, b"of the successor")
            with pytest.raises(ProducerFenced):
                await zombie.commit_transaction()
        finally:
            await zombie.stop()

    run(steps())
    eventually(lambda: read(bootstrap, topic) == [b"of the successor"], "only the successor's")
