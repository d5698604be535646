"""Debezium's changes become the database's tables, with and without schemas, in any order, with everything twice."""

from __future__ import annotations

import json
from typing import Any

from pipeline_runs import Bench

CODE = """
people_changes = hr.changes("cdc-people", "id int, name string", key="id", max_offsets_per_trigger=9)
stock_changes = hr.changes("cdc-stock", "shop int, item string, n int", key=["shop", "item"])

@hr.table
def people(people_changes):
    return people_changes

@hr.table(partition_by="shop")
def stock(stock_changes):
    return stock_changes.withColumn("n", F.col("n") * 2)

@hr.table(mode="append")
def seen(stock_changes):
    return stock_changes.select("item", "_op", F.col("_at").cast("long").alias("at"))
"""


def change(op: str, before: Any, after: Any, source: dict[str, Any], *, schema: bool = False) -> dict[str, Any]:
    made = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1, "transaction": None}
    return {"schema": {"type": "struct", "fields": []}, "payload": made} if schema else made


def person(op: str, lsn: int, number: int, name: str | None = None, *, logged: bool = True) -> tuple[Any, Any]:
    """A record of Postgres; every second one with its schema."""
    row = {"id": number, "name": name}
    source = {"connector": "postgresql", "lsn": lsn, "ts_ms": 1_000 * lsn, "snapshot": "false"}
    before = row if op in "ud" and logged else None
    return {"id": number}, change(op, before, None if op == "d" else row, source, schema=bool(lsn % 2))


def item(op: str, file: int, pos: int, row: int, item: str, n: int) -> tuple[Any, Any]:
    source = {"connector": "mysql", "file": f"binlog.{file:06}", "pos": pos, "row": row, "ts_ms": 5_000}
    values = {"shop": 1, "item": item, "n": n}
    return None, change(op, values if op == "d" else None, None if op == "d" else values, source)


def test_tables_are_what_the_databases_hold(bench: Bench) -> None:
    for topic in ("cdc-people", "cdc-stock"):
        bench.one_partition(topic)
    people = [
        person("r", 10, 1, "Ada"), person("r", 10, 2, "Bob"), person("c", 11, 3, "Cid"), person("u", 12, 1, "Ida"),
        person("d", 13, 2, logged=False), ({"id": 2}, None), person("c", 14, 4, "Dan"), person("u", 15, 3, "Sid"),
        person("d", 16, 4, "Dan"), ({"id": 4}, None), (None, change("m", None, None, {"lsn": 16})),
    ]  # fmt: skip
    bad: list[tuple[Any, Any]] = [(None, {"id": 9, "name": "no envelope"}), (None, change("u", None, None, {"lsn": 1}))]
    bad.append(person("u", 30, 1, "__debezium_unavailable_value"))
    unordered = (None, change("c", None, {"id": 7, "name": "when?"}, {"connector": "postgresql"}))
    stock = [
        item("c", 1, 900, 0, "pen", 1), item("c", 1, 900, 1, "ink", 1), item("u", 2, 100, 0, "pen", 5),
        item("u", 1, 950, 0, "pen", 3), item("d", 2, 200, 0, "ink", 1), item("u", 1, 980, 0, "ink", 8),
    ]  # fmt: skip
    # The connector begins again from the start after a while.
    deliver(bench, "cdc-people", people + people[:6] + bad + [unordered])
    deliver(bench, "cdc-stock", stock)
    bench.once(bench.file(CODE))
    assert bench.rows("people") == [(1, "Ida"), (3, "Sid")]
    assert bench.rows("stock") == [(1, "pen", 10)]
    assert len(bench.rows("seen")) == len(stock)
    assert bench.rows("seen")[0] == ("ink", "c", 5)
    assert sorted(row.reason.split(" (")[0] for row in bench.quarantine("people")) == [
        "not a change that Debezium writes: no op, or no row for it",
        "not a change that Debezium writes: no op, or no row for it",
        "order is known",
        "unchanged large column not logged; set REPLICA IDENTITY FULL",
    ]
    deliver(bench, "cdc-people", [(None, change("t", None, None, {"lsn": 20})), person("c", 21, 5, "Eve"), *people[:4]])
    bench.once(bench.file(CODE))
    assert bench.rows("people") == [(5, "Eve")]


def deliver(bench: Bench, topic: str, records: list[tuple[Any, Any]]) -> None:
    keys = iter(key for key, _ in records)
    bench.send(topic, [value for _, value in records], key=lambda _: json.dumps(next(keys)))
