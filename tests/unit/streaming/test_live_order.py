"""Who begins when in a live run: nodes made of paper, of which some have tables without rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.streaming.live_order import LiveOrder


def paper(name: str) -> Any:
    node, progress = SimpleNamespace(name=name), SimpleNamespace(restarts=0)
    return SimpleNamespace(node=node, progress=progress, written=False, reported=False, ended=False)


def ordered(*, empty: str, **reads: str) -> tuple[LiveOrder, dict[str, Any]]:
    runs = {name: paper(name) for name in reads}
    graph: Any = SimpleNamespace(upstream=lambda name: [each for each in reads[name].split() if each in reads])
    return LiveOrder(graph, list(runs.values()), lambda name: name in empty.split()), runs


def test_a_reader_of_an_empty_table_waits_for_the_first_write_to_it() -> None:
    order, runs = ordered(empty="clean revenue", clean="orders", revenue="clean", clicks="pages")
    assert [name for name, run in runs.items() if order.may_begin(run)] == ["clean", "clicks"]
    runs["clean"].written = True
    assert order.may_begin(runs["revenue"])


def test_nobody_waits_for_a_table_of_an_earlier_run() -> None:
    order, runs = ordered(empty="", clean="orders", revenue="clean")
    assert order.may_begin(runs["revenue"])


def test_a_reader_does_not_wait_for_a_writer_that_has_nothing_to_write_or_fails() -> None:
    for sign in ("reported", "ended"):
        order, runs = ordered(empty="clean", clean="orders", revenue="clean")
        setattr(runs["clean"], sign, True)
        assert order.may_begin(runs["revenue"]), sign
    order, runs = ordered(empty="clean", clean="orders", revenue="clean")
    runs["clean"].progress.restarts = 1
    assert order.may_begin(runs["revenue"])
