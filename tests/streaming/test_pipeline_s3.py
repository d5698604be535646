"""The same pipeline with everything it keeps in an object store: tables, checkpoints, quarantine, catalog, code."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pipeline_runs import Bench
from waits import eventually

from headrace.core.errors import OperatorError
from headrace.streaming.launching import is_running, launch_live
from headrace.streaming.progress import read_progress
from headrace.tables.catalog import PipelineCatalog
from headrace.tables.compare import compare
from headrace.tables.delta_log import DeltaLog
from headrace.tables.describing import describe, list_tables
from headrace.tables.provenance import TopicSource
from headrace.tables.query import prepared
from headrace.tables.resolving import Resolver, resolve

CODE = """
sales = hr.topic("{topic}", schema="id int, k string, amount double")

@hr.table(expect={{"small": hr.quarantine("amount < 100")}})
def clean(sales):
    return sales.withColumn("rate", F.lit({rate}))

@hr.table(key="k", order_by="id", delete="id = 59")
def latest(clean):
    return clean.select("k", "id", "amount")

@hr.to_topic("{topic}-big", key="k")
def big(clean):
    return clean.where("amount >= 50")
"""


def sales(first: int, last: int) -> list[object]:
    return [{"id": n, "k": "ab"[n % 2], "amount": float(n)} for n in range(first, last)]


def answer(tables: str, sql: str, at: datetime | None = None) -> list[tuple[str | None, ...]]:
    with prepared(tables, sql, at=at) as query:
        return list(query.texts())


def test_a_pipeline_lives_in_an_object_store_and_is_replayed_there(s3_bench: Bench) -> None:
    bench, topic = s3_bench, "stored"
    tables = bench.tables
    bench.send(topic, [*sales(0, 60), b"{bad", {"id": 60, "k": "a", "amount": 500.0}])
    path = bench.file(CODE.format(topic=topic, rate=1))
    first = bench.once(path)
    assert (first.nodes["clean"].rows_in, first.nodes["clean"].quarantined) == (62, 2)
    assert answer(tables, "from latest") == [("a", "58", "58.0")]  # neither the row that is gone, nor our own column
    assert answer(tables, "select count(*) from _quarantine.clean") == [("2",)]
    assert [each.place.name for each in list_tables(Resolver(tables))] == ["clean", "latest", "_quarantine/clean"]
    shown = describe(Resolver(tables), "clean")
    assert (shown.size.rows, shown.quarantined) == (60, 2)
    assert [(each.name, each.failed) for each in shown.expectations] == [("small", 1), ("can be parsed", 1)]

    bench.send(topic, sales(60, 70))
    bench.once(path)
    assert answer(tables, "select count(*), count(distinct id) from clean") == [("70", "70")]
    assert answer(tables, "select k, amount from latest order by k") == [("a", "68.0"), ("b", "69.0")]
    log = DeltaLog(resolve(tables, "clean"))
    made = [each for commit in log.commits() if commit.provenance for each in commit.provenance.sources]
    spans = [sum(end - start for start, end in each.ranges.values()) for each in made if isinstance(each, TopicSource)]
    assert sorted(spans) == [10, 62]

    before = datetime.now(UTC)
    changed = bench.file(CODE.format(topic=topic, rate=2))
    with pytest.raises(OperatorError, match="its code is not that of version 1"):
        launch_live(changed, tables)
    assert bench.replay_once(changed).version == 2
    catalog = PipelineCatalog.open(tables, "shop")
    one, two = (catalog.layout.table_dir(number, "clean") for number in (1, 2))
    found = compare(one, two, ["id"])
    assert (found.same, found.differing, found.only_a, found.only_b) == (0, 70, 0, 0)
    assert answer(tables, "select distinct rate from clean") == [("1",)]
    catalog.cut_over(2)
    assert answer(tables, "select distinct rate from clean") == [("2",)]
    assert answer(tables, "select distinct rate from clean", at=before) == [("1",)]
    catalog.roll_back()
    assert answer(tables, "select distinct rate from clean") == [("1",)]
    assert launch_live("shop", tables).version == 1, "by its name it is the code that the version itself keeps"
    catalog.discard(2)
    assert answer(tables, "select count(*) from clean") == [("70",)]


def test_a_run_in_an_object_store_is_alone_is_seen_and_ends_with_a_cut_over(s3_bench: Bench) -> None:
    bench, topic = s3_bench, "alone"
    bench.send(topic, sales(0, 5))
    path = bench.file(f"""
        sales = hr.topic("{topic}", schema="id int, k string, amount double")

        @hr.table
        def clean(sales):
            return sales
    """)
    with bench.running(path) as live:
        eventually(lambda: live.progress.caught_up, "the run to catch up")
        catalog = PipelineCatalog.open(bench.tables, "shop")
        assert is_running(catalog, 1)
        with pytest.raises(OperatorError, match=r"shop: version 1 is already run by process \d+ on "):
            bench.once(path)
        seen = read_progress(catalog.layout.run_file(1))
        assert seen is not None
        assert seen.nodes["clean"].name == "clean"
        changed = bench.file(f"""
            sales = hr.topic("{topic}", schema="id int, k string, amount double")

            @hr.table
            def clean(sales):
                return sales.where("id > 1")
        """)
        bench.replay_once(changed)
        catalog.refresh()
        catalog.cut_over(2)
        eventually(lambda: live.progress.status == "stopped", "the old version to stop")
        assert live.progress.message == "version 2 is live now"
    assert not is_running(catalog, 1)
    assert answer(bench.tables, "select count(*) from clean") == [("3",)]
