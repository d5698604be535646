"""`late="quarantine"`: rows that a watermark drops are in quarantine, and no others, whatever operator drops them."""

from __future__ import annotations

import json

from pipeline_runs import Bench

from headrace.tables.expectations import read_outcomes

CODE = """
events = hr.topic("late-events", schema="id int, k string, at timestamp")

@hr.view
def timed(events):
    return events.where("k <> 'x'").withWatermark("at", "10 minutes")

@hr.table(late="quarantine", expect={"few": hr.quarantine("n < 100")})
def by_hour(timed):
    return timed.groupBy("k", F.window("at", "1 hour")).agg(F.count("*").alias("n"))

@hr.table(late="quarantine", key=["k", "start"])
def sliding(timed):
    every = F.window("at", "1 hour", "30 minutes")
    return timed.groupBy("k", every).count().select("k", F.col("window.start").alias("start"), "count")

@hr.table(late="quarantine")
def visits(timed):
    return timed.groupBy("k", F.session_window("at", "5 minutes")).count().drop("session_window")

@hr.table(late="quarantine")
def unique(timed):
    return timed.dropDuplicates(["k", "at"])

@hr.table(late="quarantine")
def once(timed):
    return timed.dropDuplicatesWithinWatermark(["k"])
"""


def event(number: int, at: str, k: str = "a") -> dict[str, object]:
    return {"id": number, "k": k, "at": f"2026-01-01T{at}:00Z"}


def test_rows_that_a_watermark_drops_are_in_quarantine_and_no_others(bench: Bench) -> None:
    bench.one_partition("late-events")
    path = bench.file(CODE)
    bench.send("late-events", [event(1, "10:50"), event(2, "12:25")])
    bench.once(path)  # the watermark is 12:15 now
    late = [event(3, "10:20"), event(4, "12:10"), event(5, "12:30"), b"no record", event(6, "09:00", k="x")]
    bench.send("late-events", late)
    bench.once(path)
    # What is behind the watermark is the end of a window or of a session, or the time itself.
    expected = {
        "by_hour": [3],
        "sliding": [3, 3],  # late for both of its windows; 4 is late for none, as 12:30 is after 12:15
        "visits": [3, 4],
        "unique": [3, 4],
        "once": [3, 4],
    }
    for node, ids in expected.items():
        rows = [row for row in bench.quarantine(node) if row.reason.startswith("late: ")]
        assert sorted(json.loads(row.row)["id"] for row in rows) == ids, node
        assert {row.offset for row in rows} == {ident - 1 for ident in ids}, node  # which record it was
        assert all(", the watermark is 2026-01-01 12:15:00" in row.reason for row in rows), rows
        assert sum(each.late for each in read_outcomes(bench.version_path(f"_expectations/{node}.jsonl"))) == len(ids)
    (row,) = [row for row in bench.quarantine("by_hour") if row.reason.startswith("late: ")]
    assert row.reason == "late: the end of window is 2026-01-01 11:00:00, the watermark is 2026-01-01 12:15:00"
    bench.once(path)
    assert len(bench.quarantine("once")) == 3  # with the record that could not be parsed
