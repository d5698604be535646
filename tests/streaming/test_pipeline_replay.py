"""Changed code is replayed beside the live version, compared, cut over and rolled back; nothing is mixed or lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pipeline_runs import Bench
from waits import eventually

from headrace.core.errors import OperatorError
from headrace.streaming.launching import is_running
from headrace.streaming.node_locks import NodeLocks
from headrace.tables.catalog import PipelineCatalog
from headrace.tables.compare import compare
from headrace.tables.resolving import Resolver

CODE = """
sales = hr.topic("{topic}", schema="id int, k string, amount double")

@hr.table
def clean(sales):
    return sales.where("{where}")

@hr.table(key="k")
def totals(clean):
    return clean.groupBy("k").agg(F.sum("amount").alias("amount"))

@hr.to_topic("{topic}-big", key="k")
def big(clean):
    return clean.where("amount >= 50")
"""


def sales(first: int, last: int) -> list[dict[str, object]]:
    return [{"id": n, "k": "ab"[n % 2], "amount": float(n)} for n in range(first, last)]


def test_a_replay_is_compared_cut_over_and_rolled_back(bench: Bench) -> None:
    def code(where: str) -> str:
        return bench.file(CODE.format(topic="replayed", where=where))

    bench.send("replayed", sales(0, 60))
    path = code("true")
    catalog = PipelineCatalog.open(bench.tables, "shop")
    with bench.running(path) as live:
        eventually(lambda: live.progress.caught_up and len(bench.rows("clean")) == 60, "version 1 to catch up")
        changed = code("id >= 10")
        # One path for live and historical data: the new version is made from the log, while the old one goes on.
        replayed = bench.replay_once(changed)
        assert replayed.version == 2
        assert replayed.caught_up
        assert replayed.nodes["big"].topic == "replayed-big.v2"
        catalog.refresh()
        assert catalog.live is not None
        assert catalog.live.number == 1
        assert is_running(catalog, 1)
        found = compare(bench.version_path("clean", 1), bench.version_path("clean", 2), ["id"])
        assert (found.same, found.differing, found.only_a, found.only_b) == (50, 0, 10, 0)
        before = datetime.now(UTC)
        assert len(bench.rows("clean")) == 60
        catalog.cut_over(2)
        assert len(bench.rows("clean")) == 50
        assert dict(bench.rows("totals")) == {"a": 850.0, "b": 875.0}
        eventually(lambda: live.progress.status == "stopped", "the old run to end by itself")
        assert live.progress.message == "version 2 is live now"
    assert Resolver(bench.tables, before).resolve("clean").version == 1
    assert Resolver(bench.tables).resolve("clean").version == 2
    # The new version goes on from its own checkpoint, and the old one, rolled back, from its own.
    bench.send("replayed", sales(60, 70))
    bench.once(changed)
    assert len(bench.rows("clean")) == 60
    assert catalog.roll_back().number == 1
    assert len(bench.rows("clean")) == 60
    with pytest.raises(OperatorError, match="its code is not that of version 1"):
        bench.try_once(changed)
    bench.once("shop")  # by its name: the code that the version keeps
    assert sorted(row.id for row in bench.rows("clean")) == list(range(70))
    for topic in ("replayed-big", "replayed-big.v2"):
        ids = sorted(json.loads(record.value())["id"] for record in bench.records(topic))
        assert ids == list(range(50, 70)), topic
    catalog.discard(2)
    assert [version.state for version in catalog.versions] == ["live", "discarded"]


def test_a_replay_begins_where_it_is_told_and_goes_on_when_it_was_interrupted(bench: Bench) -> None:
    code = """
        since = hr.topic("since", schema="id int")

        @hr.table
        def kept(since):
            return since.withColumn("v", F.lit({v}))
        """

    def kept(version: int) -> list[int]:
        return sorted(
            row.id for row in bench.spark.read.format("delta").load(bench.version_path("kept", version)).collect()
        )

    bench.send("since", [{"id": n} for n in range(5)], key=lambda value: "k")
    partition = bench.records("since")[0].partition()
    moment = bench.records("since")[-1].timestamp()[1] + 1
    with pytest.raises(OperatorError, match="nothing is live yet"):
        bench.replay_once(bench.file(code.format(v=1)))
    bench.once(bench.file(code.format(v=1)))
    from_offset = bench.replay_once(bench.file(code.format(v=2)), f"since:{partition}=3")
    assert sorted(row.id for row in bench.spark.read.format("delta").load(bench.version_path("kept", 2)).collect()) == [
        3,
        4,
    ]
    # The same code again is the same replay, not another version; and it keeps to where it began.
    assert bench.replay_once(bench.file(code.format(v=2))).version == from_offset.version == 2
    with pytest.raises(OperatorError, match=r"version 2 is a replay of this code from since:\d=3"):
        bench.replay_once(bench.file(code.format(v=2)), "earliest")
    eventually(lambda: datetime.now(UTC).timestamp() * 1000 > moment, "the clock to move")
    bench.send("since", [{"id": n} for n in range(5, 8)], key=lambda value: "k")
    at = datetime.fromtimestamp(moment / 1000, UTC).isoformat()
    assert bench.replay_once(bench.file(code.format(v=3)), at).version == 3
    assert sorted(row.id for row in bench.spark.read.format("delta").load(bench.version_path("kept", 3)).collect()) == [
        5,
        6,
        7,
    ]


def test_a_table_is_filled_back_from_the_log(bench: Bench) -> None:
    code = """
        days = hr.topic("days", schema="id int, day int")

        @hr.table(partition_by="day")
        def stored(days):
            return days.withColumn("good", F.col("day") {wrong} 0)
        """
    back = """
        @hr.table(into="stored", replace_where="day = 1")
        def again(days):
            return days.where("day = 1").withColumn("good", F.col("day") > 0)
        """
    bench.send("days", [{"id": n, "day": n % 3} for n in range(9)])
    bench.once(bench.file(code.format(wrong="<")))
    assert [row.good for row in bench.rows("stored")] == [False] * 9
    bench.once(bench.file(code.format(wrong=">") + back), accept_change=True)
    rows = bench.rows("stored", "id", "day", "good")
    assert [tuple(row) for row in rows] == [(n, n % 3, n % 3 == 1) for n in range(9)]


REFRESHED = """
refreshed = hr.topic("refreshed")

