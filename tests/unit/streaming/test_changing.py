"""Who may read a table whose rows change. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_files import graph_of

from headrace.core.errors import OperatorError
from headrace.streaming.changing import changes_how, changing_input, refuse, unmaintainable
from headrace.streaming.graph import Graph
from headrace.streaming.keyed.order import Order

CODE = """
orders = hr.topic("orders", schema="id int")

@hr.table(key="id")
def keyed(orders):
    return orders

@hr.view
def seen(keyed):
    return keyed

"""
CHANGING = {"keyed": "whose rows are merged by id"}


def graph(tmp_path: Path, node: str) -> Graph:
    return graph_of(tmp_path, CODE + node + "\n")


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("@hr.table\ndef t(keyed):\n    return keyed", "it has no key"),
        ("@hr.to_topic('x')\ndef t(orders, seen):\n    return seen", "it has no key"),
        ("@hr.for_each_batch\ndef t(rows=hr.stream('keyed')):\n    pass", "it has no key"),
        ("@hr.table\ndef t(rows=hr.stream('keyed', ignore_changes=True)):\n    return rows", "it has no key"),
        (
            "@hr.table(key='id', order_by='id')\ndef t(seen):\n    return seen",
            "cannot be used on a table that reads a changing",
        ),
        ("@hr.table(key='id', expect=hr.warn('id > 0'))\ndef t(seen):\n    return seen", "it has expectations"),
        ("@hr.table(key='id')\ndef t(orders, seen):\n    return seen", "something other than tables of this pipeline"),
        ("@hr.table(key='id')\ndef t(keyed, seen):\n    return seen", "it reads a table twice"),
    ],
)
def test_a_table_that_changes_is_refused_as_a_stream_with_the_choices(tmp_path: Path, node: str, why: str) -> None:
    made = graph(tmp_path, node)
    reader = made.nodes["t"]
    table = changing_input(made, reader, CHANGING)
    assert table == "keyed"
    found = unmaintainable(made, reader)
    assert found is not None
    assert why in found
    with pytest.raises(OperatorError) as refused:
        refuse(reader, table, CHANGING[table], found)
    said = str(refused.value)
    assert said.startswith(f"{reader.place}: t: reads keyed, whose rows are merged by id; as a stream")
    assert all(choice in said for choice in (found, "@hr.materialized", "made of", "change_feed=True"))


@pytest.mark.parametrize(
    "node",
    [
        "@hr.table\ndef t(orders):\n    return orders",
        "@hr.table\ndef t(rows=hr.stream('keyed', change_feed=True)):\n    return rows",
        "@hr.for_each_batch\ndef t(orders, rows=hr.static('keyed')):\n    pass",
    ],
)
def test_what_says_that_it_knows_is_taken(tmp_path: Path, node: str) -> None:
    made = graph(tmp_path, node)
    assert changing_input(made, made.nodes["t"], CHANGING) is None


def test_a_keyed_table_may_be_kept_up_to_date_from_changes(tmp_path: Path) -> None:
    made = graph(tmp_path, "@hr.table(key='id')\ndef t(seen):\n    return seen")
    assert unmaintainable(made, made.nodes["t"]) is None
    assert made.reads_changes_of("keyed")


def test_a_table_whose_keys_are_written_once_does_not_change(tmp_path: Path) -> None:
    made = graph(tmp_path, "@hr.materialized(every='10 minutes')\ndef t(keyed):\n    return keyed")
    once = Order(by=(), placed=False, timed=False)
    ordered = Order(by=("lsn",), placed=False, timed=False)
    assert changes_how(made.nodes["keyed"], once) is None
    assert changes_how(made.nodes["keyed"], ordered) == "whose rows are merged by id"
    assert changes_how(made.nodes["keyed"], None) == "whose rows are merged by id"
    assert changes_how(made.nodes["t"], None) == "which is computed again as a whole"
    assert changes_how(made.nodes["seen"], None) is None
    assert made.nodes["t"].trigger == "600000 milliseconds"
    assert not made.reads_changes_of("keyed")


def test_how_often_is_whole_milliseconds(tmp_path: Path) -> None:
    for every, trigger in {"2 weeks": "1209600000", "0.5 seconds": "500", "0.0001 seconds": "1"}.items():
        made = graph(tmp_path, f"@hr.materialized(every={every!r})\ndef t(keyed):\n    return keyed")
        assert made.nodes["t"].trigger == f"{trigger} milliseconds"


def test_a_materialized_table_is_not_made_of_a_topic(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"t: reads the topic 'orders', and a materialized table is computed from"):
        graph(tmp_path, "@hr.materialized\ndef t(orders):\n    return orders")


@pytest.mark.parametrize("kind", ["@hr.table", "@hr.table(key='id')", "@hr.to_topic('x')", "@hr.view"])
def test_a_static_table_of_the_same_pipeline_is_refused_with_the_choices(tmp_path: Path, kind: str) -> None:
    with pytest.raises(OperatorError) as refused:
        graph(tmp_path, f"{kind}\ndef t(orders, rows=hr.static('keyed')):\n    return orders")
    said = str(refused.value)
    assert "t: hr.static('keyed') is a table of this pipeline, and what a batch finds in it depends on when it" in said
    assert "Read keyed by its name: in a table with key=" in said
    assert "@hr.materialized" in said
