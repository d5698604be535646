"""`headrace pipeline compare`: at one position of the log, with an exit code that tells. No Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

sys.path.insert(1, str(Path(__file__).parents[2] / "tables"))

from delta_tables import write
from shop import made, topic

from headrace.cli.main import headrace as command
from headrace.cli.pipeline.compare import kinds_of
from headrace.tables.catalog import PipelineCatalog


@pytest.fixture
def catalog(tmp_path: Path) -> PipelineCatalog:
    catalog = PipelineCatalog.open(tmp_path, "shop")
    catalog.create_first("# one\n", ["orders"])
    catalog.begin_version("# two\n", ["orders"])
    return catalog


def batch(catalog: PipelineCatalog, version: int, number: int, first: int, end: int, value: str = "i * 10") -> None:
    """Records from the first up to the end, each a row."""
    source = topic("orders", p0=(first, end))
    write(
        catalog.layout.table_dir(version, "orders"),
        f"select i k, {value} v from range({first}, {end}) t(i)",
        made_by=made("orders", version, number, source),
    )


def compare(catalog: PipelineCatalog, *words: str, code: int = 0) -> str:
    given = ["pipeline", "compare", "shop", *words, "--tables", catalog.layout.tables_dir]
    ended = CliRunner().invoke(command, given)
    assert ended.exit_code == code, ended.output
    return ended.output


def compare_json(catalog: PipelineCatalog, *words: str, code: int = 0) -> Any:
    return json.loads(compare(catalog, *words, "--json", code=code))


def test_what_the_live_version_has_read_since_is_lag(catalog: PipelineCatalog) -> None:
    batch(catalog, 1, 0, 0, 5)
    batch(catalog, 1, 1, 5, 9)
    batch(catalog, 2, 0, 0, 5)
    said = compare(catalog)
    assert "orders: version 1 and version 2, at orders 0: 5" in said
    assert "version 1 has read 4 records more: lag, not compared" in said
    assert said.rstrip().endswith("equal; the rest is lag")
    compare(catalog, "--fail-on", "lag", code=3)
    found = compare_json(catalog)
    assert (found["equal"], found["failed"], found["kinds"]) == (True, False, ["lag"])
    table = found["tables"]["orders"]
    assert (table["same"], table["position"], table["exact"], table["ahead_old"]) == (5, {"orders": {"0": 5}}, True, 4)


def test_batches_that_ended_elsewhere_are_compared_around_the_position(catalog: PipelineCatalog) -> None:
    batch(catalog, 1, 0, 0, 4)
    batch(catalog, 1, 1, 4, 9)
    batch(catalog, 2, 0, 0, 6)
    said = compare(catalog, "--key", "k")
    assert "at orders 0: 6" in said
    assert "lag: changed in a batch of version 1 that reaches beyond that position" in said
    found = compare_json(catalog, "--key", "k")["tables"]["orders"]
    assert (found["same"], found["lag"], found["only_a"], found["exact"]) == (6, 3, 0, False)


def test_a_difference_that_may_be_lag_is_said_to_be_one(catalog: PipelineCatalog) -> None:
    batch(catalog, 1, 0, 0, 4)
    batch(catalog, 1, 1, 4, 9)
    batch(catalog, 2, 0, 0, 6, "case when i = 2 then 7 else i * 10 end")
    assert "some of these may be lag: the versions' batches ended at" in compare(catalog, "--key", "k", code=3)
    assert compare_json(catalog, "--key", "k", code=3)["tables"]["orders"]["doubtful"]


def test_a_table_that_was_taken_over_is_not_compared(catalog: PipelineCatalog) -> None:
    batch(catalog, 1, 0, 0, 4)
    catalog.begin_version("# three\n", ["orders"], taken={"orders": 1})
    assert "shared by both versions: orders\nequal" in compare(catalog)
    assert compare_json(catalog)["shared"] == ["orders"]


def test_a_difference_ends_with_3_and_fail_on_chooses(catalog: PipelineCatalog) -> None:
    batch(catalog, 1, 0, 0, 5)
    batch(catalog, 2, 0, 0, 5, "case when i = 2 then 7 else i * 10 end")
    assert compare(catalog, "--key", "k", code=3).rstrip().endswith("different: differing")
    compare(catalog, "--key", "k", "--fail-on", "only-old,only-new")
    compare(catalog, "--key", "k", "--fail-on", "none")
    compare(catalog, "--fail-on", "only-old", code=3)  # without a key a row that differs is two rows
    assert compare_json(catalog, "--key", "k", code=3)["kinds"] == ["differing"]
    assert "--fail-on 'rows': give any, none, or some of only-old" in compare(catalog, "--fail-on", "rows", code=2)


def test_tables_of_one_version_only_are_a_difference(catalog: PipelineCatalog) -> None:
    batch(catalog, 1, 0, 0, 5)
    batch(catalog, 2, 0, 0, 5)
    catalog.declare(2, tables=["orders", "more"])
    assert "only in version 2: more" in compare(catalog, code=3)
    compare(catalog, "--table", "orders")


def test_histories_without_offsets_are_compared_as_they_are(catalog: PipelineCatalog) -> None:
    for version in (1, 2):
        write(catalog.layout.table_dir(version, "orders"), "select 1 k")
    assert "as they are (their histories name no offsets)" in compare(catalog)


def test_what_fail_on_means() -> None:
    assert kinds_of(()) == kinds_of(("any",)) == {"only-old", "only-new", "differing", "columns", "tables"}
    assert kinds_of(("any,lag",)) - kinds_of(()) == {"lag"}
    assert kinds_of(("none",)) == frozenset()
