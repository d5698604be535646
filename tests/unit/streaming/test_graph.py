"""Names joined to a graph: the order of nodes, and everything that can be wrong with names."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_files import graph_of

from headrace.core.errors import OperatorError
from headrace.streaming.graph import make_graph
from headrace.streaming.loading import LoadedPipeline
from headrace.streaming.own_modules import OwnModules

SHOP = """
orders = hr.topic("orders", schema="id string, amount double")
customers = hr.static("customers")

@hr.to_topic("big")
def big(joined):
    return joined

@hr.table(key="id")
def totals(clean):
    return clean

@hr.view
def joined(clean, customers):
    return clean

@hr.table
def clean(orders):
    return orders
"""


def test_nodes_come_after_what_they_read(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, SHOP)
    order = list(graph.nodes)
    assert order.index("clean") < order.index("joined") < order.index("big")
    assert order.index("clean") < order.index("totals")
    assert [node.name for node in graph.tables] == ["clean", "totals"]


def test_views_are_inlined(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, SHOP)
    assert graph.upstream("big") == ("clean",)
    assert [node.name for node in graph.queries] == ["clean", "big", "totals"]
    assert [topic.topic for topic in graph.topics("clean")] == ["orders"]
    assert graph.topics("big") == ()


def test_a_keyed_table_is_read_by_its_changes_and_an_appended_one_is_not(tmp_path: Path) -> None:
    more = "\n@hr.table\ndef audit(totals):\n    return totals\n"
    assert not graph_of(tmp_path, SHOP).reads_changes_of("totals")
    graph = graph_of(tmp_path, SHOP + more)
    assert graph.reads_changes_of("totals")
    assert not graph.reads_changes_of("clean")


def test_a_stream_of_an_own_table_is_an_edge_to_its_node(tmp_path: Path) -> None:
    code = SHOP + '\n@hr.table\ndef audit(changes=hr.stream("clean", change_feed=True)):\n    return changes\n'
    graph = graph_of(tmp_path, code)
    assert graph.upstream("audit") == ("clean",)
    assert graph.reads_changes_of("clean")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def x(ordrs): return ordrs", r"x: reads 'ordrs', .* did you mean 'orders'\?"),
        ("def clean(orders): return orders", r"clean: declared already at .*shop\.py:\d+"),
        ("def orders(clean): return clean", "orders: has the name of the source at"),
        ("def x(big): return big", r"big writes a topic; read it with hr\.topic\('big'"),
        ("def x(customers): return customers", "reads only static tables"),
        ("def x(c=hr.stream('joined')): return c", "joined is a view, which is not stored"),
        ("def _x(orders): return orders", "not a name for a table"),
    ],
)
def test_wrong_names_are_said_with_their_line(tmp_path: Path, code: str, says: str) -> None:
    with pytest.raises(OperatorError, match=rf"shop\.py:\d+: .*{says}"):
        graph_of(tmp_path, SHOP + "\n@hr.table\n" + code + "\n")


def test_a_circle_is_said_with_its_way(tmp_path: Path) -> None:
    code = """
    @hr.table
    def a(c): return c
    @hr.view
    def b(a): return a
    @hr.table
    def c(b): return b
    """
    with pytest.raises(OperatorError, match="reads itself by way of a -> c -> b -> a"):
        graph_of(tmp_path, code)


def test_two_expectations_of_one_name_are_refused(tmp_path: Path) -> None:
    code = """
    orders = hr.topic("orders", schema="a int")
    @hr.table(expect=[hr.warn("a > 0"), hr.drop("a > 0")])
    def clean(orders): return orders
    """
    with pytest.raises(OperatorError, match="two expectations are named 'a > 0'"):
        graph_of(tmp_path, code)


def test_a_node_that_reads_the_topic_that_it_writes_is_refused(tmp_path: Path) -> None:
    code = """
    orders = hr.topic("orders", schema="a int")
    @hr.to_topic("orders")
    def again(orders): return orders
    """
    with pytest.raises(OperatorError, match="would never end"):
        graph_of(tmp_path, code)


@pytest.mark.parametrize(("into", "says"), [("cleen", "did you mean 'clean'"), ("totals", "not a table of appended")])
def test_a_table_is_filled_back_only_where_rows_are_appended(tmp_path: Path, into: str, says: str) -> None:
    code = SHOP + f'\n@hr.table(into="{into}", replace_where="true")\ndef back(orders): return orders\n'
    with pytest.raises(OperatorError, match=says):
        graph_of(tmp_path, code)


def test_a_file_that_writes_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="writes no table and no topic"):
        graph_of(tmp_path, 'orders = hr.topic("orders", schema="a int")')


@given(st.lists(st.sets(st.integers(0, 9), max_size=4), min_size=1, max_size=10))
def test_any_graph_without_a_circle_is_ordered_and_any_with_one_is_refused(reads: list[set[int]]) -> None:
    import headrace as hr
    from headrace.streaming.declarations import collecting

    count = len(reads)
    with collecting() as declared:
        source = hr.topic("t", schema="a int")
        for index, read in enumerate(reads):
            names = ", ".join(["t", *(f"n{each}" for each in sorted(read) if each < count)])
            scope: dict[str, object] = {}
            exec(f"def n{index}({names}): return t", scope)
            hr.table(scope[f"n{index}"])  # type: ignore[call-overload]
    loaded = LoadedPipeline(
        pipeline="p", file="p.py", code="", sources={"t": source}, nodes=tuple(declared.nodes),
        module=ModuleType("p"), own=OwnModules("p"),
    )  # fmt: skip
    edges = {index: {each for each in read if each < count} for index, read in enumerate(reads)}
    if _has_circle(edges):
        with pytest.raises(OperatorError, match="reads itself"):
            make_graph(loaded)
        return
    order = [int(name[1:]) for name in make_graph(loaded).nodes]
    assert sorted(order) == list(range(count))
    assert all(order.index(each) < order.index(index) for index, read in edges.items() for each in read)


def _has_circle(edges: dict[int, set[int]]) -> bool:
    left = {node: set(read) for node, read in edges.items()}
    while left:
        free = [node for node, read in left.items() if not read & left.keys()]
        if not free:
            return True
        for node in free:
            del left[node]
    return False
