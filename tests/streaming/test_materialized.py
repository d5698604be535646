"""A table over tables whose rows change is what a batch query over them gives, after every run: computed again, or
kept up to date from the changes. What it should be is computed here, without Spark."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest
from pipeline_runs import Bench

from headrace.core.errors import OperatorError
from headrace.streaming import declare
from headrace.streaming.declare_nodes import DECLARED
from headrace.streaming.delta_writes import Stamp, append
from headrace.streaming.maintaining import PART, refuse_streamed

CODE = """
sales = hr.topic("sales", schema="id int, lsn long, op string, cust string, amount long", max_offsets_per_trigger=20)
regions = hr.topic("regions", schema="cust string, lsn long, op string, region string")

@hr.table(key="id", order_by="lsn", delete="op = 'd'")
def silver(sales):
    return sales

@hr.table(key="cust", order_by="lsn", delete="op = 'd'")
def homes(regions):
    return regions

@hr.view
def paid(silver):
    return silver.where("amount > 0")

@hr.table(key="cust")
def totals(paid):
    return paid.groupBy("cust").agg(F.sum("amount").alias("amount"), F.count("*").alias("sales"))

@hr.table(key="region")
def by_region(paid, homes):
    return paid.join(homes, "cust").groupBy("region").agg(F.sum("amount").alias("amount"))

@hr.table(key="id")
def homed(paid, homes):
    return paid.join(homes.select("cust", "region"), "cust", "left").select("id", "cust", "region")

@hr.table(key="id", leave_out="amount")
def large(silver):
    return silver.where("amount > 5").select("id", "amount", F.upper("cust").alias("cust"))

@hr.materialized
def best(totals, silver):
    rows = totals.join(silver.groupBy("cust").agg(F.count("*").alias("rows")), "cust")
    return rows.orderBy(F.desc("amount"), "cust").limit(2)
"""
SEED = 20261118
DERIVED = ("totals", "by_region", "homed", "large", "best")


class Database:
    """Two tables and the log of their changes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sales: dict[int, tuple[str, int]] = {}
        self.homes: dict[str, str] = {}
        self.lsn = 0

    def change_sale(self) -> dict[str, Any]:
        number, cust, amount = self.chance.randrange(12), self.chance.choice("abcd"), self.chance.randrange(-2, 12)
        op = "d" if number in self.sales and self.chance.random() < 0.4 else "u"
        self.lsn += 1
        if op == "d":
            del self.sales[number]
        else:
            self.sales[number] = (cust, amount)
        return {"id": number, "lsn": self.lsn, "op": op, "cust": cust, "amount": amount}

    def change_home(self) -> dict[str, Any]:
        cust, region = self.chance.choice("abcd"), self.chance.choice(["north", "south"])
        op = "d" if cust in self.homes and self.chance.random() < 0.4 else "u"
        self.lsn += 1
        if op == "d":
            del self.homes[cust]
        else:
            self.homes[cust] = region
        return {"cust": cust, "lsn": self.lsn, "op": op, "region": region}

    def expected(self) -> dict[str, list[tuple[Any, ...]]]:
        amounts, counts, regions, rows = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
        for cust, amount in self.sales.values():
            rows[cust] += 1
            if amount > 0:
                amounts[cust] += amount
                counts[cust] += 1
                if cust in self.homes:
                    regions[self.homes[cust]] += amount
        best = sorted(amounts, key=lambda cust: (-amounts[cust], cust))[:2]
        return {
            "totals": [(cust, amounts[cust], counts[cust]) for cust in amounts],
            "by_region": list(regions.items()),
            "homed": [
                (number, cust, self.homes.get(cust)) for number, (cust, amount) in self.sales.items() if amount > 0
            ],
            "large": [(number, cust.upper()) for number, (cust, amount) in self.sales.items() if amount > 5],
            "best": [(cust, amounts[cust], counts[cust], rows[cust]) for cust in best],
        }


def test_what_is_made_of_changing_tables_is_exact_after_every_run(bench: Bench) -> None:
    for topic in ("sales", "regions"):
        bench.one_partition(topic)
    file, database = bench.file(CODE), Database(SEED)
    first: list[dict[str, Any]] = []
    for run in range(2):
        sales = [database.change_sale() for _ in range(25)]
        bench.send("regions", [database.change_home() for _ in range(6)])
        bench.send("sales", sales + first[:10])  # the connector goes back to its beginning
        first = first or sales
        bench.once(file)
        for table, expected in database.expected().items():
            found = [tuple(row) for row in bench.rows(table)]
            assert Counter(found) == Counter(expected), f"seed {SEED}, run {run}, {table}"
    assert operations(bench, "best") == {"CREATE TABLE", "WRITE"}
    for table in ("totals", "by_region", "homed", "large"):  # the whole once, then what changed
        assert operations(bench, table) == {"CREATE TABLE", "WRITE", "MERGE"}
    commits = {table: commits_of(bench, table) for table in DERIVED}
    # They come again, older changes and those that made the rows of now: nothing changes, so nothing is computed.
    newest = {sale["id"]: sale for sale in sales}
    again = [sale for sale in newest.values() if sale["op"] == "u"]
    assert again, f"seed {SEED}"
    merged = commits_of(bench, "silver")
    bench.send("sales", first[:3] + again)
    bench.once(file)
    assert commits_of(bench, "silver") > merged
    assert {table: commits_of(bench, table) for table in DERIVED} == commits
    # A change among such that come again is found.
    database.lsn += 1
    changed = {**again[0], "lsn": database.lsn, "amount": 11}
    database.sales[changed["id"]] = (changed["cust"], 11)
    bench.send("sales", [*again, changed])
    bench.once(file)
    for table, expected in database.expected().items():
        assert Counter(tuple(row) for row in bench.rows(table)) == Counter(expected), f"seed {SEED}, {table}"
    lsn = database.lsn + 1
    bench.send("sales", [{"id": number, "lsn": lsn, "op": "d", "cust": "", "amount": 0} for number in range(12)])
    bench.once(file)
    assert {table: bench.rows(table) for table in DERIVED} == {table: [] for table in DERIVED}


def test_a_table_that_an_earlier_release_streamed_is_refused(bench: Bench) -> None:
    path = bench.version_path("streamed")
    stamp = Stamp(pipeline="shop", version=1, node="streamed", batch=3, sources=())

    @declare.table(key="id")
    def streamed(silver: Any) -> Any:
        return silver

    node = streamed.__dict__[DECLARED]
    append(bench.spark.range(1), path, stamp)
    with pytest.raises(OperatorError, match=r"streamed: the table was written by an earlier release.*replay the pipel"):
        refuse_streamed(bench.spark, node, path, stamp)
    append(bench.spark.range(1), path, stamp.as_part(PART))
    refuse_streamed(bench.spark, node, path, stamp)


def operations(bench: Bench, table: str) -> set[str]:
    history = bench.spark.sql(f"describe history delta.`{bench.version_path(table)}`")
    return {row.operation for row in history.collect()}


def commits_of(bench: Bench, table: str) -> int:
    return len([name for name in os.listdir(bench.version_path(f"{table}/_delta_log")) if name.endswith(".json")])
