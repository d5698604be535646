"""What is said about records that are not acknowledged, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.cli.kafka import delivery_watch
from headrace.cli.kafka.delivery_watch import REFUSED_S, UNANSWERED_S, DeliveryWatch

LINE = (
    "[thrd:127.0.0.1:9092/1]: 127.0.0.1:9092/1: t [2]: MessageSet with 1 message(s) (MsgId 1, BaseSeq 0) encountered "
    "error: Broker: Not enough in-sync replicas (actions Retry,MsgNotPersisted)"
)
SAID = "t-2: the broker refuses records: Not enough in-sync replicas; trying again for 30 s"


class Leaders:
    """A producer that knows who leads each partition; None: nobody answers."""

    def __init__(self, *leaders: int) -> None:
        self.leaders: tuple[int, ...] | None = leaders

    def list_topics(self, topic: str, timeout: float) -> Any:
        if self.leaders is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        partitions = {number: SimpleNamespace(leader=leader) for number, leader in enumerate(self.leaders)}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})


class Watched:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.now = 100.0
        self.producer: Any = Leaders(1, 1, 1)
        self.watch: DeliveryWatch

    def refuse(self) -> None:
        self.watch.log(10, "%s [%s] %s", "MSGSET", "rdkafka#producer-1", LINE)

    def look(self, after_s: float, waiting: int = 1) -> list[str]:
        self.now += after_s
        self.watch.look(self.producer, waiting)
        return self.said


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    made = Watched()
    monkeypatch.setattr(delivery_watch.time, "monotonic", lambda: made.now)
    made.watch = DeliveryWatch("t", 30.0, made.said.append)
    return made


def test_a_refusal_that_lasts_is_said_once(watched: Watched) -> None:
    watched.refuse()
    assert watched.look(0) == []
    watched.refuse()
    assert watched.look(REFUSED_S) == [SAID]
    watched.refuse()
    assert watched.look(10) == [SAID]


def test_a_refusal_that_passes_is_not_said(watched: Watched) -> None:
    watched.refuse()
    watched.watch.answered(2, acknowledged=True)
    assert watched.look(10, waiting=0) == []


def test_a_refusal_after_an_acknowledgement_is_said_again(watched: Watched) -> None:
    watched.refuse()
    watched.look(REFUSED_S)
    watched.watch.answered(2, acknowledged=True)
    watched.refuse()
    assert watched.look(REFUSED_S) == [SAID, SAID]


def test_other_lines_of_the_log_say_nothing(watched: Watched) -> None:
    for text in (LINE.replace("Retry,", ""), LINE.replace("Broker: ", "Local: "), "t [2]: MessageSet delivered"):
        watched.watch.log(10, "%s [%s] %s", "MSGSET", "rdkafka#producer-1", text)
    watched.watch.log(10, "%s [%s] %s", "PRODUCE", "rdkafka#producer-1", LINE)
    assert watched.look(REFUSED_S) == []


def test_a_partition_without_a_leader_is_said_when_nothing_is_acknowledged(watched: Watched) -> None:
    watched.producer = Leaders(1, -1, 1)
    assert watched.look(10, waiting=0) == []
    assert watched.look(0) == []
    (line,) = watched.look(UNANSWERED_S)
    assert line.startswith("t-1: no leader, so records wait; trying again for 30 s; ")
    assert watched.look(60) == [line]


def test_nothing_is_said_while_records_are_acknowledged_or_nobody_answers(watched: Watched) -> None:
    watched.producer = Leaders(-1)
    for _ in range(5):
        watched.watch.answered(0, acknowledged=True)
        assert watched.look(UNANSWERED_S) == []
    watched.producer.leaders = None
    assert watched.look(60) == []


def test_the_log_is_left_to_a_user_who_reads_it(watched: Watched) -> None:
    assert watched.watch.settings({"debug": "all"}) == {}
    assert watched.watch.settings({})["logger"] is watched.watch
