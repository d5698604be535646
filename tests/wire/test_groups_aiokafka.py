"""Classic groups with aiokafka: sharing, committing, going on, and its view of groups as an admin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from memberships import send
from topic_setup import fresh_name
from waits import SESSION_MS, WAIT_S_MAX

MakeTopic = Callable[..., str]
Result = TypeVar("Result")
QUICK = {
    "heartbeat_interval_ms": 100,
    "session_timeout_ms": SESSION_MS,
    "fetch_max_wait_ms": 50,
    "metadata_max_age_ms": 1000,
}


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return fresh_name(request.node.name)


def run(steps: Coroutine[Any, Any, Result]) -> Result:
    async def with_deadline() -> Result:
        async with asyncio.timeout(WAIT_S_MAX):
            return await steps

    return asyncio.run(with_deadline())


class Settled(ConsumerRebalanceListener):
    """Wakes whoever waits for the group to settle."""

    def __init__(self, changed: asyncio.Condition) -> None:
        self._changed = changed

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        pass

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def consumer_of(bootstrap: str, *topics: str, **config: Any) -> AsyncIterator[AIOKafkaConsumer]:
    fixed = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | QUICK
    async with AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, **(fixed | config)) as consumer:
        yield consumer


async def take(consumer: AIOKafkaConsumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        for batch in (await consumer.getmany(timeout_ms=200, max_records=count - len(values))).values():
            values += [record.value for record in batch]
    return values


def test_four_partitions_are_shared_and_handed_over(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic(partitions=4)

    async def steps() -> None:
        changed = asyncio.Condition()
        members: list[AIOKafkaConsumer] = []

        async def join() -> None:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **QUICK)
            consumer.subscribe([topic], listener=Settled(changed))
            members.append(consumer)
            await consumer.start()

        async def settle(*sizes: int) -> None:
            def settled() -> bool:
                shares = [member.assignment() for member in members]
                return sorted(map(len, shares)) == sorted(sizes) and len(set().union(*shares)) == 4

            async with changed:
                await changed.wait_for(settled)

        try:
            await join()
            await settle(4)
            await join()
            await settle(2, 2)
            await asyncio.gather(join(), join(), join())
            await settle(1, 1, 1, 1, 0)
            await members.pop(0).stop()
            await members.pop(0).stop()
            await members.pop(0).stop()
            await settle(2, 2)
        finally:
            for member in members:
                await member.stop()

    run(steps())


def test_a_group_goes_on_where_it_committed(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    here = TopicPartition(topic, 0)
    send(bootstrap, topic, range(6))

    async def steps() -> None:
        async with consumer_of(bootstrap, topic, group_id=group) as consumer:
            assert len(await take(consumer, 6)) == 6
            await consumer.commit({here: (2, "of two")})
            assert await consumer.committed(here) == 2
        async with consumer_of(bootstrap, topic, group_id=group) as consumer:
            assert await take(consumer, 4) == [b"2", b"3", b"4", b"5"]
        async with consumer_of(bootstrap, topic, group_id=group + "-second") as consumer:
            assert len(await take(consumer, 6)) == 6

    run(steps())


def test_offsets_are_committed_automatically(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    send(bootstrap, topic, range(6))

    async def steps() -> None:
        automatic = {"enable_auto_commit": True, "auto_commit_interval_ms": 50}
        async with consumer_of(bootstrap, topic, group_id=group, **automatic) as consumer:
            assert len(await take(consumer, 6)) == 6
            while await consumer.committed(TopicPartition(topic, 0)) != 6:
                await asyncio.sleep(0.02)

    run(steps())


def test_an_admin_lists_and_describes_groups_and_their_offsets(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    send(bootstrap, topic, range(6))

    async def steps() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            async with consumer_of(bootstrap, topic, group_id=group) as consumer:
                await take(consumer, 6)
                await consumer.commit()
                assert (group, "consumer") in await admin.list_consumer_groups()
                (described,) = await admin.describe_consumer_groups([group])
                (error, name, state, kind, *_) = described.groups[0]
                assert (error, name, state, kind) == (0, group, "Stable", "consumer")
            offsets = await admin.list_consumer_group_offsets(group)
            assert offsets[TopicPartition(topic, 0)].offset == 6
        finally:
            await admin.close()

    run(steps())
