"""`headrace pipeline run` and `replay` at a real terminal: what a person sees, in any size, and what is left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from conftest import QUICK_JAVA, QUICK_SPARK
from pipeline_runs import HEAD
from screens import TmuxScreen, tmux_missing, until
from waits import WAIT_S_MAX, eventually

import headrace

CODE = """
seen = hr.topic("seen", schema="id int, k string")

@hr.table(expect={{"small": hr.quarantine("id < 100")}})
def kept(seen):
    print("made by hand")
    return seen.withColumn("v", F.lit({v}))
"""
STOPPED = """
@hr.table(expect={"has a key": hr.fail("k is not null")})
def checked(seen):
    return seen
"""
NOISE = re.compile(r"WARN|ERROR|Traceback|java\.|log4j|SLF4J|\x1b")

pytestmark = pytest.mark.skipif(tmux_missing(), reason="tmux is not installed")


@contextmanager
def screen(*args: object, width: int, height: int) -> Iterator[TmuxScreen]:
    opened = TmuxScreen(*args, width=width, height=height)
    try:
        yield opened
    finally:
        opened.close()


def send(broker: headrace.Broker, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce("seen", value)
    assert producer.flush(WAIT_S_MAX) == 0


def whole(text: str) -> str:
    """As it was before it was wrapped."""
    return " ".join(text.split())


def left_clean(opened: TmuxScreen, code: int) -> str:
    shown = until(opened, f"ended with {code}")
    assert (opened.state("cursor_flag"), opened.state("alternate_on")) == ("1", "0")
    assert not NOISE.search(shown), shown
    assert "Ctrl-C stops it" not in shown
    return shown


def test_a_run_and_a_replay_of_it_as_a_person_sees_them(shared_broker: headrace.Broker, tmp_path: Path) -> None:
    send(shared_broker, *(f'{{"id": {number}, "k": "a"}}' for number in range(5)), '{"id": 500, "k": "b"}')
    file, changed = tmp_path / "shop.py", tmp_path / "shop_changed.py"
    file.write_text(HEAD + CODE.format(v=1) + STOPPED)
    changed.write_text(HEAD + 'hr.pipeline("shop")\n' + CODE.format(v=2))
    conf = {"spark.driver.extraJavaOptions": QUICK_JAVA, "spark.driver.memory": "1g", **QUICK_SPARK}
    options = ["--tables", tmp_path / "tables", "--bootstrap", shared_broker.bootstrap_servers, "--master", "local[1]"]
    options += [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    with screen("pipeline", "run", file, *options, width=80, height=24) as run:
        until(run, "s  opening a Spark session (local[1])")
        assert run.state("alternate_on") == "1"
        for node in ("kept", "checked"):
            row = re.compile(rf"{node} +running +0 +\d+ +\d+ .* 0 +[\d.]+ m?s")
            until(run, lambda text, row=row: row.search(text) is not None)  # type: ignore[misc]
        shown = until(run, "small: 1 quarantine")
        assert "made by hand" in shown
        assert shown.splitlines()[0] == "shop version 1, running"
        assert re.fullmatch(r"Ctrl-C stops it; \d+ (s|min)", shown.rstrip("\n").splitlines()[-1])
        # One node stops; why is seen whole in any size, and the other goes on.
        send(shared_broker, '{"id": 7}')
        failed = "expectation failed: has a key (k is not null) in"
        until(run, lambda text: "failed" in text and failed in whole(text))
        for width, height in ((46, 16), (120, 30), (80, 24)):
            run.resize(width, height)
            shown = until(run, lambda text, width=width: _fits(text, width) and failed in whole(text))  # type: ignore[misc]
            assert "fix the data or the expectation, then run again" in whole(shown)
            assert re.search(r"checked\s+failed", shown)
            assert re.search(r"kept\s+running", shown)
        with screen("pipeline", "replay", changed, *options, width=70, height=20) as replay:
            shown = until(replay, "shop version 2, caught up")
            assert "make it live with: headrace pipeline cutover shop" in whole(shown)
            replay.press("ctrl-c")
            shown = left_clean(replay, 0)
            assert "shop version 2: stopped" in shown
            assert re.search(r"kept +stopped", shown)
        run.press("ctrl-c")
        shown = left_clean(run, 1)
    assert failed in whole(shown)
    assert re.search(r"kept +stopped", shown)
    assert "made by hand" in shown
    assert shown.count("headrace: checked: batch 1 (seen offsets") == 1


def _fits(text: str, width: int) -> bool:
    """That it was drawn again: the bottom line is where it belongs."""
    return (
        text.rstrip("\n").splitlines()[-1].startswith("Ctrl-C stops it") and max(map(len, text.splitlines())) <= width
    )


def test_ctrl_c_while_spark_starts_leaves_nothing_running(shared_broker: headrace.Broker, tmp_path: Path) -> None:
    send(shared_broker, '{"id": 1, "k": "a"}')  # without the topic Spark would not be started
    file = tmp_path / "shop.py"
    file.write_text(HEAD + CODE.format(v=1))
    options = ["--tables", tmp_path / "tables", "--bootstrap", shared_broker.bootstrap_servers]
    with screen("pipeline", "run", file, *options, width=80, height=24) as run:
        shell = int(run.state("pane_pid"))
        java = eventually(lambda: [each for each in descendants(shell) if "SparkSubmit" in command_of(each)], "a JVM")
        run.press("ctrl-c")
        shown = left_clean(run, 130)
        assert shown.splitlines()[0] == "headrace: stopped"
        assert not [each for each in java if "SparkSubmit" in command_of(each)]


def descendants(pid: int) -> list[int]:
    try:
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(each for child in children for each in descendants(child))]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
