"""`headrace group` and `headrace bench` against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer
from headrace_cli import Cli
from records import commit, send
from tool_process import Running
from waits import eventually


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[Consumer]:
    """A member that has joined."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "app-7"})
    joined: list[int] = []
    consumer.subscribe([topic], on_assign=lambda *_: joined.append(1))
    eventually(lambda: (consumer.poll(0.05), joined)[1], "it has joined")
    try:
        yield consumer
    finally:
        consumer.close()


def test_a_group_is_listed_and_described_with_lag_and_members(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic, "-p", 2)
    send(bootstrap, topic, ["a", "b", "c"], partition=0)
    commit(bootstrap, group, topic, {0: 1})
    (listed,) = [each for each in cli.json("group", "list") if each["group"] == group]
    assert (listed["state"], listed["members"], listed["lag"], listed["topics"]) == ("Empty", 0, 2, [topic])
    assert group in cli.ok("group", "list", "--names").split()
    with member(bootstrap, group, topic):
        found = cli.json("group", "describe", group)
        assert found["state"] == "Stable"
        (one,) = found["members"]
        assert one["client_id"] == "app-7"
        assert one["partitions"] == [f"{topic}-0", f"{topic}-1"]
        positions = [(each["partition"], each["committed"], each["end"], each["lag"]) for each in found["partitions"]]
        assert positions == [(0, 1, 3, 2), (1, None, 0, None)]
        text = cli.ok("group", "describe", group)
        assert text.startswith(f"{group}  Stable, 1 member, 2 behind")
        assert "app-7" in text
        assert "its members must leave first" in cli.fails("group", "delete", group, "--yes")
        said = cli.fails("group", "reset", group, "--all-topics", "--to", "end", "--yes")
        assert said.startswith(f"group {group} is Stable with 1 member(s); stop app-7 first")


def test_lag_can_be_checked_by_a_script(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic)
    send(bootstrap, topic, ["a", "b", "c"])
    commit(bootstrap, group, topic, {0: 1})
    assert cli.json("group", "lag", group)[0]["lag"] == 2
    assert cli.run("group", "lag", group, "--max", 2)[0] == 0
    code, _, err = cli.run("group", "lag", group, "--max", 1)
    assert (code, err) == (3, f"headrace: more than 1 behind: {group}\n")
    assert cli.fails("group", "lag", group[:-1]) == f"group {group[:-1]} does not exist; did you mean {group}?"


def test_lag_is_watched_as_lines_of_json_with_rates(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic)
    commit(bootstrap, group, topic, {0: 0})
    args = ("group", "lag", group, "--watch", "--interval", 0.2, "--json", "-b", bootstrap)
    with Running("headrace", *args) as watching:
        watching.read_until("\n")
        send(bootstrap, topic, ["a", "b"])
        watching.read_until('"lag": 2')
        assert watching.end() == 130
    looks = [json.loads(line) for line in watching.out.splitlines()]
    assert looks[0]["write_rate"] is None
    assert max(each["write_rate"] or 0 for each in looks) > 0
    assert looks[-1]["group"] == group


def test_offsets_are_moved_to_wherever_is_wanted(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic, "-p", 2)
    for number in range(6):
        send(bootstrap, topic, [str(number)], partition=0, timestamp=1_700_000_000_000 + number * 1000)

    def reset(*args: object) -> dict[int, int]:
        found = cli.json("group", "reset", group, *args, "--yes")
        assert found["done"] is True
        held = {each["partition"]: each["committed"] for each in cli.json("group", "describe", group)["partitions"]}
        assert {each["partition"]: each["after"] for each in found["partitions"]}.items() <= held.items()
        return held

    assert reset("--topic", topic, "--to", "end") == {0: 6, 1: 0}
    assert reset("--all-topics", "--to", "beginning") == {0: 0, 1: 0}
    assert reset("--topic", f"{topic}:0", "--to", 4) == {0: 4, 1: 0}
    assert reset("--topic", f"{topic}:0", "--by", -1) == {0: 3, 1: 0}
    assert reset("--all-topics", "--by", 100) == {0: 6, 1: 0}, "never beyond the end"
    assert reset("--topic", topic, "--to", "2023-11-14T22:13:22Z") == {0: 2, 1: 0}
    assert reset("--topic", topic, "--to", -1) == {0: 5, 1: 0}


