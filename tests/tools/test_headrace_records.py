"""`headrace produce` and `headrace consume` against a real broker."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer
from headrace_cli import Cli
from records import read, send
from tool_process import Running, run
from waits import WAIT_S_MAX, eventually


def test_lines_are_sent_and_shown(cli: Cli, topic: str) -> None:
    found = cli.json("produce", topic, "--create", stdin="one\ntwo\n\nüber\n")
    assert (found["records"], found["partitions"]) == (4, {"0": {"records": 4, "first": 0, "last": 3}})
    assert cli.ok("consume", topic) == "one\ntwo\n\nüber\n"
    assert cli.run("produce", topic, stdin="x\n")[2].startswith(f"{topic}: 1 record, 1 B in ")


def test_keys_and_headers_are_sent(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("produce", topic, "--create", "--key-separator", ":", "-H", "a=1", "-H", "b=", stdin="k:v\nk2:\n")
    first, second = cli.lines("consume", topic)
    assert (first["key"], first["value"], first["headers"]) == ("k", "v", {"a": "1", "b": ""})
    assert (second["key"], second["value"]) == ("k2", "")
    cli.ok("produce", topic, "--key-separator", ":", "--empty-is-null", stdin="k2:\n")
    assert read(bootstrap, topic, 3)[2] == (b"k2", None)
    cli.ok("produce", topic, "--key", "fixed", stdin="v\n")
    assert cli.ok("consume", topic, "--from", -1, "--format", "raw", "--key-separator", " -> ") == "fixed -> v\n"


def test_json_lines_with_their_key_and_files(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"id": 1, "who": {"name": "alice"}}\n{"id": 2, "who": {"name": "bob"}}\n')
    cli.ok("produce", topic, file, "--create", "--format", "json", "--key-field", "who.name")
    assert [(each["key"], each["value"]["id"]) for each in cli.lines("consume", topic)] == [("alice", 1), ("bob", 2)]
    cli.ok("produce", topic, file, file, "--format", "file")
    assert [each["value"] for each in cli.lines("consume", topic, "--from", -1)] == [file.read_text()]


def test_a_topic_is_made_with_so_many_partitions(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "--create", "--partitions", 3, "--partition", 2, stdin="one\n")
    assert len(cli.json("topic", "describe", topic)[0]["partitions"]) == 3
    _, _, again = cli.run("produce", topic, "--create", "--partitions", 5, stdin="two\n")
    assert again.splitlines()[0] == f"headrace: warning: {topic} exists already, with 3 partitions; it keeps them"
    assert cli.run("produce", topic, "--create", "--partitions", 3, stdin="three\n")[2].count("\n") == 1
    assert "--partitions is for --create" in cli.fails("produce", topic, "--partitions", 3, code=2)


def test_what_consume_prints_produce_takes(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic)
    send(bootstrap, topic, ["a"], key=b"\xff\x00", headers=[("h", b"1"), ("h", b"2")], timestamp=1_700_000_000_000)
    printed = cli.ok("consume", topic, "--json")
    cli.ok("produce", f"{topic}-2", "--create", "--format", "records", stdin=printed)
    before, after = (json.loads(cli.ok("consume", name, "--json")) for name in (topic, f"{topic}-2"))
    assert {**before, "topic": ""} == {**after, "topic": ""}


def test_a_line_that_cannot_be_sent_is_named(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    said = cli.fails("produce", topic, "--format", "json", stdin='{"a": 1}\nnot json\n')
    assert said.startswith("stdin:2: not JSON")
    assert "no such file" in cli.fails("produce", topic, "/nowhere/file")
    assert "has no partition 5; it has 1" in cli.fails("produce", topic, "--partition", 5, stdin="x\n")
    assert "--header 'x'" in cli.fails("produce", topic, "-H", "x", code=2)
    assert "--key-field is for --format json" in cli.fails("produce", topic, "--key-field", "x", code=2)


def test_a_record_that_is_too_large_is_named_with_its_line(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic, "--set", "max.message.bytes=1000")
    said = cli.fails("produce", topic, stdin="small\n" + "x" * 5000 + "\n")
    assert said.startswith(f"{topic}: ")
    assert "stdin:" in said
    assert "send again from there" in said


def test_where_to_begin_and_to_end(cli: Cli, bootstrap: str, topic: str) -> None:
    base = 1_700_000_000_000
    cli.ok("topic", "create", topic)
    for number in range(10):
        send(bootstrap, topic, [str(number)], timestamp=base + number * 1000)

    def values(*args: object) -> str:
        return "".join(cli.ok("consume", topic, *args).split())

    assert values() == "0123456789"
    assert values("--from", 7) == "789"
    assert values("--from", -2) == "89"
    assert values("--from", "end") == ""
    assert values("--from", "2023-11-14T22:13:24Z") == "456789"
    assert values("--from", 2, "--to", 5) == "234"
    assert values("--to", "2023-11-14 22:13:22") == "01"
    assert values("--from", 99) == ""
    assert values("-n", 3) == "012"
    assert values("--partition", 0, "-n", 1) == "0"
    assert "not a place in a topic" in cli.fails("consume", topic, "--from", "soon")
    assert "it has 1, counted from 0" in cli.fails("consume", topic, "-p", 4)


def test_filters_by_key_and_expression(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic)
    for number in range(6):
        send(bootstrap, topic, [json.dumps({"n": number})], key="even" if number % 2 == 0 else "odd")

    def numbers(*args: object) -> list[int]:
        return [each["value"]["n"] for each in cli.lines("consume", topic, *args)]

    assert numbers("--key", "odd") == [1, 3, 5]
    assert numbers("--where", "value.n >= 3") == [3, 4, 5]
    assert numbers("--key", "even", "--where", "value.n > 0 and offset < 4") == [2]
    assert numbers("--where", "value.n > 1", "-n", 2) == [2, 3]
    said = cli.fails("consume", topic, "--where", "vlue.n > 1", code=2)
    assert said.startswith("--where 'vlue' is not a field of a record; did you mean value?")


def test_too_few_records_is_exit_code_3(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "--create", stdin="one\n")
    code, out, err = cli.run("consume", topic, "-n", 5)
    assert (code, out, err) == (3, "one\n", "headrace: only 1 of 5 records came\n")
    assert cli.run("consume", topic, "--follow", "-n", 1, "--timeout", 0.2)[0] == 3


def test_follow_shows_what_comes_and_ctrl_c_ends_it(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("produce", topic, "--create", stdin="before\n")
    with Running("headrace", "consume", topic, "--follow", "--from", "beginning", "-b", bootstrap) as following:
        following.read_until("before\n")
        send(bootstrap, topic, ["after"])
        following.read_until("after\n")
        assert following.end() == 130
    assert (following.out, following.err) == ("before\nafter\n", "")


def test_a_group_goes_on_where_it_was(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic, "-p", 2)
    for partition in (0, 1):
        send(bootstrap, topic, ["a", "b"], partition=partition)
    assert sorted(cli.ok("consume", topic, "--group", group).split()) == ["a", "a", "b", "b"]
    assert cli.ok("consume", topic, "--group", group) == ""
    send(bootstrap, topic, ["c"], partition=0)
    assert cli.ok("consume", topic, "--group", group) == "c\n"
    assert "`headrace group reset` moves a group" in cli.fails("consume", topic, "-g", group, "--from", 5, code=2)


def test_a_group_commits_only_what_was_printed(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic)
    send(bootstrap, topic, map(str, range(10)))
    assert cli.ok("consume", topic, "--group", group, "-n", 4).split() == ["0", "1", "2", "3"]
    assert cli.ok("consume", topic, "--group", group).split() == ["4", "5", "6", "7", "8", "9"]


def test_only_what_was_committed_is_shown(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-tx"})
    producer.init_transactions(WAIT_S_MAX)
    producer.begin_transaction()
    producer.produce(topic, "aborted")
    producer.flush(WAIT_S_MAX)
    producer.abort_transaction(WAIT_S_MAX)
    producer.begin_transaction()
    producer.produce(topic, "committed")
    producer.commit_transaction(WAIT_S_MAX)
    assert cli.ok("consume", topic) == "committed\n"
    assert cli.ok("consume", topic, "--uncommitted") == "aborted\ncommitted\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly(bootstrap: str, topic: str, cli: Cli) -> None:
    import subprocess

    from tool_process import BIN

    cli.ok("topic", "create", topic)
    send(bootstrap, topic, [f"{number} {'x' * 500}" for number in range(3000)])
    done = subprocess.run(
        f"{BIN}/headrace consume {topic} -b {bootstrap} | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    assert (done.stdout.split()[0], done.stderr) == ("0", "")


def test_many_records_are_all_acknowledged_and_come_back(cli: Cli, topic: str) -> None:
    lines = [f"line {number}" for number in range(20_000)]
    cli.ok("topic", "create", topic, "-p", 3)
    found = cli.json("produce", topic, "--compression", "lz4", stdin="\n".join(lines) + "\n")
    assert found["records"] == 20_000
    assert sorted(cli.ok("consume", topic).splitlines()) == sorted(lines)


def test_bad_flags_are_one_line_and_exit_code_2(bootstrap: str) -> None:
    for args in (("consume",), ("consume", "t", "--format", "xml"), ("produce", "t", "--acks", "7"), ("nonsense",)):
        ran = run("headrace", *args)
        assert ran.exit == 2, args
        assert ran.err.startswith("headrace: "), args
        assert ran.err.count("\n") == 1, ran.err
        assert ran.out == ""


def _members(cli: Cli, group: str) -> int:
    """Of a group that is settled; 0 while it is not, or not there."""
    found = [each for each in cli.json("group", "list") if each["group"] == group and each["state"] == "Stable"]
    return found[0]["members"] if found else 0


def test_two_readers_of_one_group_share_the_partitions(cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic, "-p", 4)
    with (
        Running("headrace", "consume", topic, "-g", group, "-f", "-b", bootstrap) as first,
        Running("headrace", "consume", topic, "-g", group, "-f", "-b", bootstrap) as second,
    ):
        eventually(lambda: _members(cli, group) == 2, "both are members")
        for partition in range(4):
            send(bootstrap, topic, [f"value-{partition}"], partition=partition)

        def all_came() -> bool:
            first.peek(0.05)
            second.peek(0.05)
            return (first.out + second.out).count("value-") == 4

        eventually(all_came, "each value is printed by one of them")
        assert first.end() == second.end() == 130
    assert sorted((first.out + second.out).split()) == [f"value-{number}" for number in range(4)]
