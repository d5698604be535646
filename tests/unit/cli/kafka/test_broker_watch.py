"""When a tool gives up on its brokers."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from headrace.cli.kafka.broker_watch import BrokerWatch
from headrace.cli.kafka.tool import ToolError
from headrace.client import greeting

AWAY = KafkaError(KafkaError._ALL_BROKERS_DOWN)
NOW = {"bootstrap.servers": "127.0.0.1:9", "default.api.timeout.ms": "0"}


def refuse(*_: object) -> bool:
    raise ToolError("No broker answers")


def test_brokers_that_stay_away_end_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "greet", refuse)
    said: list[str] = []
    watch = BrokerWatch(NOW, said.append)
    watch.check("nothing was read")
    watch.on_error(AWAY)
    watch.on_error(AWAY)
    assert said == ["No broker answers any more; trying again for 0 s"]
    with pytest.raises(ToolError, match="No broker answered for 0 s; nothing was read"):
        watch.check("nothing was read")


def test_a_broker_that_is_back_is_noticed_though_nothing_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "greet", lambda *_: False)
    said: list[str] = []
    watch = BrokerWatch(NOW, said.append)
    watch.on_error(AWAY)
    watch.check("nothing was read")
    assert not watch.away
    watch.on_error(AWAY)
    assert len(said) == 2