@hr.table(expect={{"positive": hr.quarantine("amount >= 0")}})
def clean(refreshed):
    return refreshed.select("id", "k", "amount")

@hr.to_topic("refreshed-big", key="k")
def big(clean):
    return clean.where("amount >= 50")

@hr.table(key="k")
def totals(clean):
    return clean.groupBy("k").agg(F.sum(F.col("amount") * {factor}).alias("amount"))
"""


def test_a_refresh_builds_one_table_again_and_takes_over_the_others(bench: Bench) -> None:
    """Version 2 has the shared tables from the cut-over on, from the same checkpoints, as soon as version 1 lets go of
    them; a rollback gives them back. Nothing of them is read or written twice."""
    catalog = PipelineCatalog.open(bench.tables, "shop")

    def code(factor: int) -> str:
        return bench.file(REFRESHED.format(factor=factor))

    def totals(factor: int, last: int) -> dict[str, float]:
        return {k: float(factor * sum(n for n in range(last) if "ab"[n % 2] == k)) for k in "ab"}

    bench.send("refreshed", [*sales(0, 60), {"id": -1, "k": "a", "amount": -1.0}])
    bench.once(code(1))
    replayed = bench.replay_once(code(2), refresh=("totals",))
    assert (replayed.version, list(replayed.nodes), replayed.caught_up) == (2, ["totals"], True)
    assert "clean: taken over from version 1; left to the run of another version" in bench.said
    assert compare(bench.version_path("totals", 1), bench.version_path("totals", 2), ["k"]).differing == 2
    catalog.cut_over(2)
    bench.send("refreshed", sales(60, 65))
    with NodeLocks(catalog.layout, 1, {}) as old:
        assert old.mine("clean")  # as a run of version 1 that goes on would have it
        with bench.running(code(2)) as new:
            nodes = new.progress.nodes
            eventually(lambda: nodes["totals"].status == nodes["big"].status == "running", "the nodes that are free")
            assert nodes["clean"].status == "waiting"
            old.__exit__()
            eventually(lambda: nodes["totals"].rows_in == 5 and new.progress.caught_up, "version 2 to have all nodes")
    assert dict(bench.rows("totals")) == totals(2, 65)
    with pytest.raises(OperatorError, match=r"version 1 holds big, clean, .* discard version 2 first"):
        catalog.discard(1)
    catalog.roll_back()
    bench.send("refreshed", [*sales(65, 70), {"id": -2, "k": "b", "amount": -2.0}])
    finished = bench.once("shop")
    assert finished.version == 1
    assert dict(bench.rows("totals")) == totals(1, 70)
    assert [row.id for row in sorted(bench.rows("clean"), key=lambda row: row.id)] == list(range(70))
    assert sorted(json.loads(record.value())["id"] for record in bench.records("refreshed-big")) == list(range(50, 70))
    # A quarantine that is shared is found under either version; the ledger goes on over both.
    assert bench.quarantine("clean", 2) == bench.quarantine("clean", 1)
    assert finished.nodes["clean"].quarantined == 2
    catalog.discard(2)
    assert len(bench.rows("clean")) == 70
