"""aiokafka: what it produces comes back as it was sent, and a batch that it resends is written once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgpack
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError
from compressions import AIOKAFKA_CODECS
from confluent_kafka.admin import AdminClient
from lost_answers import lost_answers
from murmur2 import partition_of
from topic_setup import partition_count
from waits import WAIT_S_MAX

MakeTopic = Callable[..., str]
Result = TypeVar("Result")


def run(steps: Coroutine[Any, Any, Result]) -> Result:
    async def with_deadline() -> Result:
        async with asyncio.timeout(WAIT_S_MAX):
            return await steps

    return asyncio.run(with_deadline())


@asynccontextmanager
async def consumer_of(bootstrap: str, **config: Any) -> AsyncIterator[AIOKafkaConsumer]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=50, **config) as consumer:
        yield consumer


async def take(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        for batch in (await consumer.getmany(timeout_ms=500, max_records=count - len(records))).values():
            records += batch
    return records


async def read(bootstrap: str, topic: str, count: int, partition: int = 0, **config: Any) -> list[ConsumerRecord]:
    async with consumer_of(bootstrap, **config) as consumer:
        here = TopicPartition(topic, partition)
        consumer.assign([here])
        await consumer.seek_to_beginning(here)
        return await take(consumer, count)


async def send_all(producer: AIOKafkaProducer, topic: str, values: list[bytes], **options: Any) -> None:
    """Sends without waiting for each answer, then waits for all of them."""
    await asyncio.gather(*[await producer.send(topic, value, **options) for value in values])


def test_a_record_comes_back_with_key_value_headers_and_timestamp(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    headers = [("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b"")]

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            sent = await producer.send_and_wait(
                topic, b"value", key=b"key", headers=headers, timestamp_ms=1_600_000_000_123
            )
        assert (sent.topic, sent.partition, sent.offset) == (topic, 0, 0)
        (record,) = await read(bootstrap, topic, 1)
        assert (record.key, record.value, record.headers) == (b"key", b"value", tuple(headers))
        assert (record.timestamp, record.timestamp_type) == (1_600_000_000_123, 0)

    run(steps())


def test_a_none_value_stays_none(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, None, key=b"tombstone")
            await producer.send_and_wait(topic, b"", key=None)
        records = await read(bootstrap, topic, 2)
        assert [(record.key, record.value) for record in records] == [(b"tombstone", None), (None, b"")]

    run(steps())


@pytest.mark.parametrize("codec", AIOKAFKA_CODECS)
def test_each_compression_comes_back_whole(bootstrap: str, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic()
    values = [b"%06d" % n * 20 for n in range(300)]
    compression = None if codec == "none" else codec

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=5) as producer:
            await send_all(producer, topic, values, headers=[("h", b"1")])
        records = await read(bootstrap, topic, 300, check_crcs=True)
        assert [record.value for record in records] == values

    run(steps())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_level_writes_the_records(bootstrap: str, make_topic: MakeTopic, acks: int | str) -> None:
    topic = make_topic()

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=acks) as producer:
            await send_all(producer, topic, [b"%d" % n for n in range(100)])
        records = await read(bootstrap, topic, 100)
        assert [record.value for record in records] == [b"%d" % n for n in range(100)]

    run(steps())


def test_keys_and_chosen_partitions_are_placed_as_java_does(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=7)
    keys = [b"a", b"ping", b"foobar", bytes(range(256)), *(b"%d" % n for n in range(30))]

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            placed = {key: (await producer.send_and_wait(topic, b"x", key=key)).partition for key in keys}
            assert placed == {key: partition_of(key, 7) for key in keys}
            assert (await producer.send_and_wait(topic, b"x", key=b"a", partition=6)).partition == 6

    run(steps())


def test_a_batch_whose_answer_was_lost_is_resent_and_written_once(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, acks="all") as producer:
            with lost_answers(producer) as requests:
                sent = [await producer.send_and_wait(topic, b"%d" % n) for n in range(5)]
            assert len(requests) == 10
            # The answer to a duplicate carries the offset of what was written the first time.
            assert [metadata.offset for metadata in sent] == [0, 1, 2, 3, 4]
            await producer.send_and_wait(topic, b"last")
        records = await read(bootstrap, topic, 6)
        assert [record.value for record in records] == [b"0", b"1", b"2", b"3", b"4", b"last"]

    run(steps())


def test_an_idempotent_producer_writes_each_record_once_and_in_order(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            for partition in (0, 1):
                await send_all(producer, topic, [b"%d" % n for n in range(1000)], partition=partition)
        for partition in (0, 1):
            records = await read(bootstrap, topic, 1000, partition=partition)
            assert [(record.offset, int(record.value)) for record in records] == [(n, n) for n in range(1000)]

    run(steps())


def test_json_and_msgpack_serializers_round_trip(bootstrap: str, make_topic: MakeTopic) -> None:
    document = {"name": "Zoë", "n": [1, 2.5, None], "ok": True}
    codecs = [(lambda v: json.dumps(v).encode(), json.loads), (msgpack.dumps, msgpack.loads)]

    async def steps() -> None:
        for dumps, loads in codecs:
            topic = make_topic()
            async with AIOKafkaProducer(
                bootstrap_servers=bootstrap, key_serializer=str.encode, value_serializer=dumps
            ) as producer:
                await producer.send_and_wait(topic, document, key="ping")
            (record,) = await read(bootstrap, topic, 1, key_deserializer=bytes.decode, value_deserializer=loads)
            assert (record.key, record.value) == ("ping", document)

    run(steps())


def test_a_record_above_the_brokers_limit_is_refused_and_not_written(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"max.message.bytes": "2000"})

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_request_size=10_000_000) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"x" * 2001)
            assert (await producer.send_and_wait(topic, b"x" * 1000)).offset == 0

    run(steps())


def test_a_consumer_starts_at_the_offset_that_it_seeks(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    here = TopicPartition(topic, 0)

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
            await send_all(producer, topic, [b"%d" % n for n in range(100)])
        async with consumer_of(bootstrap) as consumer:
            consumer.assign([here])
            assert consumer.assignment() == {here}
            for offset in (37, 99, 0):
                consumer.seek(here, offset)
                record = await consumer.getone()
                assert (record.offset, record.value) == (offset, b"%d" % offset)
                assert await consumer.position(here) == offset + 1
            assert consumer.highwater(here) == 100

    run(steps())


def test_offsets_of_beginning_end_and_times_follow_what_is_written(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    here, base = TopicPartition(topic, 0), 1_600_000_000_000

    async def steps() -> None:
        async with consumer_of(bootstrap) as consumer:
            assert await consumer.beginning_offsets([here]) == await consumer.end_offsets([here]) == {here: 0}
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                for n in range(5):
                    await producer.send_and_wait(topic, b"x", timestamp_ms=base + 1000 * n)
            assert await consumer.beginning_offsets([here]) == {here: 0}
            assert await consumer.end_offsets([here]) == {here: 5}
            for timestamp, offset in {0: 0, base: 0, base + 1: 1, base + 3500: 4}.items():
                found = (await consumer.offsets_for_times({here: timestamp}))[here]
                assert (found.offset, found.timestamp) == (offset, base + 1000 * offset)
            assert await consumer.offsets_for_times({here: base + 5000}) == {here: None}

    run(steps())


def test_the_first_send_creates_a_topic(
    bootstrap: str, admin: AdminClient, topic: str, default_partitions: int
) -> None:
    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"first")

    run(steps())
    assert partition_count(admin, topic) == default_partitions


def test_without_a_broker_the_producer_does_not_start(unused_port: int) -> None:
    async def steps() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{unused_port}")
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
            await producer.start()
        await producer.stop()

    run(steps())
