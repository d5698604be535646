"""Consumers of one group, polled in turn until the group has settled as a test expects.

The members are confluent-kafka's; a heartbeat every 100 ms lets them hear of a rebalance at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from waits import SESSION_MS, WAIT_S_MAX

OnRevoke = Callable[[Consumer, list[TopicPartition]], None]
QUICK = {"heartbeat.interval.ms": 100, "session.timeout.ms": SESSION_MS, "fetch.wait.max.ms": 50}
FIXED = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 1000}


def consumer_of(bootstrap: str, group: str, **config: Any) -> closing[Consumer]:
    """Closing it leaves the group."""
    own = {name if name == "log_level" else name.replace("_", "."): value for name, value in config.items()}
    quick = {} if own.get("group.protocol") == "consumer" else QUICK
    return closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group} | FIXED | quick | own))


class Crew:
    """Members of one group that subscribe to one topic."""

    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any) -> None:
        self.group, self.topic = group, topic
        self.members: list[Consumer] = []
        self.received: list[Message] = []
        self._bootstrap, self._config, self._stack = bootstrap, config, ExitStack()

    def join(self, count: int = 1, *, on_revoke: OnRevoke | None = None, **config: Any) -> Consumer:
        """The last of them."""
        for _ in range(count):
            opened = consumer_of(self._bootstrap, self.group, **(self._config | config))
            member = self._stack.enter_context(opened)
            member.subscribe([self.topic], **({"on_revoke": on_revoke} if on_revoke else {}))
            self.members.append(member)
        return self.members[-1]

    def leave(self, member: Consumer) -> None:
        self.members.remove(member)
        member.close()

    def poll(self) -> None:
        for member in self.members:
            message = member.poll(0.01)
            if message is not None and message.error() is None:
                self.received.append(message)

    def shares(self) -> list[list[int]]:
        """Which partitions each member has, in the order in which they joined."""
        return [sorted(each.partition for each in member.assignment()) for member in self.members]

    def settle(self, *sizes: int, wait_s_max: float = WAIT_S_MAX) -> list[list[int]]:
        """Polls until the members have so many partitions each, and every partition one owner."""
        expected = sorted(sizes)

        def settled() -> bool:
            shares = self.shares()
            owned = [partition for share in shares for partition in share]
            return sorted(map(len, shares)) == expected and sorted(owned) == list(range(sum(sizes)))

        self.until(settled, lambda: f"shares of {expected}; they are {self.shares()}", wait_s_max)
        return self.shares()

    def until(self, condition: Callable[[], bool], what: Callable[[], str], wait_s_max: float = WAIT_S_MAX) -> None:
        deadline = time.monotonic() + wait_s_max
        while not condition():
            assert time.monotonic() < deadline, f"not within {wait_s_max:g} s: {what()}"
            self.poll()

    def receive(self, count: int) -> list[Message]:
        self.until(lambda: len(self.received) >= count, lambda: f"{count} messages; {len(self.received)} came")
        return self.received

    def close(self) -> None:
        self._stack.close()


@contextmanager
def crew_of(bootstrap: str, group: str, topic: str, **config: Any) -> Iterator[Crew]:
    crew = Crew(bootstrap, group, topic, **config)
    try:
        yield crew
    finally:
        crew.close()


def send(bootstrap: str, topic: str, values: Iterable[object], partitions: int = 1) -> None:
    """The values in turn to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, str(value), partition=number % partitions)
    assert producer.flush(WAIT_S_MAX) == 0


def take(consumer: Consumer, count: int) -> list[str]:
    """The next values; fewer at the deadline, which the caller's comparison then shows."""
    found: list[str] = []
    deadline = time.monotonic() + WAIT_S_MAX
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), timeout=0.5):
            assert message.error() is None, message.error()
            found.append(message.value().decode())
    return found
