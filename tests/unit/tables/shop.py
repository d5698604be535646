"""A pipeline's directory as the streaming side leaves it: two versions of three tables, a quarantine, expectations."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from delta_tables import write

from headrace.core.clock import ManualClock, SystemClock
from headrace.tables.catalog import PipelineCatalog
from headrace.tables.expectations import BatchOutcome, Outcome
from headrace.tables.provenance import Provenance, Source, TableSource, TopicSource
from headrace.tables.versions import time_of


def made(node: str, version: int, batch: int, *sources: Source) -> Provenance:
    return Provenance(pipeline="shop", version=version, node=node, batch=batch, sources=sources)


def topic(name: str, **ranges: tuple[int, int]) -> TopicSource:
    return TopicSource(topic=name, ranges={int(partition[1:]): offsets for partition, offsets in ranges.items()})


def fill_version(catalog: PipelineCatalog, number: int, factor: int) -> None:
    """Three batches of clean_orders from a topic; revenue from clean_orders, in two batches."""
    orders, revenue = (catalog.layout.table_dir(number, name) for name in ("clean_orders", "revenue"))
    for batch in range(3):
        start = batch * 10
        write(
            orders,
            f"select i::bigint as order_id, 'c' || i % 3 as customer, (i * {factor})::double as amount, "
            f"date '2026-01-01' + (i % 2)::integer as day from range({start}, {start + 10}) t(i)",
            made_by=made("clean_orders", number, batch, topic("orders", p0=(start, start + 6), p1=(start, start + 4))),
            partition_by=["day"],
        )
    for batch, versions in enumerate([(0, 0), (1, 2)]):
        write(
            revenue,
            f"select 'c{batch}' as customer, {batch * factor}::double as amount",
            made_by=made("revenue", number, batch, TableSource(table="clean_orders", versions=versions)),
        )


def make_shop(tables: Path, clock: ManualClock | SystemClock | None = None) -> PipelineCatalog:
    """Version 1 live, filled; with two quarantined rows and their counts."""
    catalog = PipelineCatalog.open(tables, "shop", clock=clock)
    catalog.create_first("# one\n", ["clean_orders", "revenue"], note="first")
    fill_version(catalog, 1, 1)
    write(
        catalog.layout.quarantine_dir(1, "clean_orders"),
        "select 'orders' as topic, i::integer as partition, i::bigint as \"offset\", 'amount is positive' as reason, "
        "'{bad'::blob as value from range(2) t(i)",
    )
    path = Path(catalog.layout.expectations_file(1, "clean_orders"))
    path.parent.mkdir(parents=True)
    with open(path, "w") as file:
        for batch, failed in ((0, 0), (1, 2), (2, 0)):
            outcome = BatchOutcome(
                batch=batch,
                at=time_of("2026-10-05T12:00:00Z"),
                rows=10,
                expectations={"amount is positive": Outcome(action="quarantine", failed=failed)},
            )
            file.write(outcome.to_line())
        file.write('{"batch": 3, "at"')  # a crash in the middle of a line
    return catalog


def replayed(catalog: PipelineCatalog) -> datetime:
    """Version 2 with doubled amounts, cut over; the time when that was."""
    number = catalog.begin_version("# two\n", ["clean_orders", "revenue"]).number
    fill_version(catalog, number, 2)
    catalog.cut_over(number)
    return catalog.intervals[-1].since
