"""What a tool that reads in a group commits: its position in every partition that it was given, as Java's consumer."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from headrace_cli import Cli
from memberships import crew_of
from records import committed, send
from tool_process import Running, ok
from waits import WAIT_MS_MAX, WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]
CONSUMER = "kafka-console-consumer.sh"
OFTEN = ("--consumer-property", "auto.commit.interval.ms=100")
NEVER = ("--consumer-property", "auto.commit.interval.ms=3600000")  # only when partitions are given up
COOPERATIVE = "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@pytest.fixture
def here(bootstrap: str) -> tuple[str, str]:
    return ("--bootstrap-server", bootstrap)


def await_positions(bootstrap: str, group: str, topic: str, wanted: dict[int, int]) -> None:
    def stands() -> bool:
        return committed(bootstrap, group, topic, len(wanted)) == wanted

    eventually(stands, f"{group} stands at {wanted}")


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ((), signal.SIGTERM),
        ((), signal.SIGINT),
        ((COOPERATIVE,), signal.SIGTERM),
        (("group.protocol=consumer",), signal.SIGTERM),
        (("group.instance.id=it",), signal.SIGTERM),
    ],
    ids=["SIGTERM", "SIGINT", "cooperative", "consumer-protocol", "static-member"],
)
def test_what_is_written_while_a_group_is_away_is_read_in_every_partition(
    bootstrap: str,
    here: tuple[str, str],
    make_topic: MakeTopic,
    group: str,
    settings: tuple[str, ...],
    number: signal.Signals,
) -> None:
    topic = make_topic(partitions=3)
    read = (*here, "--topic", topic, "--group", group, *OFTEN)
    read += tuple(word for setting in settings for word in ("--consumer-property", setting))
    with Running(CONSUMER, *read) as first:
        await_positions(bootstrap, group, topic, {0: 0, 1: 0, 2: 0})  # while it runs
        send(bootstrap, topic, ["one"], key="k1")
        first.read_until("one\n")
        assert first.end(number) == 128 + number
    for key in ("k1", "k2", "k3", "k4", "k5", "k6"):
        send(bootstrap, topic, [key], key=key)
    again = ok(CONSUMER, *read, "--max-messages", 6, "--timeout-ms", WAIT_MS_MAX)
    assert sorted(again.lines) == ["k1", "k2", "k3", "k4", "k5", "k6"]


def test_what_was_fetched_and_not_printed_is_not_passed_over(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        send(bootstrap, topic, [f"{partition}-{number}" for number in range(10)], partition=partition)
    read = (*here, "--topic", topic, "--group", group, "--timeout-ms", WAIT_MS_MAX)
    (first,) = ok(CONSUMER, *read, "--from-beginning", "--max-messages", 1).lines
    partition, number = first.split("-")
    assert number == "0"
    assert committed(bootstrap, group, topic, 3) == {0: 0, 1: 0, 2: 0} | {int(partition): 1}
    rest = ok(CONSUMER, *read, "--max-messages", 29).lines  # not from the beginning: the group has a place everywhere
    assert sorted([first, *rest]) == sorted(f"{partition}-{number}" for partition in range(3) for number in range(10))


def test_nothing_is_committed_when_the_user_says_so(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic, group: str, cli: Cli
) -> None:
    topic = make_topic(partitions=3)
    send(bootstrap, topic, ["x"])
    read = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", 1, "--timeout-ms", WAIT_MS_MAX)
    assert ok(CONSUMER, *here, *read, "--consumer-property", "enable.auto.commit=false").lines == ["x"]
    assert cli.ok("consume", topic, "-g", group, "-X", "enable.auto.commit=false") == "x\n"
    assert committed(bootstrap, group, topic, 3) == {}


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_position_is_behind_the_markers_of_transactions(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic, group: str, level: str
) -> None:
    topic = make_topic(partitions=2)
    producer = Producer({"log_level": 0, "bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S_MAX)
    producer.begin_transaction()
    producer.produce(topic, "kept", partition=0)
    producer.commit_transaction(WAIT_S_MAX)
    read = (*here, "--topic", topic, "--group", group, "--isolation-level", level)
    assert ok(CONSUMER, *read, "--from-beginning", "--max-messages", 1, "--timeout-ms", WAIT_MS_MAX).lines == ["kept"]
    assert committed(bootstrap, group, topic, 2) == {0: 2, 1: 0}
    with Running(CONSUMER, *read, *OFTEN):
        producer.begin_transaction()
        producer.produce(topic, "dropped", partition=1)
        producer.flush(WAIT_S_MAX)
        producer.abort_transaction(WAIT_S_MAX)
        await_positions(bootstrap, group, topic, {0: 2, 1: 2})


@pytest.mark.parametrize(
    ("setting", "joining"),
    [
        ("client.id=eager", {}),
        (COOPERATIVE, {"partition_assignment_strategy": "cooperative-sticky"}),
        ("group.protocol=consumer", {"group_protocol": "consumer"}),
    ],
    ids=["eager", "cooperative", "consumer-protocol"],
)
def test_the_position_in_a_partition_that_is_taken_away_is_committed(
    bootstrap: str,
    here: tuple[str, str],
    make_topic: MakeTopic,
    group: str,
    cli: Cli,
    setting: str,
    joining: dict[str, str],
) -> None:
    topic = make_topic(partitions=2)
    for partition in range(2):
        send(bootstrap, topic, ["before the group"], partition=partition)
    read = (*here, "--topic", topic, "--group", group, *NEVER, "--consumer-property", setting)
    with Running(CONSUMER, *read) as reader:
        eventually(lambda: shares(cli, group) == [2], "the reader has both partitions")
        with crew_of(bootstrap, group, topic, **joining) as crew:
            crew.join()
            crew.until(lambda: len(crew.shares()[0]) == 1, lambda: f"a share of one; it is {crew.shares()}")
            (other,) = crew.shares()[0]
            assert committed(bootstrap, group, topic, 2)[other] == 1
        assert reader.end(signal.SIGTERM) == 143
    assert reader.out == ""
    assert committed(bootstrap, group, topic, 2) == {0: 1, 1: 1}


def shares(cli: Cli, group: str) -> list[int]:
    """How many partitions each member has."""
    code, out, _ = cli.run("group", "describe", group, "--json")
    return [] if code else [len(each["partitions"]) for each in json.loads(out)["members"]]


def test_every_reader_commits_where_it_read_nothing(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic, group: str, cli: Cli
) -> None:
    topic = make_topic(partitions=3)
    send(bootstrap, topic, ["x", "y"], partition=1)
    whole = {0: 0, 1: 2, 2: 0}

    def positions(name: str) -> dict[int, int]:
        return committed(bootstrap, f"{group}-{name}", topic, 3)

    assert sorted(cli.ok("consume", topic, "-g", f"{group}-consume").split()) == ["x", "y"]
    assert positions("consume") == whole
    assert cli.ok("consume", topic, "-g", f"{group}-limit", "--limit", 1) == "x\n"
    assert positions("limit") == whole | {1: 1}
    read = (*here, "--topic", topic)
    ok("kafka-consumer-perf-test.sh", *read, "--group", f"{group}-perf", "--messages", 2, "--timeout", WAIT_MS_MAX)
    assert positions("perf") == whole
    flags = ("--group-id", f"{group}-verifiable", "--max-messages", 2, "--enable-autocommit")
    ok("kafka-verifiable-consumer.sh", *read, *flags)
    assert positions("verifiable") == whole
