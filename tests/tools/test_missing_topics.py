"""A reader that is started before its topic exists: it waits, says so in one line, and misses nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from headrace_cli import Cli
from records import send
from tool_process import Running, run
from topic_setup import create_topic, delete_topic
from waits import WAIT_S_MAX

StartHeadrace = Callable[..., Any]
CONSUMER, VERIFIABLE = "kafka-console-consumer.sh", "kafka-verifiable-consumer.sh"
NO_CREATION = ("--consumer-property", "allow.auto.create.topics=false")


@pytest.fixture
def here(bootstrap: str) -> tuple[str, str]:
    return ("--bootstrap-server", bootstrap)


READERS = [
    (CONSUMER, ()),
    (CONSUMER, ("--group", "GROUP")),
    (CONSUMER, ("--group", "GROUP", "--consumer-property", "group.protocol=consumer")),
    (CONSUMER, ("--partition", "0")),
    (VERIFIABLE, ("--group-id", "GROUP", "--verbose", "--reset-policy", "latest")),
]
NAMES = ["alone", "group", "consumer-protocol", "partition", "verifiable"]


def words(group: str, flags: tuple[str, ...]) -> list[str]:
    return [group if flag == "GROUP" else flag for flag in flags]


@pytest.mark.parametrize(("name", "flags"), READERS, ids=NAMES)
def test_a_reader_that_comes_first_has_the_topic_created(
    bootstrap: str, here: tuple[str, str], topic: str, group: str, name: str, flags: tuple[str, ...]
) -> None:
    with Running(name, *here, "--topic", topic, *words(group, flags)) as reader:
        reader.read_until(f"Topic {topic} d", on_err=True)  # it did not exist, or does not yet
        if "--partition" in flags:
            send(bootstrap, topic, ["the first"], partition=0)
        else:
            send(bootstrap, topic, ["the first"])
        reader.read_until("the first")
        reader.end(signal.SIGTERM)
    assert reader.err.count(f"Topic {topic}") == 1


@pytest.mark.parametrize(("name", "flags"), READERS[:4], ids=NAMES[:4])
def test_a_topic_that_nobody_creates_is_waited_for(
    bootstrap: str,
    here: tuple[str, str],
    admin: AdminClient,
    topic: str,
    group: str,
    name: str,
    flags: tuple[str, ...],
) -> None:
    with Running(name, *here, "--topic", topic, *words(group, flags), *NO_CREATION) as reader:
        reader.read_until(
            f"Topic {topic} does not exist (UNKNOWN_TOPIC_OR_PARTITION); waiting for it. Create it with "
            f"kafka-topics.sh --create --topic {topic}\n",
            on_err=True,
        )
        create_topic(admin, topic)
        send(bootstrap, topic, ["the first"])
        reader.read_until("the first\n")
        assert reader.end(signal.SIGTERM) == 143
    assert reader.err.endswith("Processed a total of 1 messages\n")
    assert reader.err.count("\n") == 2


def test_waiting_for_a_topic_can_be_ended(here: tuple[str, str], topic: str, admin: AdminClient) -> None:
    with Running(CONSUMER, *here, "--topic", topic, *NO_CREATION) as reader:
        reader.read_until("waiting for it", on_err=True)
        assert reader.end(signal.SIGTERM) == 143
    assert reader.err.endswith("Processed a total of 0 messages\n")
    ran = run(CONSUMER, *here, "--topic", topic, *NO_CREATION, "--timeout-ms", 500)
    assert ran.exit == 1
    assert ran.err.endswith(f"Topic {topic} did not exist for 500 ms; nothing was read\n")
    assert topic not in admin.list_topics(timeout=WAIT_S_MAX).topics


def test_a_pattern_that_matches_nothing_is_said_and_waited_for(
    bootstrap: str, here: tuple[str, str], topic: str, admin: AdminClient
) -> None:
    often = ("--consumer-property", "metadata.max.age.ms=300")
    with Running(CONSUMER, *here, "--include", f"{topic}-.*", "--from-beginning", *often) as reader:
        reader.read_until(f"Nothing to read in topics that match {topic}-.*; waiting for one", on_err=True)
        create_topic(admin, f"{topic}-1")
        send(bootstrap, f"{topic}-1", ["found"])
        reader.read_until("found\n")
        assert reader.end(signal.SIGTERM) == 143


def test_a_topic_that_is_deleted_while_it_is_read_is_waited_for(
    bootstrap: str, here: tuple[str, str], topic: str, admin: AdminClient
) -> None:
    create_topic(admin, topic)
    send(bootstrap, topic, ["before"])
    often = ("--consumer-property", "metadata.max.age.ms=300")
    with Running(CONSUMER, *here, "--topic", topic, "--from-beginning", *NO_CREATION, *often) as reader:
        reader.read_until("before\n")
        delete_topic(admin, topic)
        reader.read_until(f"Topic {topic} does not exist", on_err=True)
        create_topic(admin, topic)
        send(bootstrap, topic, ["after"])
        reader.read_until("after\n")
        assert reader.end(signal.SIGTERM) == 143


@pytest.mark.parametrize(
    "flags",
    [(), ("-g", "GROUP"), ("-g", "GROUP", "--from", "end"), ("-p", "0")],
    ids=["alone", "group", "group-from-end", "partition"],
)
def test_headrace_follows_a_topic_that_comes_later(
    cli: Cli, bootstrap: str, topic: str, group: str, flags: tuple[str, ...]
) -> None:
    cli.ok("topic", "create", f"{topic}-old")
    with Running("headrace", "consume", "-f", topic, f"{topic}-old", *words(group, flags), "-b", bootstrap) as reader:
        reader.read_until(
            f"headrace: topic {topic} does not exist yet; waiting for it; did you mean {topic}-old?\n", on_err=True
        )
        assert topic not in cli.ok("topic", "list", "--names").split(), "it is waited for, not created"
        while "another" not in reader.out:  # sent again until the reader is there: it may begin at the end
            cli.ok("produce", f"{topic}-old", "-p", 0, stdin="another\n")
            reader.peek(0.2)
        cli.ok("produce", topic, "--create", "-p", 0, stdin="the first\n")
        reader.read_until("the first\n")
        assert reader.end() == 130
    assert reader.err.count("\n") == 1


def test_headrace_waits_only_where_it_follows(cli: Cli, bootstrap: str, topic: str) -> None:
    assert f"topic {topic} does not exist" in cli.fails("consume", topic)
    assert f"no topic matches '{topic}*'" in cli.fails("consume", "-f", f"{topic}*")
    code, _, err = cli.run("consume", "-f", topic, "--timeout", 0.5, "--limit", 1)
    assert (code, err.splitlines()[-1]) == (3, "headrace: only 0 of 1 records came")
