"""The documents' uses of a pipeline (index rows 34, 57, 59, 60), as declared pipelines."""

from __future__ import annotations

import json
from typing import Any

from pipeline_runs import Bench

USES = """
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StringType

readings = hr.topic("readings", schema="patient string, heart_rate int, at timestamp")
activity = hr.topic("activity", schema="user string, page string, at timestamp")
pages = hr.static("{pages}", format="csv", options={{"header": True}})

@F.udf(StringType())
def score(rate):
    return "alarm" if rate > 120 else "fine"

class Counting(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n bigint")
    def handleInputRows(self, key, rows, timers):
        from pyspark.sql import Row
        n = (self.seen.get()[0] if self.seen.exists() else 0) + sum(1 for _ in rows)
        self.seen.update((n,))
        yield Row(patient=key[0], readings=n)
    def close(self):
        pass

@hr.table
def scored(readings):
    return readings.withColumn("score", score("heart_rate"))

@hr.to_topic("alarms", key="patient", value="score")
def alarms(scored):
    return scored.where("score = 'alarm'")

@hr.table(key="patient")
def counted(scored):
    return scored.groupBy("patient").transformWithState(
        statefulProcessor=Counting(), outputStructType="patient string, readings bigint", outputMode="Update",
        timeMode="None")

@hr.table
def visits(activity):
    session = F.session_window("at", "10 minutes")
    return (activity.withWatermark("at", "1 minute").groupBy("user", session).agg(F.count("*").alias("pages"))
            .select("user", F.col("session_window.start").alias("begun"), "pages"))

@hr.to_topic("titles", key="user")
def titles(activity, pages):
    return activity.join(pages, "page").select("user", "title")
"""


def test_readings_are_scored_and_web_activity_is_grouped_by_user_as_they_arrive(bench: Bench) -> None:
    """Healthy AI and web activity; and, as with Streams and KSQL, from input topics to output topics."""
    pages = bench.directory / "pages.csv"
    pages.write_text("page,title\n/a,Home\n/b,Shop\n")
    path = bench.file(USES.format(pages=pages))
    at = "2026-01-01T00:{:02}:00Z".format
    rates = [("p1", 80), ("p2", 140), ("p1", 130)]
    bench.send("readings", [{"patient": p, "heart_rate": r, "at": at(0)} for p, r in rates])
    clicks = [("u", "/a", 0), ("u", "/b", 5), ("v", "/a", 1), ("u", "/a", 30), ("u", "/x", 59)]
    bench.send("activity", [{"user": u, "page": p, "at": at(m)} for u, p, m in clicks])
    bench.once(path)
    bench.send("readings", [{"patient": "p1", "heart_rate": 70, "at": at(1)}])
    bench.once(path)
    assert sorted((row.patient, row.score) for row in bench.rows("scored")) == [
        ("p1", "alarm"), ("p1", "fine"), ("p1", "fine"), ("p2", "alarm"),
    ]  # fmt: skip
    assert sorted((r.key(), r.value()) for r in bench.records("alarms")) == [(b"p1", b"alarm"), (b"p2", b"alarm")]
    assert dict(bench.rows("counted")) == {"p1": 3, "p2": 1}
    assert sorted((row.user, row.begun.minute, row.pages) for row in bench.rows("visits")) == [
        ("u", 0, 2), ("u", 30, 1), ("v", 1, 1),
    ]  # fmt: skip
    titles = [(r.key().decode(), json.loads(r.value())["title"]) for r in bench.records("titles")]
    assert sorted(titles) == [("u", "Home"), ("u", "Home"), ("u", "Shop"), ("v", "Home")]


def test_the_log_holds_a_database_and_its_state_at_any_time_is_made_again(bench: Bench) -> None:
    path = bench.file("""
        changes = hr.topic("database", schema="op string, id int, name string", key="string", max_offsets_per_trigger=2)

        @hr.table(key="id", delete="op = 'd'")
        def customers(changes):
            return changes
        """)
    steps: list[dict[str, Any]] = [
        {"op": "c", "id": 1, "name": "Ada"},
        {"op": "c", "id": 2, "name": "Bob"},
        {"op": "u", "id": 1, "name": "Ida"},
        {"op": "d", "id": 2, "name": None},
        {"op": "c", "id": 3, "name": "Eve"},
        {"op": "d", "id": 1, "name": None},
    ]
    bench.send("database", steps, key=lambda value: "one-partition")
    bench.once(path)
    assert [(row.id, row.name) for row in bench.rows("customers")] == [(3, "Eve")]

    def state(version: int) -> dict[int, str]:
        read = bench.spark.read.format("delta").option("versionAsOf", version)
        return {row.id: row.name for row in read.load(f"{bench.tables}/customers").collect()}

    assert [state(version) for version in (1, 2, 3)] == [{1: "Ada", 2: "Bob"}, {1: "Ida"}, {3: "Eve"}]
    replayed = bench.replay_once(
        bench.file("""
        changes = hr.topic("database", schema="op string, id int, name string", key="string")

        @hr.table(key="id", delete="op = 'd'")
        def customers(changes):
            return changes
        """)
    )
    again = bench.spark.read.format("delta").load(bench.version_path("customers", replayed.version))
    assert [(row.id, row.name) for row in again.collect()] == [(3, "Eve")]
