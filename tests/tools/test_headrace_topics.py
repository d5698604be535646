"""`headrace topic`, `config`, `cluster` and `api-versions` against a real broker."""

from __future__ import annotations

from headrace_cli import Cli
from records import read, send
from tool_process import ok, run
from topic_setup import fresh_name
from waits import WAIT_S_MAX


def test_a_topic_is_made_described_changed_and_deleted(cli: Cli, topic: str) -> None:
    assert (
        cli.ok("topic", "create", topic, "--partitions", 2, "--set", "retention.ms=3600000") == f"topic {topic} made\n"
    )
    (found,) = cli.json("topic", "describe", topic)
    assert found["settings"] == {"retention.ms": "3600000"}
    assert [each["partition"] for each in found["partitions"]] == [0, 1]
    assert found["records"] == 0
    assert found["partitions"][0]["isr"] == found["partitions"][0]["replicas"]
    cli.ok("topic", "alter", topic, "-p", 3, "--set", "cleanup.policy=compact", "--unset", "retention.ms")
    (found,) = cli.json("topic", "describe", topic)
    assert (found["settings"], len(found["partitions"])) == ({"cleanup.policy": "compact"}, 3)
    assert cli.json("topic", "delete", topic, "--yes") == [{"topic": topic, "deleted": True}]
    assert topic not in cli.ok("topic", "list", "--names").split()


