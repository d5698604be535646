"""Nearly every kind of node, in one pipeline over one topic, run twice: what is in its table or topic is exact. Keyed
tables with an order are in `test_keyed_order`, tables over tables that change in `test_materialized`."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from pipeline_runs import Bench

import headrace
from headrace.tables.expectations import read_outcomes
from headrace.tables.provenance import TableSource, TopicSource, decode

# Rows of the first and of the second run: (id, customer, amount, minute). Customer b of minute 0 comes in both.
FIRST = [(1, "a", 10.0, 0), (2, "b", 20.0, 0), (3, "a", 5.0, 1), (3, "a", 5.0, 1), (4, "c", -1.0, 2)]
SECOND = [(5, "b", 40.0, 0), (6, "a", 1.0, 59), (7, "d", 2.0, 59)]

CODE = """
zoo = hr.topic("zoo", schema="id int, customer string, amount double, at timestamp", key="string")
names = hr.static("{names}")

@hr.table
def appended(zoo):
    return zoo.withColumn("twice", F.col("amount") * 2)

@hr.table
def placed(zoo):
    return zoo.select("id", "_partition", "_offset", "_key", F.col("_timestamp").alias("sent_at"))

@hr.table(key="customer")
def latest(zoo):
    return zoo

@hr.table(key=["customer", "minute"])
def by_minute(appended):
    return (appended.withWatermark("at", "1 minute")
            .groupBy("customer", F.window("at", "1 minute").start.alias("minute")).agg(F.sum("amount").alias("amount")))

@hr.table
def closed(appended):
    return (appended.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"))
            .agg(F.count("*").alias("n")).select(F.col("window.start").alias("minute"), "n"))

@hr.table(mode="complete")
def totals(appended):
    return appended.groupBy("customer").agg(F.sum("amount").alias("amount"))

@hr.table
def unique(appended):
    return appended.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"]).select("id")

@hr.view
def named(appended, names):
    return appended.join(names, "customer", "left")

@hr.table(key="id")
def joined(named):
    return named.select("id", "name").distinct()

@hr.table
def pairs(appended, other=hr.stream("appended")):
    return (appended.alias("l").withWatermark("at", "1 hour").join(other.alias("r").withWatermark("at", "1 hour"),
            F.expr("l.customer = r.customer and l.id < r.id and l.at = r.at"))
            .select(F.col("l.id").alias("one"), F.col("r.id").alias("two")))

@hr.table
def changes(of=hr.stream("latest", change_feed=True)):
    return of.select("customer", "amount", F.col("_change_type").alias("change"))

@hr.for_each_batch
def two_tables(appended, batch):
    rows = appended.select("id")
    rows.write.format("delta").mode("append").save(batch.path("low"))
    rows.where("id > 2").write.format("delta").mode("append").save(batch.path("high"))

@hr.to_topic("zoo-out", key="customer", headers="tags", order_by="id")
def out(appended):
    tags = F.array(F.struct(F.lit("source").alias("key"), F.lit("zoo").cast("binary").alias("value")))
    return appended.select("id", "customer", tags.alias("tags"))
