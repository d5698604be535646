"""Who begins when in a run with `once`: nodes made of paper, whose tables have versions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.streaming.declarations import TableOutput
from headrace.streaming.once_order import OnceOrder


class Nodes:
    """A chain or a tree: `reads` says what each node reads."""

    def __init__(self, *, appends: set[str], whole: frozenset[str] = frozenset(), **reads: str) -> None:
        self.runs = {name: _run(name) for name in reads}
        self.versions = dict.fromkeys(reads, 0)
        graph: Any = SimpleNamespace(
            upstream=lambda name: [each for each in reads[name].split() if each in reads],
            queries=[run.node for run in self.runs.values()],
        )
        self.order = OnceOrder(graph, list(self.runs.values()), self.versions.__getitem__, appends, whole)

    def may_begin(self) -> list[str]:
        return [name for name, run in self.runs.items() if not run.begun and self.order.may_begin(run)]

    def begin(self, *names: str) -> None:
        for name in names:
            self.runs[name].begun, self.runs[name].ended = True, False

    def write(self, name: str) -> None:
        self.runs[name].written = True
        self.versions[name] += 1

    def finish(self, *names: str) -> None:
        for name in names:
            self.runs[name].ended, self.runs[name].progress.status = True, "finished"

    def again(self) -> list[str]:
        return [run.node.name for run in self.order.again()]


def _run(name: str) -> Any:
    node = SimpleNamespace(name=name, output=TableOutput())
    progress = SimpleNamespace(status="waiting")
    return SimpleNamespace(node=node, progress=progress, begun=False, ended=False, written=False)


def test_a_reader_of_an_appended_table_begins_after_its_first_write() -> None:
    nodes = Nodes(appends={"clean"}, clean="orders", revenue="clean")
    assert nodes.may_begin() == ["clean"]
    nodes.begin("clean")
    assert nodes.may_begin() == []
    nodes.write("clean")
    assert nodes.may_begin() == ["revenue"]


def test_a_reader_of_a_table_whose_rows_change_waits_for_its_end() -> None:
    nodes = Nodes(appends=set(), silver="orders", gold="silver")
    nodes.begin("silver")
    nodes.write("silver")
    assert nodes.may_begin() == []
    nodes.finish("silver")
    assert nodes.may_begin() == ["gold"]


def test_who_reads_a_table_as_a_whole_waits_for_its_end() -> None:
    nodes = Nodes(appends={"clean"}, whole=frozenset({"joined"}), clean="orders", joined="clean")
    nodes.begin("clean")
    nodes.write("clean")
    assert nodes.may_begin() == []


def test_an_early_reader_is_started_again_only_if_the_table_has_grown() -> None:
    for grows in (False, True):
        nodes = Nodes(appends={"clean"}, clean="orders", revenue="clean")
        nodes.begin("clean")
        nodes.write("clean")
        assert nodes.may_begin() == ["revenue"]
        nodes.begin("revenue")
        nodes.finish("revenue")
        assert nodes.again() == []
        if grows:
            nodes.write("clean")
        nodes.finish("clean")
        assert nodes.again() == (["revenue"] if grows else [])
        nodes.begin("revenue")
        nodes.finish("revenue")
        assert nodes.again() == []


def test_who_reads_an_early_reader_sees_what_its_second_start_wrote() -> None:
    for middle_appends in (False, True):
        appends = {"clean", "middle"} if middle_appends else {"clean"}
        nodes = Nodes(appends=appends, last="middle", middle="clean", clean="orders")
        nodes.begin("clean")
        nodes.write("clean")
        assert nodes.may_begin() == ["middle"]
        nodes.begin("middle")
        nodes.write("middle")
        nodes.finish("middle")
        assert nodes.may_begin() == (["last"] if middle_appends else [])
        if middle_appends:
            nodes.begin("last")
            nodes.finish("last")
        nodes.write("clean")
        nodes.finish("clean")
        assert nodes.again() == ["middle"]
        nodes.begin("middle")
        nodes.write("middle")
        nodes.finish("middle")
        if middle_appends:
            assert nodes.again() == ["last"]
        else:
            assert (nodes.again(), nodes.may_begin()) == ([], ["last"])
