"""Quarantined rows go through the present code, each exactly once, wherever the process is killed; runs of a part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pipeline_runs import Bench

from headrace.core.errors import OperatorError
from headrace.streaming import redrive
from headrace.streaming.delta_sink import DeltaSink
from headrace.streaming.launching import launch_live
from headrace.streaming.redrive import Redrive, Redriven

CODE = """
sales = hr.topic("redriven", schema="id int, amount double")

@hr.table(expect={{"positive": hr.quarantine("amount > 0"), "small": hr.quarantine("amount < 100")}})
def kept(sales):
    return sales.withColumn("amount", {amount})
"""


class Killed(BaseException):
    pass


@contextmanager
def killed_after(owner: Any, name: str) -> Iterator[None]:
    """The process ends when this has been done."""
    real = getattr(owner, name)

    def once(*given: Any, **more: Any) -> Any:
        real(*given, **more)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, once)
        with pytest.raises(Killed):
            yield


def test_what_was_bad_is_sent_again_exactly_once(bench: Bench) -> None:
    bench.send("redriven", [{"id": n, "amount": float(n - 1)} for n in range(4)])  # -1, 0, 1, 2
    bench.send("redriven", [{"id": "x", "amount": 5.0}, {"id": 9, "amount": 500.0}])
    bench.once(bench.file(CODE.format(amount='F.col("amount")')))
    assert [row.id for row in bench.rows("kept", "id")] == [2, 3]
    assert len(bench.quarantine("kept")) == 4
    # The function makes amounts positive now; one stays too large, one is of a wrong type as before.
    path = bench.file(CODE.format(amount='F.abs("amount") + F.lit(0.5)'))
    runner = bench.runner(launch_live(path, bench.tables, accept_change=True))
    runner.prepare()
    with killed_after(Redrive, "_mark"):
        runner.redrive()
    with killed_after(DeltaSink, "write"):
        runner.redrive()
    with killed_after(redrive, "append"):
        runner.redrive()
    # What was interrupted is completed; then the large one is tried again and put back. Nothing is doubled.
    assert runner.redrive() == [Redriven(node="kept", sent=1, written=0, kept=2)]
    assert [(row.id, row.amount) for row in bench.rows("kept")] == [(0, 1.5), (1, 0.5), (2, 1.0), (3, 2.0)]
    assert sorted(row.reason.split(" (")[0].split(":")[0] for row in bench.quarantine("kept")) == [
        "small",
        "wrong type",
    ]


def test_only_the_chosen_nodes_run(bench: Bench) -> None:
    bench.send("a-part", [{"id": 1}])
    path = bench.file("""
        part = hr.topic("a-part", schema="id int")

        @hr.table
        def one(part):
            return part

        @hr.table
        def two(one):
            return one
        """)
    progress = bench.once(path, only=("one",))
    assert (list(progress.nodes), progress.only) == (["one"], ["one"])
    assert (len(bench.rows("one")), len(bench.rows("two"))) == (1, 0)
    bench.once(path, only=("two",))
    assert len(bench.rows("two")) == 1
    with pytest.raises(OperatorError, match=r"tow: no node of shop that writes; did you mean two\?"):
        bench.once(path, only=("tow",))
