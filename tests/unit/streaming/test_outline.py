"""What is known of a pipeline without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_files import graph_of

from headrace.streaming.declarations import PipelineError
from headrace.streaming.outline import check_tables, outline

SHOP = """
orders = hr.topic("orders", schema="id int, amount double")
prices = hr.static("prices")

@hr.view
def good(orders):
    return orders

@hr.table(key="id", expect={"positive": hr.drop("amount > 0")})
def latest(good, prices):
    return good

@hr.to_topic("out", latency="realtime")
def fast(orders):
    return orders

@hr.for_each_batch
def audit(changes=hr.stream("latest", change_feed=True), now=hr.static("latest")):
    pass
"""


def test_each_query_is_told_with_what_it_reads_and_writes(tmp_path: Path) -> None:
    nodes = {node.name: node for node in outline(graph_of(tmp_path, SHOP))}
    assert {name: (node.reads, node.writes) for name, node in nodes.items()} == {
        "latest": (("topic orders", "static prices"), "table latest merged by id"),
        "fast": (("topic orders",), "topic out at least once, in real time"),
        "audit": (("changes of table latest", "static latest"), "whatever its function writes"),
    }
    assert nodes["latest"].notes == ("drop unless amount > 0  (positive)",)
    assert nodes["audit"].notes == (
        "latest is read as it changes: how many steps a row takes depends on the batches",
        "latest is joined as it is when a batch runs: the result depends on the batches",
    )


def test_a_table_that_is_not_there_is_named_with_the_line_that_reads_it(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, SHOP)
    with pytest.raises(PipelineError, match=r"shop\.py:4: hr\.static\('prices'\): no such table in .*/tables; run "):
        check_tables(graph, str(tmp_path / "tables"))
    (tmp_path / "tables" / "prices").mkdir(parents=True)
    check_tables(graph, str(tmp_path / "tables"))


@pytest.mark.parametrize(
    "given", ['"s3://bucket/prices"', '"/far/away/prices"', '"~/prices"', '"prices@v3"', '"prices-*.csv", format="csv"']
)
def test_what_is_not_a_plain_name_is_left_to_spark(tmp_path: Path, given: str) -> None:
    check_tables(graph_of(tmp_path, SHOP.replace('"prices"', given)), str(tmp_path))


def test_an_object_store_is_left_to_spark(tmp_path: Path) -> None:
    check_tables(graph_of(tmp_path, SHOP), "s3://bucket/tables")


@pytest.mark.parametrize("where", ["latest", ".headrace/shop/v1/latest", "../tables/latest"])
def test_a_table_of_the_pipeline_is_not_read_by_its_path(tmp_path: Path, where: str) -> None:
    """By its path it would be read as if it were not made by the same run."""
    tables = tmp_path / "tables"
    (tables / ".headrace" / "shop" / "v1" / "latest").mkdir(parents=True)
    code = SHOP.replace("def fast(orders)", f"def fast(orders, now=hr.static({str(tables / where)!r}))")
    with pytest.raises(PipelineError, match=r"shop\.py:\d+: fast: hr\.static\(.*\) is a table of this pipeline"):
        check_tables(graph_of(tmp_path, code.replace('hr.static("prices")', 'hr.static("s3://x/prices")')), str(tables))
    (tables / "elsewhere").mkdir()
    code = code.replace(str(tables / where), str(tables / "elsewhere"))
    check_tables(graph_of(tmp_path, code.replace('hr.static("prices")', 'hr.static("s3://x/prices")')), str(tables))