def test_what_exists_already_is_an_error_unless_that_is_all_right(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    assert cli.fails("topic", "create", topic) == (
        f"topic {topic} exists already; use `headrace topic alter {topic}`, or add --if-not-exists"
    )
    assert cli.json("topic", "create", topic, "--if-not-exists") == [{"topic": topic, "created": False}]


def test_topics_are_listed_with_records_and_sizes(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic, f"{topic}-other")
    send(bootstrap, topic, ["a", "b", "c"])
    found = {each["name"]: each for each in cli.json("topic", "list", f"{topic}*")}
    assert set(found) == {topic, f"{topic}-other"}
    assert found[topic]["records"] == 3
    assert found[topic]["size_bytes"] > 0
    table = cli.ok("topic", "list", topic).splitlines()
    assert table[0].split() == ["topic", "partitions", "replicas", "records", "size"]
    assert table[1].split()[:4] == [topic, "1", "1", "3"]


def test_internal_topics_are_shown_on_demand(cli: Cli, bootstrap: str, group: str, topic: str) -> None:
    cli.ok("topic", "create", topic)
    cli.ok("group", "reset", group, "--topic", topic, "--to", "end", "--yes")
    assert "__consumer_offsets" not in cli.ok("topic", "list", "--names").split()
    assert "__consumer_offsets" in cli.ok("topic", "list", "--names", "--internal").split()
    assert "__consumer_offsets" in {each["name"] for each in cli.json("topic", "list", "--internal")}


def test_a_deletion_is_asked_for_and_no_is_no(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic)
    send(bootstrap, topic, ["a"])
    code, _, err = cli.run("topic", "delete", topic, stdin="n\n")
    assert code == 1
    assert f"Delete topic {topic} with 1 records? [y/N]:" in err
    assert topic in cli.ok("topic", "list", "--names").split()
    assert "there is no terminal to ask on; add --yes" in cli.fails("topic", "delete", topic, code=2)
    cli.ok("topic", "delete", topic, stdin="y\n")
    assert topic not in cli.ok("topic", "list", "--names").split()


def test_a_pattern_deletes_what_it_matches_and_nothing_else(cli: Cli, topic: str) -> None:
    names = [f"{topic}-a", f"{topic}-b", f"{topic}.c"]
    cli.ok("topic", "create", *names)
    cli.ok("topic", "delete", f"{topic}-*", "--yes")
    assert cli.ok("topic", "list", "--names", f"{topic}*").split() == [f"{topic}.c"]
    assert "no topic matches" in cli.fails("topic", "delete", f"{topic}-*", "--yes")
    assert cli.json("topic", "delete", f"{topic}-a", "--yes", "--if-exists") == []


def test_an_unknown_topic_is_met_with_the_nearest(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    wrong = topic[:-1]
    for command in (("topic", "describe"), ("topic", "alter", "-p", "9"), ("consume",), ("topic", "tail")):
        assert cli.fails(*command, wrong) == f"topic {wrong} does not exist; did you mean {topic}?"
    assert (
        cli.fails("produce", wrong) == f"topic {wrong} does not exist; did you mean {topic}? Or add --create to make it"
    )


def test_what_the_broker_refuses_is_one_line_that_names_the_topic(cli: Cli, topic: str) -> None:
    assert cli.fails("topic", "create", topic, "-r", 99).startswith(f"topic {topic}: ")
    assert "nonsense" in cli.fails("topic", "create", topic, "--set", "nonsense=1")
    assert "write KEY=VALUE" in cli.fails("topic", "create", topic, "--set", "nonsense")
    cli.ok("topic", "create", topic, "-p", 2)
    assert "2" in cli.fails("topic", "alter", topic, "-p", 1)
    assert "nothing to change" in cli.fails("topic", "alter", topic, code=2)
    assert "--partitions" in cli.fails("topic", "create", topic, "-p", 0, code=2)


def test_a_copy_keeps_keys_headers_times_partitions_and_settings(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", 2, "--set", "retention.ms=86400000")
    for partition in (0, 1):
        send(bootstrap, topic, ["a", "b"], key=f"k{partition}", headers={"h": b"x"}, partition=partition)
    copy = f"{topic}-copy"
    assert cli.json("topic", "copy", topic, copy)["records"] == 4
    fields = ("partition", "offset", "timestamp", "key", "value", "headers")

    def records(name: str) -> list[tuple[object, ...]]:
        return sorted(tuple(str(each[field]) for field in fields) for each in cli.lines("consume", name))

    assert records(copy) == records(topic)
    (described,) = cli.json("topic", "describe", copy)
    assert described["settings"] == {"retention.ms": "86400000"}
    cli.ok("topic", "copy", topic, f"{topic}-one", "--partitions", 1, "--where", "value == 'a'", "--limit", 1)
    assert [value for _, value in read(bootstrap, f"{topic}-one", 1)] == [b"a"]
    assert "copied onto itself" in cli.fails("topic", "copy", topic, topic, code=2)


def test_a_tail_is_the_last_records_by_time(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic, "-p", 2)
    for number in range(6):
        send(bootstrap, topic, [str(number)], partition=number % 2, timestamp=1_700_000_000_000 + number)
    assert cli.ok("topic", "tail", topic, "-n", 3) == "3\n4\n5\n"
    assert [each["value"] for each in cli.lines("topic", "tail", topic, "-n", 2)] == ["4", "5"]
    assert cli.ok("topic", "tail", topic, "-n", 0) == ""


def test_settings_are_shown_changed_and_taken_back(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic)
    assert "retention.ms" not in cli.run("config", "show", "topic", topic)[1]
    assert cli.ok("config", "set", "topic", topic, "retention.ms=5000") == f"topic {topic}: retention.ms=5000\n"
    (found,) = cli.json("config", "show", "topic", topic, "--key", "retention.ms")
    assert (found["name"], found["value"], found["source"]) == ("retention.ms", "5000", "topic")
    assert cli.fails("config", "set", "topic", topic, "retention.mss=5") == (
        "retention.mss is not a setting here; did you mean retention.ms?"
    )
    assert cli.fails("config", "show", "topic", topic, "--key", "retention.m").endswith("did you mean retention.ms?")
    assert cli.run("config", "unset", "topic", topic, "retention.ms", stdin="n\n")[0] == 1
    cli.ok("config", "unset", "topic", topic, "retention.ms", "--yes")
    assert cli.json("config", "show", "topic", topic, "--key", "retention.ms")[0]["value"] == "604800000"
    everything = cli.json("config", "show", "broker", "--all")
    assert {"log.dirs", "num.partitions"} <= {each["name"] for each in everything}
    assert "broker 77 does not exist" in cli.fails("config", "show", "broker", "77")
    assert "say which topic" in cli.fails("config", "show", "topic", code=2)


def test_the_cluster_and_its_brokers_are_shown(cli: Cli, bootstrap: str) -> None:
    found = cli.json("cluster")
    (broker,) = found["brokers"]
    assert len(found["cluster_id"]) == 22
    assert broker["controller"] is True
    assert broker["address"].endswith(bootstrap.rpartition(":")[2])
    assert f"cluster {found['cluster_id']}: 1 broker(s)" in cli.ok("cluster")


def test_the_versions_of_requests_are_shown(cli: Cli) -> None:
    found = {each["name"]: each for each in cli.json("api-versions")}
    assert found["Produce"]["key"] == 0
    assert found["Produce"]["max"] >= found["Produce"]["spoken"] >= 9
    assert "Metadata" in cli.ok("api-versions")


def test_shells_complete_commands_topics_and_groups(cli: Cli, bootstrap: str, topic: str) -> None:
    """As a shell asks: the installed command, with its environment."""
    import os
    import subprocess

    from tool_process import BIN

    cli.ok("topic", "create", topic)

    def completed(*words: str) -> list[str]:
        env = os.environ | {
            "_HEADRACE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
            "HEADRACE_BOOTSTRAP": bootstrap,
        }
        done = subprocess.run(
            [BIN / "headrace"], env=env, capture_output=True, text=True, check=False, timeout=WAIT_S_MAX
        )
        assert done.stderr == ""
        return [line.partition(",")[2] for line in done.stdout.split()]

    assert completed("headrace", "top") == ["topic", "top"]
    assert topic in completed("headrace", "topic", "describe", topic[:-1])
    assert "--partitions" in completed("headrace", "topic", "create", "--part")
    assert completed("headrace", "consume", "--bootstrap", "127.0.0.1:1", "x") == []


def test_the_installed_command_works_as_the_tests_do(bootstrap: str) -> None:
    name = fresh_name("installed")
    ok("headrace", "topic", "create", name, "--bootstrap", bootstrap)
    assert name in ok("headrace", "topic", "list", "--names", "-b", bootstrap).lines
    assert run("headrace", "topic", "delete", name, "-y", "-b", bootstrap).exit == 0
