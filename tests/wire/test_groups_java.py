"""Groups by both protocols with the Java consumer, and with confluent-kafka by the new one.

In the new protocol a member hears of a change when it heartbeats next, five seconds later by default. So these
groups all run at once, in the background, and each test waits for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from java import JavaTools
from memberships import consumer_of, crew_of, send, take
from topic_setup import create_topic, fresh_name
from waits import WAIT_S_MAX, eventually

pytestmark = pytest.mark.xdist_group("java")

JAVA = ("classic", "cooperative", "consumer", "migration", "regex", "admin")
SCENARIO_S_MAX = 3 * WAIT_S_MAX  # many steps, each with a wait of its own


def of_confluent_consumer(bootstrap: str, admin: AdminClient, topic: str, group: str) -> dict[str, Any]:
    """Join, rebalance, commit, leave, and go on."""
    seen: dict[str, Any] = {}
    with crew_of(bootstrap, group, topic, group_protocol="consumer") as crew:
        first = crew.join()
        seen["one"] = crew.settle(4)
        send(bootstrap, topic, range(8), partitions=4)
        seen["received"] = sorted(int(message.value()) for message in crew.receive(8))
        first.commit(asynchronous=False)
        crew.join()
        seen["two"] = sorted(map(len, crew.settle(2, 2)))
        crew.leave(first)
        seen["left"] = crew.settle(4)
    with consumer_of(bootstrap, group) as consumer:
        asked = [TopicPartition(topic, partition) for partition in range(4)]
        seen["committed"] = [each.offset for each in consumer.committed(asked, timeout=WAIT_S_MAX)]
    return seen


def of_confluent_regex(bootstrap: str, admin: AdminClient, topic: str, group: str) -> dict[str, Any]:
    create_topic(admin, f"{topic}-b")
    with consumer_of(bootstrap, group, group_protocol="consumer") as consumer:
        consumer.subscribe([f"^{topic}.*"])
        both = {topic, f"{topic}-b"}
        eventually(
            lambda: consumer.poll(0.1) or {each.topic for each in consumer.assignment()} == both,
            "both topics",
        )
        return {"topics": sorted({each.topic for each in consumer.assignment()})}


def of_confluent_migration(bootstrap: str, admin: AdminClient, topic: str, group: str) -> dict[str, Any]:
    """From classic to the new protocol and back, member by member, without a moment of no member."""
    seen: dict[str, Any] = {}

    def type_of() -> str:
        listed = admin.list_consumer_groups().result(WAIT_S_MAX).valid
        return next(each.type.name for each in listed if each.group_id == group)

    with crew_of(bootstrap, group, topic) as crew:
        old = crew.join()
        crew.settle(4)
        seen["before"] = type_of()
        new = crew.join(group_protocol="consumer")
        crew.settle(2, 2)
        seen["mixed"] = type_of()
        crew.leave(old)
        crew.settle(4)
        crew.join()
        crew.settle(2, 2)
        crew.leave(new)
        crew.settle(4)
        seen["after"] = type_of()
    return seen


CONFLUENT = {
    "confluent-consumer": of_confluent_consumer,
    "confluent-regex": of_confluent_regex,
    "confluent-migration": of_confluent_migration,
}


@pytest.fixture(scope="module")
def running(bootstrap: str, admin: AdminClient, java: JavaTools) -> Iterator[Callable[[str], Any]]:
    """Starts every group; `running("classic")` waits for one and returns (its topic, what was seen)."""
    topics = {name: fresh_name(name) for name in (*JAVA, *CONFLUENT)}
    for topic in topics.values():
        create_topic(admin, topic, partitions=4)

    with ThreadPoolExecutor(1 + len(CONFLUENT)) as pool:
        named = (f"{name}={topics[name]}" for name in JAVA)
        in_java = pool.submit(java.alone, "JavaGroups", bootstrap, *named, wait_s_max=SCENARIO_S_MAX)
        futures: dict[str, Future[Any]] = {
            name: pool.submit(scenario, bootstrap, admin, topics[name], f"{topics[name]}-group")
            for name, scenario in CONFLUENT.items()
        }

        def wait_for(name: str) -> tuple[str, Any]:
            if name in futures:
                return topics[name], futures[name].result(SCENARIO_S_MAX)
            ran = in_java.result(SCENARIO_S_MAX)
            assert ran.exit == 0, f"{ran.out}\n{ran.err}"
            return topics[name], [step for step in ran.objects if step.pop("scenario") == name]

        yield wait_for


@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_java_consumers_share_and_hand_over_partitions(running: Callable[[str], Any], protocol: str) -> None:
    _, steps = running(protocol)
    assert steps == [
        {"step": "one", "shares": [4]},
        {"step": "two", "shares": [2, 2]},
        {"step": "left", "shares": [4]},
        {"step": "committed", "offset": 3, "metadata": "of three"},
    ]


def test_java_consumers_move_a_group_to_the_new_protocol_and_back(running: Callable[[str], Any]) -> None:
    _, steps = running("migration")
    assert {step.pop("step"): step for step in steps} == {
        "classic": {"shares": [4]},
        "mixed": {"shares": [2, 2]},
        "mixed-type": {"type": "Consumer"},
        "consumer": {"shares": [4]},
        "mixed-again": {"shares": [2, 2]},
        "classic-again": {"shares": [4]},
        "classic-type": {"type": "Classic"},
        "committed": {"offset": 3},
    }


def test_a_java_consumer_subscribes_by_a_regular_expression_that_the_broker_resolves(
    running: Callable[[str], Any],
) -> None:
    topic, steps = running("regex")
    assert steps == [{"step": "regex", "topics": [topic, f"{topic}-b"]}]


def test_the_java_admin_client_lists_describes_alters_and_deletes_groups(running: Callable[[str], Any]) -> None:
    _, steps = running("admin")
    assert {step.pop("step"): step for step in steps} == {
        "one": {"shares": [4]},
        "listed": {"state": "Stable", "type": "Classic", "protocol": "consumer"},
        "described": {
            "state": "Stable",
            "assignor": "range",
            "client": "the-client",
            "host": "/127.0.0.1",
            "instance": "one",
            "partitions": 4,
        },
        "offsets": {"offsets": {"0": 3, "1": 4}},
        "refused": {
            "alter": "UnknownMemberIdException",
            "deleteOffsets": "GroupSubscribedToTopicException",
            "delete": "GroupNotEmptyException",
        },
        "removed": {"state": "Empty"},
        "altered": {"offsets": {"0": 1}},
        "deleted": {"describe": "GroupIdNotFoundException", "delete": "GroupIdNotFoundException"},
    }


def test_confluent_consumers_of_the_new_protocol_share_and_hand_over_partitions(
    running: Callable[[str], Any],
) -> None:
    _, seen = running("confluent-consumer")
    assert seen == {
        "one": [[0, 1, 2, 3]],
        "received": list(range(8)),
        "two": [2, 2],
        "left": [[0, 1, 2, 3]],
        "committed": [2, 2, 2, 2],
    }


def test_a_confluent_consumer_subscribes_by_a_regular_expression_that_the_broker_resolves(
    running: Callable[[str], Any],
) -> None:
    topic, seen = running("confluent-regex")
    assert seen == {"topics": [topic, f"{topic}-b"]}


def test_confluent_consumers_move_a_group_to_the_new_protocol_and_back(running: Callable[[str], Any]) -> None:
    _, seen = running("confluent-migration")
    assert seen == {"before": "CLASSIC", "mixed": "CONSUMER", "after": "CLASSIC"}


def test_what_a_group_of_one_protocol_committed_one_of_the_other_goes_on_with(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    """Between the two the group is empty: the way that a group is usually moved."""
    create_topic(admin, topic)
    send(bootstrap, topic, range(6))
    for protocol, expected in (("classic", ["0", "1"]), ("consumer", ["2", "3"]), ("classic", ["4", "5"])):
        with consumer_of(bootstrap, f"{topic}-group", group_protocol=protocol) as consumer:
            consumer.subscribe([topic])
            assert take(consumer, 2) == expected
            last = TopicPartition(topic, 0, int(expected[-1]) + 1)
            consumer.commit(offsets=[last], asynchronous=False)
