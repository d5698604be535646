"""`headrace pipeline run` where no JVM may start: what it says before."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from ports import reserved_port

import headrace as hr
from headrace.cli.main import headrace
from headrace.cli.pipeline import run as pipeline_run
from headrace.streaming import kafka, session

SHOP = """import headrace as hr

orders = hr.topic("orders", schema="id int")


@hr.table
def clean(orders):
    return orders
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been started."""
    steps: list[str] = []
    monkeypatch.setattr(pipeline_run, "prepare", lambda say: steps.append("prepare"))
    monkeypatch.setattr(session, "running", lambda *_, **__: steps.append("spark"))
    return steps


def run(tmp_path: Path, bootstrap: str) -> tuple[int, str]:
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    command = ["pipeline", "run", str(file), "--tables", str(tmp_path / "tables"), "--bootstrap", bootstrap]
    result = CliRunner().invoke(headrace, command)
    return result.exit_code, result.output


def test_no_broker_is_said_in_one_line_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    monkeypatch.setattr(kafka, "REACH_S_MAX", 0.01)
    with reserved_port() as port:
        code, said = run(tmp_path, f"127.0.0.1:{port}")
    assert (code, started) == (1, [])
    assert said == (
        f"headrace: 127.0.0.1:{port}: no broker answers (connection refused); "
        f"start one with: headrace up, or correct --bootstrap\n"
    )


def test_a_missing_topic_is_said_with_its_line_before_spark_starts(tmp_path: Path, started: list[str]) -> None:
    with hr.Broker() as broker:
        address = broker.bootstrap_servers
        code, said = run(tmp_path, address)
    assert (code, started) == (1, [])
    assert f"{tmp_path}/shop.py:3: topic 'orders' is not at {address}; create it or send to it" in said
    assert len(said.splitlines()) == 1
