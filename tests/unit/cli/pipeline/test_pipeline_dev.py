"""`headrace pipeline dev`: which records are the sample, when a save is seen, what is shown. No Spark."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ports import reserved_port

from headrace.cli.main import headrace as command
from headrace.cli.pipeline import dev as pipeline_dev
from headrace.cli.pipeline.dev import interrupts, show, state_of
from headrace.streaming import kafka
from headrace.streaming.trial import Trial, Tried, sample_ranges


@given(
    spans=st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6),
    most=st.integers(1, 60),
)
def test_the_sample_is_the_newest_records_and_as_many_as_there_may_be(
    spans: dict[int, tuple[int, int]], most: int
) -> None:
    firsts = {partition: first for partition, (first, _) in spans.items()}
    ends = {partition: first + count for partition, (first, count) in spans.items()}
    ranges = sample_ranges(firsts, ends, most)
    there = sum(count for _, count in spans.values())
    assert sum(end - start for start, end in ranges.values()) == min(there, most)
    for partition, (start, end) in ranges.items():
        assert firsts[partition] <= start < end == ends[partition]


def test_a_save_is_seen_also_one_that_replaces_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("a = 1\n")
    files = frozenset({str(file)})
    before = state_of(files)
    assert state_of(files) == before
    (tmp_path / "new").write_text("a = 22\n")
    (tmp_path / "new").replace(file)
    after = state_of(files)
    assert after != before
    file.unlink()
    assert state_of(files) != after


def test_rows_columns_and_reasons_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    good = Tried(node="clean", rows=2, left_out=1, columns=(("id", "int"), ("v", "string")), sample=(("1", None),),
                 before=True)  # fmt: skip
    bad = Tried(node="totals", error="shop.py:3: totals: no column named x")
    show(Trial(number=2, seconds=1.25, nodes=(good, bad), records={"orders": 1000}, unparsed={"orders": 6}), "shop.py")
    said = capsys.readouterr().out
    last = said.splitlines()[-1]
    assert last == "shop.py  run 2, 1.2 s  1,000 records of orders (6 could not be parsed)  1 of 2 nodes gave nothing"
    assert "clean  2 rows, 1 left out by expectations  as before\n  id int, v string\n" in said
    assert "null" in said
    assert "totals  shop.py:3: totals: no column named x" in said


def test_a_file_that_is_not_there_is_said_before_spark_starts(tmp_path: Path) -> None:
    ended = CliRunner().invoke(command, ["pipeline", "dev", str(tmp_path / "none.py")])
    assert ended.exit_code == 1
    assert ended.output.endswith("none.py: no such file or directory; give the path of a pipeline's Python file\n")


def test_no_broker_is_said_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(pipeline_dev, "prepare", lambda say: steps.append("prepare"))
    monkeypatch.setattr(kafka, "REACH_S_MAX", 0.01)
    file = tmp_path / "shop.py"
    file.write_text("import headrace as hr\norders = hr.topic('orders', schema='id int')\n\n\n"
                    "@hr.table\ndef clean(orders):\n    return orders\n")  # fmt: skip
    with reserved_port() as port:
        ended = CliRunner().invoke(command, ["pipeline", "dev", str(file), "--bootstrap", f"127.0.0.1:{port}"])
    assert (ended.exit_code, steps) == (1, [])
    assert ended.output.startswith(f"headrace: 127.0.0.1:{port}: no broker answers")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_known_as_one_whatever_it_makes_fail(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with interrupts() as stopped:
        assert not stopped.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        assert stopped.is_set()
        assert not logging.getLogger("py4j").isEnabledFor(logging.ERROR)
    assert logging.getLogger("py4j").isEnabledFor(logging.ERROR)
    assert signal.getsignal(number) is before
