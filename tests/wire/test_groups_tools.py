"""Kafka's own tools for groups and transactions: ConsumerGroupCommand, TransactionsCommand, DumpLogSegments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from headrace_process import StartHeadrace
from java import JavaTools
from memberships import consumer_of, crew_of, send, take
from test_transactions_confluent import producer_of
from topic_setup import create_topic, fresh_name
from waits import WAIT_MS_MAX

pytestmark = pytest.mark.xdist_group("java")

MakeTopic = Callable[..., str]
TOOLS = "org.apache.kafka.tools."
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
DECODED = re.compile(r"key: (\{.*\}) payload: (.*)$")


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return fresh_name(request.node.name)


def table(lines: list[str]) -> list[dict[str, str]]:
    """The rows below the line of titles."""
    rows = [line.split() for line in lines if line.strip()]
    head = next(index for index, row in enumerate(rows) if row[0] == "GROUP")
    return [dict(zip(rows[head], row, strict=False)) for row in rows[head + 1 :]]


def test_groups_are_listed_and_described_with_their_lag(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=2)
    here = ("--bootstrap-server", bootstrap)
    send(bootstrap, topic, range(20), partitions=2)
    with crew_of(bootstrap, group, topic, client_id="the-client") as crew:
        member = crew.join()
        crew.settle(2)
        done = [TopicPartition(topic, 0, 10), TopicPartition(topic, 1, 4)]
        member.commit(offsets=done, asynchronous=False)
        assert group in java.ok(GROUPS, *here, "--list").lines
        rows = table(java.ok(GROUPS, *here, "--describe", "--group", group).lines)
        assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows} == {
            ("0", "10", "10", "0"),
            ("1", "4", "10", "6"),
        }
        assert {row["CLIENT-ID"] for row in rows} == {"the-client"}
        (state,) = table(java.ok(GROUPS, *here, "--describe", "--group", group, "--state").lines)
        assert "Stable" in state.values()
        (seen,) = table(java.ok(GROUPS, *here, "--describe", "--group", group, "--members").lines)
        assert seen["#PARTITIONS"] == "2"
    listed = java.ok(GROUPS, *here, "--list", "--state", "Empty").out
    assert group in listed


def test_a_group_is_reset_and_deleted(bootstrap: str, java: JavaTools, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    here = ("--bootstrap-server", bootstrap, "--group", group)
    send(bootstrap, topic, range(10))
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        take(consumer, 10)
        consumer.commit(asynchronous=False)

    def reset(*how: object) -> str:
        (row,) = table(java.ok(GROUPS, *here, "--reset-offsets", *how, "--execute", "--topic", topic).lines)
        return row["NEW-OFFSET"]

    assert reset("--to-earliest") == "0"
    assert reset("--shift-by", 4) == "4"
    assert reset("--to-latest") == "10"
    assert reset("--to-offset", 7) == "7"
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        assert take(consumer, 3) == ["7", "8", "9"]
    java.ok(GROUPS, *here, "--delete-offsets", "--topic", topic)
    deleted = java.ok(GROUPS, *here, "--delete")
    assert "Deletion of requested consumer groups" in deleted.out


def test_the_console_consumer_reads_as_a_group(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    send(bootstrap, topic, range(5))
    command = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning")
    console = TOOLS + "consumer.ConsoleConsumer"
    assert java.ok(console, *command, "--max-messages", 3, "--timeout-ms", WAIT_MS_MAX).lines == ["0", "1", "2"]
    assert java.ok(console, *command, "--max-messages", 2, "--timeout-ms", WAIT_MS_MAX).lines == ["3", "4"]


def test_transactions_are_listed_described_and_aborted(bootstrap: str, java: JavaTools, make_topic: MakeTopic) -> None:
    topic = make_topic()
    name = f"{topic}-id"
    producer = producer_of(bootstrap, name)
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush()
    command = (TOOLS + "TransactionsCommand", "--bootstrap-server", bootstrap)
    listed = next(line for line in java.ok(*command, "list").lines if line.startswith(name))
    assert listed.split()[-1] == "Ongoing"
    described = java.ok(*command, "describe", "--transactional-id", name).out
    assert f"{topic}-0" in described
    producers = java.ok(*command, "describe-producers", "--topic", topic, "--partition", 0).lines
    assert listed.split()[2] in producers[-1].split(), "the producer's id"
    java.ok(*command, "abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
    ended = java.ok(*command, "describe-producers", "--topic", topic, "--partition", 0).lines
    assert ended[-1].split()[-1] == "None"
    producer.abort_transaction()


def test_the_internal_topics_are_dumped_as_kafka_would_write_them(
    start_headrace: StartHeadrace, java: JavaTools
) -> None:
    broker = start_headrace({"group.initial.rebalance.delay.ms": "0"})
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        create_topic(admin, "events", partitions=2)
    with crew_of(broker.bootstrap, "classic-group", "events") as crew:
        crew.join()
        crew.settle(2)
        crew.members[0].commit(offsets=[TopicPartition("events", 0, 5)], asynchronous=False)
    with crew_of(broker.bootstrap, "consumer-group", "events", group_protocol="consumer") as crew:
        crew.join()
        crew.settle(2)
    producer = producer_of(broker.bootstrap, "an-id")
    producer.begin_transaction()
    producer.produce("events", "x", partition=1)
    producer.commit_transaction()
    producer.close()
    broker.stop()

    def dump(topic: str, decoder: str) -> list[tuple[dict, dict | None]]:
        logs = sorted(str(log) for log in Path(broker.data).glob(f"**/{topic}-*/*.log") if log.stat().st_size)
        assert logs
        ran = java.ok(TOOLS + "DumpLogSegments", decoder, "--deep-iteration", "--files", ",".join(logs))
        found = [match.groups() for line in ran.lines if (match := DECODED.search(line))]
        return [(json.loads(key), None if value == "<DELETE>" else json.loads(value)) for key, value in found]

    groups = dump("__consumer_offsets", "--offsets-decoder")
    classic = [(key["type"], value) for key, value in groups if key["data"].get("group") == "classic-group"]
    assert [kind for kind, _ in classic] == ["2", "2", "1", "2"]
    made, formed, committed, emptied = (value["data"] for _, value in classic)
    assert [(each["protocolType"], each["generation"]) for each in (made, formed, emptied)] == [
        ("", 0),
        ("consumer", 1),
        ("consumer", 2),
    ]
    assert [len(each["members"]) for each in (made, formed, emptied)] == [0, 1, 0]
    assert formed["members"][0]["subscription"]["topics"] == ["events"]
    assert (committed["offset"], committed["metadata"]) == (5, "")
    modern = [(key["type"], value) for key, value in groups if key["data"].get("groupId") == "consumer-group"]
    # Member, group, target, its epoch and what the member holds; then all that is removed, and the last epoch.
    assert [kind for kind, _ in modern] == ["5", "3", "7", "6", "8", "8", "7", "5", "3"]
    assert [value is None for _, value in modern] == [False] * 5 + [True] * 3 + [False]
    held = modern[4][1]["data"]
    assert (held["memberEpoch"], held["previousMemberEpoch"], held["state"]) == (2, 0, 0)
    assert [part["partitions"] for part in held["assignedPartitions"]] == [[0, 1]]
    transactions = dump("__transaction_state", "--transaction-log-decoder")
    mine = [value["data"] for key, value in transactions if key["data"]["transactionalId"] == "an-id" and value]
    # Empty, Ongoing, PrepareCommit, CompleteCommit
    assert [state["transactionStatus"] for state in mine] == [0, 1, 2, 4]
    parts = [{"topic": "events", "partitionIds": [1]}]
    assert [state["transactionPartitions"] for state in mine] == [None, parts, parts, []]