def test_a_reset_is_shown_and_asked_for_and_can_be_tried(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic)
    send(bootstrap, topic, ["a", "b"])
    commit(bootstrap, group, topic, {0: 2})
    out = cli.ok("group", "reset", group, "--all-topics", "--to", "beginning", "--dry-run")
    assert out.splitlines()[1].split() == [topic, "0", "2", "0", "-2"]
    assert cli.run("group", "reset", group, "--all-topics", "--to", "beginning", stdin="n\n")[0] == 1
    assert cli.json("group", "describe", group)["partitions"][0]["committed"] == 2
    assert "give either --to or --by" in cli.fails("group", "reset", group, "--all-topics", code=2)
    assert "give either --topic" in cli.fails("group", "reset", group, "--to", "end", code=2)
    assert "has no partition '7'" in cli.fails("group", "reset", group, "--topic", f"{topic}:7", "--to", "end")
    assert "has committed nothing" in cli.fails("group", "reset", f"{group}-new", "--topic", topic, "--by", 1, "--yes")
    assert "does not exist" in cli.fails("group", "reset", f"{group}zzz-none", "--all-topics", "--to", "end")


def test_groups_are_deleted_after_a_question(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic)
    for name in (f"{group}-a", f"{group}-b"):
        commit(bootstrap, name, topic, {0: 0})
    code, _, err = cli.run("group", "delete", f"{group}-*", stdin="n\n")
    assert (code, f"Delete 2 groups {group}-a, {group}-b and the offsets committed?" in err) == (1, True)
    assert [each["deleted"] for each in cli.json("group", "delete", f"{group}-*", "--yes")] == [True, True]
    assert not [name for name in cli.ok("group", "list", "--names").split() if name.startswith(group)]
    assert cli.json("group", "delete", f"{group}-a", "--yes", "--if-exists") == []


def test_the_benchmarks_report_rates_and_percentiles_and_leave_nothing_behind(cli: Cli) -> None:
    sent = cli.json("bench", "produce", "-n", 2000, "--size", 50, "--partitions", 2)
    assert (sent["records"], sent["bytes"]) == (2000, 100_000)
    assert 0 < sent["latency_ms"]["p50"] <= sent["latency_ms"]["p99"] <= sent["latency_ms"]["max"]
    paced = cli.json("bench", "produce", "-n", 100, "--rate", 500)
    assert paced["records_per_second"] < 600, "a slow machine is below it, too"
    got = cli.json("bench", "consume", "-n", 2000)
    assert got["records"] == 2000
    assert got["first_record_ms"] > 0
    there = cli.json("bench", "latency", "-n", 20)
    assert there["latency_ms"]["p50"] > 0
    text = cli.ok("bench", "latency", "-n", 5)
    assert "latency  p50 " in text
    assert [name for name in cli.ok("topic", "list", "--names").split() if name.startswith("headrace-bench-")] == []


def test_a_benchmark_can_use_a_topic_that_is_there(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("bench", "produce", "-n", 500, "--topic", topic)
    assert cli.json("bench", "consume", "--topic", topic)["records"] == 501  # one to warm up
    assert "did you mean" in cli.fails("bench", "consume", "--topic", topic[:-1])


def test_one_look_of_top_for_scripts(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic)
    send(bootstrap, topic, ["a"])
    commit(bootstrap, group, topic, {0: 0})
    found = cli.json("top")
    assert {each["name"]: each["records"] for each in found["topics"]}[topic] == 1
    assert {each["name"]: each["lag"] for each in found["groups"]}[group] == 1
    assert "top needs a terminal" in cli.fails("top")