"""


def order(row: tuple[int, str, float, int]) -> dict[str, Any]:
    number, customer, amount, minute = row
    return {"id": number, "customer": customer, "amount": amount, "at": f"2026-01-01T00:{minute:02}:00Z"}


@pytest.fixture(scope="module")
def zoo(shared_spark: Any, shared_broker: headrace.Broker, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(shared_spark, shared_broker, tmp_path_factory.mktemp("zoo"))
    names = str(bench.directory / "names")
    write = shared_spark.createDataFrame([("a", "Ada"), ("b", "Bob")], "customer string, name string").write
    write.format("delta").save(names)
    path = bench.file(CODE.replace("{names}", names))
    bench.send("zoo", [order(row) for row in FIRST], key=lambda value: value["customer"])
    bench.once(path)
    # A static table is read again by each batch.
    more = shared_spark.createDataFrame([("d", "Dan")], "customer string, name string").write
    more.format("delta").mode("append").save(names)
    bench.send("zoo", [order(row) for row in SECOND], key=lambda value: value["customer"])
    bench.once(path)
    return bench


def minute(number: int) -> datetime:
    return datetime(2026, 1, 1, 0, number)


def test_rows_are_appended_without_the_metadata_that_nobody_chose(zoo: Bench) -> None:
    assert zoo.frame("appended").columns == ["id", "customer", "amount", "at", "twice"]
    assert [tuple(row) for row in zoo.rows("appended", "id", "customer", "twice")] == sorted(
        [(row[0], row[1], row[2] * 2) for row in FIRST + SECOND], key=str
    )


def test_metadata_that_a_function_selects_is_stored(zoo: Bench) -> None:
    rows = zoo.rows("placed")
    assert zoo.frame("placed").columns == ["id", "_partition", "_offset", "_key", "sent_at"]
    assert len({(row["_partition"], row["_offset"]) for row in rows}) == len(FIRST + SECOND)
    assert {row["_key"] for row in rows} == {"a", "b", "c", "d"}
    assert all(row["sent_at"] is not None for row in rows)


def test_of_several_rows_of_a_key_the_last_in_the_log_stays(zoo: Bench) -> None:
    assert [tuple(row) for row in zoo.rows("latest", "customer", "id")] == [("a", 6), ("b", 5), ("c", 4), ("d", 7)]


def test_a_keyed_aggregate_is_updated_in_place(zoo: Bench) -> None:
    assert [tuple(row) for row in zoo.rows("by_minute", "customer", "minute", "amount")] == [
        ("a", minute(0), 10.0),
        ("a", minute(1), 10.0),
        ("a", minute(59), 1.0),
        ("b", minute(0), 60.0),
        ("c", minute(2), -1.0),
        ("d", minute(59), 2.0),
    ]


def test_an_appended_aggregate_has_the_windows_that_are_closed(zoo: Bench) -> None:
    # The watermark of the first run, minute 1, closed minute 0; b's late row of minute 0 is not counted.
    assert [tuple(row) for row in zoo.rows("closed")] == [(minute(0), 2), (minute(1), 2), (minute(2), 1)]


def test_rows_behind_the_watermark_are_counted_in_their_batch(zoo: Bench) -> None:
    late = [outcome.late for outcome in read_outcomes(zoo.version_path("_expectations/closed.jsonl"))]
    assert sum(late) == 1
    assert late[0] == 0


def test_complete_mode_rewrites_the_table(zoo: Bench) -> None:
    assert [tuple(row) for row in zoo.rows("totals")] == [("a", 21.0), ("b", 60.0), ("c", -1.0), ("d", 2.0)]


def test_duplicates_are_dropped(zoo: Bench) -> None:
    assert [row.id for row in zoo.rows("unique")] == [1, 2, 3, 4, 5, 6, 7]


def test_a_static_table_is_joined_as_it_is_at_each_batch(zoo: Bench) -> None:
    assert dict(zoo.rows("joined")) == {1: "Ada", 2: "Bob", 3: "Ada", 4: None, 5: "Bob", 6: "Ada", 7: "Dan"}


def test_two_streams_are_joined(zoo: Bench) -> None:
    assert [tuple(row) for row in zoo.rows("pairs")] == [(2, 5)]


def test_the_change_feed_has_every_change(zoo: Bench) -> None:
    found = [tuple(row) for row in zoo.rows("changes")]
    assert ("b", 20.0, "insert") in found
    assert ("b", 20.0, "update_preimage") in found
    assert ("b", 40.0, "update_postimage") in found
    assert ("d", 2.0, "insert") in found


def test_for_each_batch_writes_what_it_likes_with_the_batch_s_transaction(zoo: Bench) -> None:
    low = zoo.spark.read.format("delta").load(zoo.version_path("low"))
    high = zoo.spark.read.format("delta").load(zoo.version_path("high"))
    assert sorted(row.id for row in low.collect()) == [1, 2, 3, 3, 4, 5, 6, 7]
    assert sorted(row.id for row in high.collect()) == [3, 3, 4, 5, 6, 7]
    metadata = [decode(row.userMetadata) for row in _history(zoo, zoo.version_path("high"))]
    assert [(made.node, made.batch) for made in metadata if made is not None] == [("two_tables", 1), ("two_tables", 0)]


def test_each_row_is_once_in_the_topic_with_key_headers_and_order(zoo: Bench) -> None:
    records = zoo.records("zoo-out")
    assert sorted(json.loads(record.value())["id"] for record in records) == [1, 2, 3, 3, 4, 5, 6, 7]
    assert all(
        json.loads(r.value()) == {"id": json.loads(r.value())["id"], "customer": r.key().decode()} for r in records
    )
    assert records[0].headers() == [("source", b"zoo")]
    of_a = [json.loads(record.value())["id"] for record in records if record.key() == b"a"]
    assert of_a == [1, 3, 3, 6]
    assert len({record.partition() for record in records if record.key() == b"a"}) == 1


def test_each_commit_says_which_offsets_made_it(zoo: Bench) -> None:
    made = [decode(row.userMetadata) for row in _history(zoo, f"{zoo.tables}/appended")]
    second, first = made[0], made[1]
    assert first is not None
    assert second is not None
    assert (first.pipeline, first.version, first.node, first.batch, second.batch) == ("shop", 1, "appended", 0, 1)
    assert isinstance(first.sources[0], TopicSource)
    assert isinstance(second.sources[0], TopicSource)
    assert sum(end - start for start, end in first.sources[0].ranges.values()) == len(FIRST)
    assert sum(end - start for start, end in second.sources[0].ranges.values()) == len(SECOND)
    by_minute = [decode(row.userMetadata) for row in _history(zoo, f"{zoo.tables}/by_minute")]
    named = [source for commit in by_minute if commit is not None for source in commit.sources]
    assert TableSource(table="appended", versions=(0, 1)) in named
    assert TableSource(table="appended", versions=(2, 2)) in named


def _history(zoo: Bench, path: str) -> list[Any]:
    from delta.tables import DeltaTable

    return DeltaTable.forPath(zoo.spark, path).history().collect()
