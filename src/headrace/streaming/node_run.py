"""One node while the pipeline runs: its query, started, looked at, started again after a failure.

`step` is called from the runner's loop and never waits. What to do about a failure is decided in `supervision`.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.streaming.batch_offsets import ranges_text
from headrace.streaming.declarations import Node
from headrace.streaming.kafka import BrokerAwayError, TopicMissingError
from headrace.streaming.progress import NodeProgress, now_text
from headrace.streaming.supervision import Failure, Patience, classify, wait_s
from headrace.tables.expectations import Ledger
from headrace.tables.provenance import Source
from headrace.tables.storage import storage_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Started(Protocol):
    """What a query's writer knows of its batches."""

    failure: BaseException | None
    batch: int | None
    written: bool  # one of them at least is where it goes
    ranges: tuple[Source, ...]
    records_read: int | None


class NodeRun:
    def __init__(
        self,
        node: Node,
        start: "Callable[[], tuple[StreamingQuery, Started]]",
        *,
        patience: Patience,
        ledger: Ledger,
        table_paths: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self.node = node
        self.progress = NodeProgress(name=node.name)
        self._start = start
        self._patience = patience
        self._ledger = ledger
        self._table_paths = table_paths
        self._say = say
        self._query: StreamingQuery | None = None
        self._writer: Started | None = None
        self._start_at: float | None = None
        self._batch_seen: int | None = None
        self._records_seen = 0
        self._restarts = 0
        self.table_offsets: dict[str, int] = {}
        self._take_totals()

    @property
    def versions_behind(self) -> int | None:
        """Of the tables that it reads; None when it reads none, or has not begun."""
        behind = [
            max(0, (table_version(self._table_paths[table]) or 0) + 1 - version)
            for table, version in self.table_offsets.items()
            if table in self._table_paths
        ]
        return sum(behind) if behind else None

    @property
    def ended(self) -> bool:
        return self.progress.status in ("finished", "failed", "stopped")

    @property
    def written(self) -> bool:
        """Whether it has written a batch since it began."""
        return self._writer is not None and self._writer.written

    @property
    def failed(self) -> bool:
        return self.progress.status == "failed"

    def begin(self) -> None:
        self.progress.status = "starting"
        self._start_at = time.monotonic()

    def step(self) -> None:
        if self.ended:
            return
        if self._query is None:
            if self._start_at is not None and time.monotonic() >= self._start_at:
                self._try_start()
            return
        active = bool(self._query.isActive)
        self._look(self._query)
        if not active:
            self._end(self._query)

    def stop(self) -> None:
        if self._query is not None:
            with suppress(Exception):
                self._query.stop()
            self._query = None
        if not self.ended:
            self.progress.status = "stopped"

    def _try_start(self) -> None:
        self._start_at = None
        try:
            self._query, self._writer = self._start()
            self._records_seen = 0
            self.progress.status = "running"
        except Exception as error:
            self._failed(error, str(error))

    def _end(self, query: "StreamingQuery") -> None:
        error = query.exception()
        writer = self._writer
        self._query = None
        if error is None:
            self.progress.status = "finished"
            self.progress.message = ""
            return
        cause = writer.failure if writer is not None and writer.failure is not None else error
        self._failed(cause, f"{cause}\n{error}")

    def _failed(self, error: BaseException, text: str) -> None:
        if isinstance(error, BrokerAwayError):
            failure = Failure(kind="transient", message=str(error), remedy="")
        elif isinstance(error, TopicMissingError):
            failure = Failure(kind="unknown", message=str(error), remedy="")
        elif isinstance(error, HeadraceError):
            failure = Failure(kind="code", message=str(error), remedy="")
        else:
            failure = classify(f"{type(error).__name__}: {text}")
        wait = wait_s(failure, self._restarts, self._patience)
        where = self._where()
        if wait is None:
            self.progress.status = "failed"
            remedy = f"; {failure.remedy}" if failure.remedy else ""
            self.progress.message = f"{where}{failure.message}{remedy}"
            self._say(f"{self.node.name} stopped: {self.progress.message}")
            return
        self._restarts += 1
        self.progress.restarts += 1
        self.progress.status = "restarting"
        self.progress.message = f"{where}{failure.message}; restart {self._restarts} in {wait:g} s"
        self._say(f"{self.node.name}: {self.progress.message}")
        self._start_at = time.monotonic() + wait

    def _where(self) -> str:
        writer = self._writer
        if writer is None or writer.batch is None:
            return ""
        if writer.failure is None:
            topics = ", ".join(self.progress.offsets)
            return f"after batch {writer.batch}{f' of {topics}' if topics else ''}: "
        spans = ranges_text(writer.ranges)
        return f"batch {writer.batch} ({spans}): " if spans else f"batch {writer.batch}: "

    def _look(self, query: "StreamingQuery") -> None:
        last: Any = None
        with suppress(Exception):
            last = query.lastProgress
        if last is None:
            return
        batch = int(last["batchId"])
        if not _has_run(last):
            self.progress.input_rate = self.progress.rows_rate = 0.0
            self.progress.offsets, self.table_offsets = _offsets(last)
        elif batch != self._batch_seen:
            self._take(query, last, batch)

    def _take(self, query: "StreamingQuery", last: Any, batch: int) -> None:
        progress = self.progress
        news = [last]
        with suppress(Exception):
            since = -1 if self._batch_seen is None else self._batch_seen
            news = [p for p in query.recentProgress if _has_run(p) and p["batchId"] > since]
        # Of a batch that reports several times while it waits for data, the last report counts.
        by_batch = {int(p["batchId"]): p for p in news}
        progress.batches += len(by_batch)
        records = self._writer.records_read if self._writer is not None else None
        if records is not None:
            progress.rows_in += records - self._records_seen
            self._records_seen = records
        else:
            progress.rows_in += sum(int(each["numInputRows"]) for each in by_batch.values())
        self._batch_seen = progress.batch = batch
        progress.input_rate = round(float(last["inputRowsPerSecond"] or 0.0), 1)
        progress.rows_rate = round(float(last["processedRowsPerSecond"] or 0.0), 1)
        progress.batch_ms = int((last["durationMs"] or {}).get("triggerExecution", 0))
        progress.last_batch_at = now_text()
        progress.offsets, self.table_offsets = _offsets(last)
        progress.status = "running"
        progress.message = ""
        self._restarts = 0  # a batch went through: what was wrong has passed
        self._take_totals()

    def _take_totals(self) -> None:
        totals = self._ledger.totals
        self.progress.unparsed = totals.unparsed
        self.progress.quarantined = totals.quarantined + totals.unparsed
        self.progress.late = totals.late
        self.progress.expectations = {name: asdict(each) for name, each in totals.expectations.items()}


def _has_run(report: Any) -> bool:
    """Whether the report is of a batch. A query that found nothing to do reports as well, under the number that the
    next batch will have."""
    return "addBatch" in (report["durationMs"] or {})


def _offsets(last: Any) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Where the query stands, from Spark's report: offsets of topics, and the next version of each table's id."""
    topics: dict[str, dict[str, int]] = {}
    tables: dict[str, int] = {}
    for source in last["sources"]:
        end = source["endOffset"]
        with suppress(ValueError, TypeError):
            end = json.loads(end) if isinstance(end, str) else end
        if not isinstance(end, dict):
            continue
        if "reservoirVersion" in end:
            # A negative index means that nothing of that version was read yet.
            tables[str(end["reservoirId"])] = int(end["reservoirVersion"]) + (1 if int(end["index"]) >= 0 else 0)
            continue
        for topic, partitions in end.items():
            if isinstance(partitions, dict):
                topics.setdefault(topic, {}).update({p: int(o) for p, o in partitions.items()})
    return topics, tables


def table_version(path: str) -> int | None:
    """The last version of a Delta table, by the names of its commits."""
    names = storage_of(path).names(os.path.join(path, "_delta_log"))
    return max((int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()), default=None)
