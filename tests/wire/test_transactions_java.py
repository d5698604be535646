"""Transactions with the Java producer, consumer and admin client."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from java import JavaTools
from memberships import send

pytestmark = pytest.mark.xdist_group("java")

MakeTopic = Callable[..., str]


def test_java_commits_and_aborts(bootstrap: str, java: JavaTools, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert java.ok("JavaTransactions", "life", bootstrap, topic, f"{topic}-id").objects == [
        {"step": "open", "committed": [], "uncommitted": ["kept"]},
        {"step": "ended", "committed": ["kept", "kept too"], "uncommitted": ["kept", "dropped", "kept too"]},
    ]


def test_a_java_zombie_is_fenced(bootstrap: str, java: JavaTools, make_topic: MakeTopic) -> None:
    topic = make_topic()
    fenced, seen = java.ok("JavaTransactions", "fencing", bootstrap, topic, f"{topic}-id").objects
    assert fenced["refused"] in {"ProducerFencedException", "InvalidProducerEpochException"}
    assert seen["committed"] == ["of the next"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_consumes_transforms_and_produces_each_once(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic, protocol: str
) -> None:
    source, target = make_topic(), make_topic()
    send(bootstrap, source, range(60))
    command = ("transform", bootstrap, target, f"{target}-id", source, 60, protocol)
    (seen,) = java.ok("JavaTransactions", *command).objects
    assert seen == {"step": "transformed", "values": [f"2 x {n}" for n in range(60)], "offset": 60}


def test_the_java_admin_client_describes_and_fences_a_transaction(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    described, fenced, seen = java.ok("JavaTransactions", "admin", bootstrap, topic, f"{topic}-id").objects
    assert described == {
        "step": "described",
        "state": "Ongoing",
        "partitions": f"[{topic}-0]",
        "listed": "Ongoing",
        "sameProducer": True,
        "start": 0,
    }
    assert fenced["refused"] in {"ProducerFencedException", "InvalidProducerEpochException"}
    assert (seen["committed"], seen["uncommitted"]) == ([], ["open"])
