"""A pipeline from Python: `hr.run`, `hr.check`, `hr.read_table`, `hr.spark`, and the fixtures of the test kit."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import QUICK_JAVA, QUICK_SPARK
from waits import WAIT_S_MAX

import headrace as hr
from headrace.core.errors import OperatorError
from headrace.testing import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.testing.plugin import OpenPipeline

SHOP = """
import headrace as hr
from pyspark.sql import functions as F

sales = hr.topic("sales", schema="id int, customer string, amount double")

@hr.table(expect={"amount is positive": hr.quarantine("amount > 0")})
def clean(sales):
    return sales

@hr.table(key="customer")
def revenue(clean):
    return clean.groupBy("customer").agg(F.sum("amount").alias("amount"))

@hr.to_topic("big", key="customer")
def big(clean):
    return clean.where("amount > 100").select("customer", "amount")
"""
SALES: list[dict[str, Any]] = [
    {"id": 1, "customer": "ann", "amount": 10.0},
    {"id": 2, "customer": "bob", "amount": 200.0},
    {"id": 3, "customer": "ann", "amount": -1.0},
    {"id": 4, "customer": "ann", "amount": 5.0},
]
REVENUE = [{"customer": "ann", "amount": 15.0}, {"customer": "bob", "amount": 200.0}]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return path


def test_rows_in_two_batches_become_tables_topics_and_a_quarantine(headrace_pipeline: OpenPipeline, shop: Path) -> None:
    made = headrace_pipeline(
        shop, batches=[{"sales": SALES[:2]}, {"sales": [*SALES[2:], "no JSON", Record(value=b"{")]}]
    )
    assert made.rows("revenue") == REVENUE
    assert made.rows("clean", "id") == [{"id": 1}, {"id": 2}, {"id": 4}]
    assert [(record.key, record.json) for record in made.records("big")] == [
        (b"bob", {"customer": "bob", "amount": 200})
    ]
    assert sorted(row["offset"] for row in made.quarantine("clean")) == [2, 4, 5]
    assert made.quarantine("revenue") == []
    assert (made.counts["clean"].read, made.counts["clean"].unparsed) == (4, 2)
    with pytest.raises(OperatorError, match="sale: no node reads this topic; the pipeline reads sales"):
        made.batch({"sale": []})
    # The same tables by `hr.read_table`, as anything.
    table = hr.read_table("revenue", tables=made.tables)
    assert table.columns == ["customer", "amount"]
    assert table.count() == 2
    assert sorted(table.to_pandas()["amount"]) == [15.0, 200.0]
    assert table.to_polars().sort("customer")["amount"].to_list() == [15.0, 200.0]
    assert table.to_arrow().schema.field("customer").type == "string"
    assert sorted(map(tuple, table.to_spark().collect())) == [("ann", 15.0), ("bob", 200.0)]
    first = hr.read_table("clean", tables=made.tables, version=1)
    assert sorted(row["id"] for row in first.rows()) == [1, 2]
    assert hr.read_table("clean", tables=made.tables, at=datetime.now(UTC)).count() == 3
    with pytest.raises(OperatorError, match=r"revenues: no such table in .*; did you mean revenue"):
        hr.read_table("revenues", tables=made.tables)


def test_functions_at_hand_are_run_with_what_they_read(
    spark: SparkSession, shared_broker: hr.Broker, tmp_path: Path
) -> None:
    from headrace.testing.records import send

    seen = hr.topic("home-functions", schema="id int")
    small = 2

    @hr.view
    def kept(seen: Any) -> Any:
        return seen.where(f"id < {small}")

    @hr.table
    def stored(kept: Any) -> Any:
        return kept.select("id")

    send(shared_broker.bootstrap_servers, "home-functions", [{"id": number} for number in range(4)])
    where = {"tables": tmp_path, "bootstrap": shared_broker.bootstrap_servers, "name": "home"}
    (node,) = hr.check(stored, **where).nodes
    assert (node.name, node.schema.simpleString()) == ("stored", "struct<id:int>")
    run = hr.run(stored, **where)
    assert (run.pipeline, run.ok, list(run), run.failures) == ("home", True, ["stored"], {})
    assert sorted(row["id"] for row in run["stored"].rows()) == [0, 1]
    assert seen.topic == "home-functions"

    def plain(kept: Any) -> Any:
        return kept

    with pytest.raises(OperatorError, match=r"plain: not a function of a pipeline; decorate it with @hr.table"):
        hr.run(plain, **where)


def test_a_node_that_fails_is_in_the_result(headrace_pipeline: OpenPipeline, tmp_path: Path) -> None:
    file = tmp_path / "strict.py"
    file.write_text(SHOP.replace("hr.quarantine(", "hr.fail("))
    made = headrace_pipeline(file, {"sales": SALES}, allow_failures=True)
    assert list(made.failures) == ["clean"]
    with pytest.raises(OperatorError, match=r"clean: batch 0 .*amount is positive"):
        made.batch()


def test_the_session_is_one_and_takes_what_it_can(spark: SparkSession) -> None:
    assert hr.spark() is spark
    assert hr.spark(conf={"spark.sql.caseSensitive": True}).conf.get("spark.sql.caseSensitive") == "true"
    spark.conf.unset("spark.sql.caseSensitive")
    with pytest.raises(OperatorError, match=r"spark.master is local\[2\] in the session that runs"):
        hr.spark("local[7]")


# Spark's own defaults are made for more than sixty rows.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    **QUICK_SPARK,
}
QUICK = ["--master", "local[1]", "--driver-java-options", QUICK_JAVA]
QUICK += [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")] + ["pyspark-shell"]
TAKEN = """
assert hr.spark() is spark
spark.stop()
"""
PLAIN = """
import headrace as hr
from pyspark.sql import SparkSession

plain = SparkSession.builder.getOrCreate()
try:
    hr.spark()
except hr.HeadraceError as error:
    print(error)
plain.stop()
again = hr.spark("local[1]", driver_memory="1g")
print("again", again.read.format("delta").load("headrace-tables/clean_orders").count())
"""


def script(directory: Path, text: str) -> str:
    """What a program prints that runs in a process of its own, beside the tables of docs/tables.md."""
    from scenes import SCENES

    SCENES["docs/tables.md"](directory)
    (directory / "own.py").write_text(text)
    ended = subprocess.run(
        [sys.executable, "own.py"],
        cwd=directory,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": shlex.join(QUICK)},
        capture_output=True,
        text=True,
        timeout=3 * WAIT_S_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_session_of_ones_own_works_as_the_page_on_tables_prints_it_and_is_taken(tmp_path: Path) -> None:
    from blocks import ROOT, blocks

    (shown,) = (block.text for block in blocks(ROOT / "docs/tables.md") if "spark_conf" in block.text)
    shown_rows = script(tmp_path, shown + TAKEN)
    assert "|order_id|customer|amount|" in shown_rows  # which 20 of the rows come first is not said
    assert "o-" in shown_rows


def test_a_plain_session_is_refused_and_when_it_is_stopped_ours_starts(tmp_path: Path) -> None:
    printed = script(tmp_path, PLAIN)
    assert "Spark: this process has a session without Delta and Kafka, and a session takes no jars later" in printed
    assert "again 60" in printed


def test_hr_run_in_a_file_that_is_read_as_a_pipeline_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "looping.py"
    file.write_text(textwrap.dedent(SHOP) + "\nhr.run(__file__)\n")
    with pytest.raises(OperatorError, match=r"looping.py:\d+: hr.run: called while the file is read"):
        hr.run(file, tables=tmp_path / "tables")
