"""What is made once for Spark is made once, and what goes wrong with it never stops a run."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from typing import Any

import pytest

from headrace.cli import preparing
from headrace.streaming import checks, jars, java, quick_start, training
from headrace.streaming.quick_start import QuickStart

FOUND = QuickStart(java="java", class_path=(), options=(), archive="classes.jsa", used="used")
WITHOUT = QuickStart(java="java", class_path=(), options=(), archive=None, used="used")


class Starts:
    """Stands for the directory; `found_in_turn` is what each look at it finds."""

    def __init__(self, *found_in_turn: QuickStart | None, wanted: bool = True) -> None:
        self._found = list(found_in_turn)
        self.wanted = wanted
        self.linked: list[str] = []

    def found(self) -> QuickStart | None:
        return self._found.pop(0)

    def alone(self) -> Any:
        return nullcontext()

    def archiving(self) -> Any:
        return nullcontext("archive")

    def link(self, options: str) -> None:
        self.linked.append(options)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(checks, "check_spark_installed", lambda: None)
    monkeypatch.setattr(java, "find_java", lambda: None)
    monkeypatch.setattr(jars, "ready_jars", lambda java, say: ())
    monkeypatch.setattr(training, "module_options", lambda java: "--add-opens=x")
    return []


def prepare_with(
    starts: Starts, said: list[str], monkeypatch: pytest.MonkeyPatch, *, fails: bool = False, train: bool = False
) -> int:
    """How many training runs there were."""
    runs = []

    def run(words: list[str], **more: Any) -> None:
        runs.append(words)
        if fails:
            raise subprocess.CalledProcessError(1, "training")

    monkeypatch.setattr(quick_start, "QuickStarts", lambda java, jars: starts)
    monkeypatch.setattr(preparing.subprocess, "run", run)
    preparing.prepare(said.append, train=train)
    return len(runs)


@pytest.mark.parametrize(
    ("starts", "train", "links", "runs"),
    [
        (Starts(None, None), False, 1, 0),
        (Starts(WITHOUT), False, 0, 0),
        (Starts(FOUND), False, 0, 0),
        (Starts(None, FOUND), False, 0, 0),
        (Starts(None, None), True, 1, 1),
        (Starts(WITHOUT, WITHOUT), True, 0, 1),
        (Starts(None, WITHOUT), True, 0, 1),
        (Starts(FOUND), True, 0, 0),
        (Starts(WITHOUT, FOUND), True, 0, 0),
        (Starts(wanted=False), True, 0, 0),
    ],
    ids=[
        "nothing yet",
        "no archive yet",
        "there",
        "made meanwhile",
        "nothing yet, train",
        "no archive yet, train",
        "linked meanwhile, train",
        "there, train",
        "made meanwhile, train",
        "off",
    ],
)
def test_each_part_is_made_once_and_the_archive_only_on_request(
    starts: Starts, train: bool, links: int, runs: int, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prepare_with(starts, said, monkeypatch, train=train) == runs
    assert len(starts.linked) == links
    assert len(said) == runs


def test_a_failed_training_run_is_one_line(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_with(Starts(None, None), said, monkeypatch, fails=True, train=True)
    assert said[-1].startswith("Spark starts without a class archive, a few seconds slower: ")
