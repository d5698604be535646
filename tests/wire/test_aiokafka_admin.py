"""aiokafka's admin client, which speaks the oldest versions that Kafka still serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from confluent_kafka.admin import AdminClient
from topic_setup import describe, partition_count
from waits import WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]


@asynccontextmanager
async def client_of(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def run(steps: Coroutine[Any, Any, None]) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            await steps

    asyncio.run(with_deadline())


async def setting(client: AIOKafkaAdminClient, topic: str, name: str) -> str:
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: None})
    (answer,) = await client.describe_configs([asked])
    ((_, _, _, _, ((found, value, *_),)),) = answer.resources
    assert found == name
    return value


def test_a_topic_is_created_described_grown_and_deleted(bootstrap: str, admin: AdminClient, topic: str) -> None:
    async def steps() -> None:
        async with client_of(bootstrap) as client:
            created = await client.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
            assert [(name, code) for name, code, *_ in created.topic_errors] == [(topic, 0)]
            await asyncio.to_thread(eventually, lambda: partition_count(admin, topic) == 3, "3 partitions")
            assert topic in await client.list_topics()
            (described,) = await client.describe_topics([topic])
            assert sorted(partition["partition"] for partition in described["partitions"]) == [0, 1, 2]
            await client.create_partitions({topic: NewPartitions(4)})
            await asyncio.to_thread(eventually, lambda: partition_count(admin, topic) == 4, "4 partitions")
            await client.delete_topics([topic])
            await asyncio.to_thread(eventually, lambda: describe(admin, topic) is None, f"{topic} is gone")

    run(steps())


def test_the_cluster_and_settings_are_described_and_altered(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"retention.ms": "7000"})

    async def steps() -> None:
        async with client_of(bootstrap) as client:
            cluster = await client.describe_cluster()
            assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [bootstrap]
            assert await setting(client, topic, "retention.ms") == "7000"
            altered = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "8000"})
            await client.alter_configs([altered])
            async with asyncio.timeout(WAIT_S_MAX):
                while await setting(client, topic, "retention.ms") != "8000":
                    await asyncio.sleep(0.05)

    run(steps())


def test_deleted_records_move_the_beginning(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    here = TopicPartition(topic, 0)

    async def steps() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for n in range(5):
                await producer.send_and_wait(topic, b"%d" % n)
        async with client_of(bootstrap) as client:
            assert await client.delete_records({here: RecordsToDelete(before_offset=3)}) == {here: 3}
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            assert await consumer.beginning_offsets([here]) == {here: 3}

    run(steps())
