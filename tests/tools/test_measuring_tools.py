"""The tools that measure and verify, against the forms of Kafka's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from records import send
from tool_process import Running, long_enough, ok, run

MakeTopic = Callable[..., str]
NUMBER = r"\d+(?:\.\d+)?"
TOTAL = re.compile(
    rf"(\d+) records sent, {NUMBER} records/sec \({NUMBER} MB/sec\), {NUMBER} ms avg latency, {NUMBER} ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
WINDOW = re.compile(
    rf"\d+ records sent, {NUMBER} records/sec \({NUMBER} MB/sec\), {NUMBER} ms avg latency, {NUMBER} ms max latency\."
)
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
CONSUMED = re.compile(rf"{TIME}, {TIME}, {NUMBER}, {NUMBER}, (\d+), {NUMBER}, \d+, -?\d+, {NUMBER}, {NUMBER}")


@pytest.fixture
def here(bootstrap: str) -> tuple[str, str]:
    return ("--bootstrap-server", bootstrap)


def end_of(here: tuple[str, str], topic: str) -> int:
    lines = ok("kafka-get-offsets.sh", *here, "--topic", topic).lines
    return sum(int(line.rpartition(":")[2]) for line in lines)


def test_a_load_is_written_and_read_and_every_record_counted(here: tuple[str, str], make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    load = ("--topic", topic, "--num-records", 20_000, "--record-size", 100, "--throughput", -1)
    ran = ok("kafka-producer-perf-test.sh", *here, *load, "--producer-props", "acks=1", "linger.ms=5")
    (line,) = ran.lines
    assert [match[1] for match in [TOTAL.fullmatch(line)] if match] == ["20000"]
    assert end_of(here, topic) == 20_000
    ran = ok("kafka-consumer-perf-test.sh", *here, "--topic", topic, "--messages", 20_000)
    titles, line = ran.lines
    assert titles == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
        "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    assert [match[1] for match in [CONSUMED.fullmatch(line)] if match] == ["20000"]


def test_a_load_keeps_to_its_rate_says_how_it_goes_and_commits(here: tuple[str, str], make_topic: MakeTopic) -> None:
    topic = make_topic()
    load = ("--topic", topic, "--num-records", 1500, "--payload-monotonic", "--throughput", 1500)
    more = ("--transaction-duration-ms", 200, "--reporting-interval", 300, "--warmup-records", 100, "--print-metrics")
    ran = ok("kafka-producer-perf-test.sh", *here, *load, *more)
    assert ran.lines[0].startswith("Warmup first 100 records.")
    assert any(WINDOW.fullmatch(line) for line in ran.lines)
    assert any(TOTAL.fullmatch(line) for line in ran.lines)
    assert any(line.startswith("1400 steady state records sent, ") for line in ran.lines)
    assert any(re.fullmatch(r"txmsgs +: 1500\.000", line) for line in ran.lines)
    assert end_of(here, topic) > 1500, "records and the markers of several transactions"


def test_payloads_come_from_a_file(here: tuple[str, str], make_topic: MakeTopic, tmp_path: object) -> None:
    topic = make_topic()
    file = f"{tmp_path}/payloads"
    with open(file, "w") as out:
        out.write("red;green;blue")
    load = (
        "--topic",
        topic,
        "--num-records",
        30,
        "--payload-file",
        file,
        "--payload-delimiter",
        ";",
        "--throughput",
        -1,
    )
    ran = ok("kafka-producer-perf-test.sh", *here, *load)
    assert ran.lines[:2] == [f"Reading payloads from: {file}", "Number of records read: 3"]
    read_all = ("--topic", topic, "--partition", 0, "--offset", 0, "--max-messages", 30)
    assert set(ok("kafka-console-consumer.sh", *here, *read_all).lines) == {"red", "green", "blue"}


def test_reading_shows_progress_and_gives_up_in_time(
    here: tuple[str, str], bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, topic, map(str, range(10)))

    def lines_with(timeout_ms: int) -> list[str] | None:
        """It reads what there is within that time."""
        flags = ("--messages", 20, "--timeout", timeout_ms, "--show-detailed-stats", "--reporting-interval", 1)
        lines = ok("kafka-consumer-perf-test.sh", *here, "--topic", topic, *flags).lines
        assert lines[0].startswith("time, threadId, data.consumed.in.MB")
        assert lines[-1].startswith(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms)"
        )
        return lines[1:-1] or None

    assert re.match(rf"{TIME}, 0, ", long_enough(lines_with, 1500)[0])


def test_latency_is_measured_from_end_to_end(here: tuple[str, str], bootstrap: str, topic: str) -> None:
    ran = ok("kafka-e2e-latency.sh", bootstrap, topic, 20, "all", 100)
    made, first, average, shares = ran.lines
    assert made == (f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1')
    assert re.fullmatch(rf"0\t{NUMBER}", first)
    assert re.fullmatch(r"Avg latency: \d+\.\d{4} ms", average)
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+", shares)
    sizes = ("--record-key-size", 5, "--num-headers", 2, "--record-header-key-size", 3, "--record-header-size", -1)
    named = ("--topic", topic, "--num-records", 5, "--producer-acks", 1, "--record-size", 10)
    assert len(ok("kafka-e2e-latency.sh", *here, *named, *sizes).lines) == 3
    assert end_of(here, topic) == 25


def test_latency_needs_acknowledgements(bootstrap: str, topic: str) -> None:
    ran = run("kafka-e2e-latency.sh", bootstrap, topic, 20, "0", 100)
    assert ran.exit == 1
    assert ran.err.startswith("Invalid value for --producer-acks.")


def events(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_number_is_acknowledged_and_said_to_be(here: tuple[str, str], make_topic: MakeTopic) -> None:
    topic = make_topic()
    flags = ("--topic", topic, "--max-messages", 50, "--repeating-keys", 3, "--value-prefix", 7)
    said = events(ok("kafka-verifiable-producer.sh", *here, *flags).out)
    assert [said[0]["name"], said[-2]["name"], said[-1]["name"]] == [
        "startup_complete",
        "shutdown_complete",
        "tool_data",
    ]
    sent = [event for event in said if event["name"] == "producer_send_success"]
    assert [event["offset"] for event in sent] == list(range(50))
    assert list(sent[4]) == ["timestamp", "name", "key", "value", "topic", "partition", "offset"]
    assert (sent[4]["key"], sent[4]["value"], sent[4]["topic"]) == ("1", "7.4", topic)
    assert (said[-1]["sent"], said[-1]["acked"], said[-1]["target_throughput"]) == (50, 50, -1)


def test_a_stopped_producer_says_what_it_did(here: tuple[str, str], make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Running("kafka-verifiable-producer.sh", *here, "--topic", topic, "--throughput", "200") as writer:
        writer.read_until("producer_send_success")
        assert writer.end() == 0
    last = events(writer.out)[-1]
    assert last["name"] == "tool_data"
    assert last["acked"] == last["sent"] == end_of(here, topic)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_reader_says_what_it_was_given_read_and_committed(
    here: tuple[str, str], bootstrap: str, make_topic: MakeTopic, group: str, protocol: str
) -> None:
    topic = make_topic()
    send(bootstrap, topic, ["a", "b", "c"])
    flags = ("--topic", topic, "--group-id", group, "--max-messages", 3, "--verbose", "--group-protocol", protocol)
    said = events(ok("kafka-verifiable-consumer.sh", *here, *flags).out)
    names = [event["name"] for event in said]
    assert names[:2] == ["startup_complete", "partitions_assigned"]
    assert names[-2:] == ["partitions_revoked", "shutdown_complete"]
    assert said[1]["partitions"] == [{"topic": topic, "partition": 0}]
    assert [event["value"] for event in said if event["name"] == "record_data"] == ["a", "b", "c"]
    consumed = [part for event in said if event["name"] == "records_consumed" for part in event["partitions"]]
    assert sum(part["count"] for part in consumed) == 3
    commits = [event for event in said if event["name"] == "offsets_committed"]
    assert commits[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 3}]
    assert all(event["success"] for event in commits)
    described = ok("kafka-consumer-groups.sh", *here, "--describe", "--group", group)
    assert described.lines[-1].split()[3] == "3"
