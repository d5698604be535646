"""What is there before the first block of a page: its surroundings, by the page's name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parent.parent / "unit" / "tables"))  # delta_tables

from delta_tables import write

from headrace.core.clock import ManualClock, SystemClock
from headrace.tables.catalog import PipelineCatalog
from headrace.tables.provenance import Provenance, TopicSource

AGO = timedelta(hours=1)
COMMITS = 6


def tables(directory: Path) -> None:
    """The shop's tables, as a pipeline made them an hour ago."""
    clock = ManualClock(SystemClock().now_ms() - round(AGO.total_seconds() * 1000))
    catalog = PipelineCatalog.open(directory / "headrace-tables", "shop", clock=clock)
    catalog.create_first("# shop\n", ["clean_orders", "revenue"])
    for batch in range(COMMITS):
        first, end = batch * 10, batch * 10 + 10
        source = TopicSource(topic="orders", ranges={0: (first, end)})
        for table, rows in (
            ("clean_orders", "'o-' || i as order_id, 'c' || i % 3 as customer, i::double as amount"),
            ("revenue", f"'c{batch}' as customer, sum(i)::double as amount"),
        ):
            write(
                catalog.layout.table_dir(1, table),
                f"select {rows} from range({first}, {end}) t(i)",
                made_by=Provenance(pipeline="shop", version=1, node=table, batch=batch, sources=(source,)),
            )
    write(
        catalog.layout.quarantine_dir(1, "clean_orders"),
        "select 'orders' as topic, 0::integer as partition, 7::bigint as \"offset\", 'amount is positive' as reason",
    )
    for log in Path(directory, "headrace-tables").rglob("_delta_log/*.json"):
        _date_back(log)


def _date_back(log: Path) -> None:
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] -= round(AGO.total_seconds() * 1000)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


SCENES: dict[str, Callable[[Path], None]] = {"docs/tables.md": tables}
