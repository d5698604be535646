"""A refresh is handed over between two real runs, each in a process of its own, while events come and one is killed.

Version 1 streams; version 2 builds one table again beside it. At the cut-over version 1 ends, or is killed before it
can let go of anything, and version 2 takes the shared nodes over; then it is killed as well. `make chaos` runs it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable

import pytest
from pipeline_runs import Bench, Driver
from waits import eventually

from headrace.streaming.progress import NodeProgress, read_progress
from headrace.tables.catalog import PipelineCatalog

CODE = """
handed = hr.topic("handed-{seed}", schema="id int, k string, amount double", max_offsets_per_trigger=40)

@hr.table
def clean(handed):
    return handed.where("amount >= 0")

@hr.to_topic("handed-{seed}-big", key="k")
def big(clean):
    return clean.where("amount >= 50")

@hr.table(key="k")
def totals(clean):
    return clean.groupBy("k").agg(F.sum(F.col("amount") * {factor}).alias("amount"), F.count("*").alias("n"))
"""
OLD_ENDS, OLD_KILLED = "version 1 ends by itself", "version 1 is killed"


class Sales:
    def __init__(self, bench: Bench, seed: int) -> None:
        self._bench, self._seed = bench, seed
        self.count = 0

    def send(self, count: int) -> None:
        rows = [{"id": n, "k": "ab"[n % 2], "amount": float(n)} for n in range(self.count, self.count + count)]
        self._bench.send(f"handed-{self._seed}", rows, key=lambda row: str(row["k"]))
        self.count += count

    def check(self, factor: int) -> None:
        bench, ids = self._bench, range(self.count)
        kept = Counter(row.id for row in bench.rows("clean"))
        assert kept == Counter(ids), f"seed {self._seed}: {kept - Counter(ids)} twice, {Counter(ids) - kept} missing"
        totals = {row.k: (row.amount, row.n) for row in bench.rows("totals")}
        ours = {k: [n for n in ids if "ab"[n % 2] == k] for k in "ab"}
        assert totals == {k: (float(factor * sum(each)), len(each)) for k, each in ours.items()}, f"seed {self._seed}"
        sent = Counter(json.loads(record.value())["id"] for record in bench.records(f"handed-{self._seed}-big"))
        assert sent == Counter(range(50, self.count)), f"seed {self._seed}"


@pytest.mark.parametrize("case", [OLD_ENDS, OLD_KILLED])
def test_shared_nodes_go_from_one_run_to_the_other_and_no_row_is_lost_or_doubled(
    bench: Bench, request: pytest.FixtureRequest, case: str
) -> None:
    if request.config.getoption("--minutes") is None:
        pytest.skip("three processes with a Spark each; make chaos runs it")
    seed = (request.config.getoption("--seed") or random.randrange(1 << 30)) + (case == OLD_KILLED)
    chance, sales, catalog = random.Random(seed), Sales(bench, seed), PipelineCatalog.open(bench.tables, "shop")
    sales.send(60)
    with Driver(bench, "run", bench.file(CODE.format(seed=seed, factor=1))) as old:
        old.until(lambda: _read(catalog, 1, "totals") >= 60, "version 1 to read all")
        changed = bench.file(CODE.format(seed=seed, factor=2))
        with Driver(bench, "replay", changed, "--refresh", "totals") as new:
            new.until(lambda: _read(catalog, 2, "totals") >= 60, "version 2 to build its table")
            sales.send(chance.randrange(50, 300))
            if case == OLD_KILLED:
                old.until(_seen_of(catalog, 1, "clean", chance.randrange(61, 100)), "version 1 in the midst")
            catalog.refresh()
            catalog.cut_over(2)
            if case == OLD_KILLED:
                old.kill()
            sales.send(chance.randrange(50, 300))
            new.until(lambda: _read(catalog, 2, "clean") > 0, "version 2 to have the shared nodes")
            sales.send(chance.randrange(50, 300))
            new.until(_seen_of(catalog, 2, "clean", chance.randrange(1, 60)), "version 2 in the midst")
        if case == OLD_ENDS:
            eventually(lambda: old.process.poll() is not None, "version 1 to end")
            assert "version 2 is live now" in old.said()
    bench.once(changed)
    sales.check(2)
    # Back: what version 2 read of the shared tables since is version 1's too, its own table catches up.
    sales.send(20)
    catalog.refresh()
    catalog.roll_back()
    bench.once("shop")
    sales.check(1)
    print(f"seed {seed}, {case}: {sales.count} events")


def _node(catalog: PipelineCatalog, version: int, name: str) -> NodeProgress | None:
    progress = read_progress(catalog.layout.run_file(version))
    return progress.nodes.get(name) if progress is not None else None


def _read(catalog: PipelineCatalog, version: int, name: str) -> int:
    node = _node(catalog, version, name)
    return node.rows_in if node is not None else 0


def _seen_of(catalog: PipelineCatalog, version: int, name: str, rows: int) -> Callable[[], bool]:
    return lambda: _read(catalog, version, name) >= rows
