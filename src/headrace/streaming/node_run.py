"""One node while the pipeline runs: its query, started, looked at, started again after a failure.

`step` is called from the runner's loop and never waits. What to do about a failure is decided in `supervision`.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.streaming.batch_offsets import ranges_text
from headrace.streaming.commit_rows import CommitRows
from headrace.streaming.declarations import Node
from headrace.streaming.kafka import BrokerAwayError, TopicMissingError
from headrace.streaming.progress import NodeProgress, now_text
from headrace.streaming.supervision import Failure, Patience, classify, wait_s
from headrace.tables.expectations import Ledger
from headrace.tables.provenance import Source

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Started(Protocol):
    """What a query's writer knows of its batches."""

    failure: BaseException | None
    batch: int | None
    written: bool  # one of them at least is where it goes
    ranges: tuple[Source, ...]
    records_read: int | None

    @property
    def rows_written(self) -> int | None:
        """None where the table's log tells."""


class NodeRun:
    def __init__(
        self,
        node: Node,
        start: "Callable[[], tuple[StreamingQuery, Started]]",
        *,
        patience: Patience,
        ledger: Ledger,
        table_paths: Mapping[str, str],
        output_path: str | None = None,
        say: Callable[[str], None],
        say_failed: Callable[[str], None] | None = None,
    ) -> None:
        self.node = node
        self.progress = NodeProgress(name=node.name)
        self._start = start
        self._patience = patience
        self._ledger = ledger
        self._tables = {table: CommitRows(path) for table, path in table_paths.items()}
        self._output = CommitRows(output_path) if output_path is not None else None
        self._output_version: int | None = self._output.last() if self._output is not None else None
        self._say = say
        self._say_failed = say_failed or say
        self._query: StreamingQuery | None = None
        self._writer: Started | None = None
        self._start_at: float | None = None
        self._batch_seen: int | None = None
        self._records_seen = self._written_seen = 0
        self._restarts = 0
        self.table_offsets: dict[str, int] = {}
        self._take_totals()

    @property
    def versions_behind(self) -> int | None:
        """Of the tables that it reads; None when it reads none, or has not begun."""
        behind = [max(0, last + 1 - version) for _, version, last in self._table_positions()]
        return sum(behind) if behind else None

    @property
    def rows_behind(self) -> int | None:
        """Rows of the tables that it reads which it has not read; None as above."""
        behind = [table.rows(version, last) for table, version, last in self._table_positions()]
        return sum(behind) if behind else None

    def _table_positions(self) -> list[tuple[CommitRows, int, int]]:
        """Of each table that it reads: the version that it reads next, and the last that there is."""
        return [
            (self._tables[table], version, self._tables[table].last() or 0)
            for table, version in self.table_offsets.items()
            if table in self._tables
        ]

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

    def step(self, *, look: bool = True) -> None:
        """`look` asks for Spark's report, too; that costs more than to ask whether the query has ended."""
        if self.ended:
            return
        if self._query is None:
            if self._start_at is not None and time.monotonic() >= self._start_at:
                self._try_start()
            return
        active = bool(self._query.isActive)
        if look or not active:
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
            self._records_seen = self._written_seen = 0
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
            self._say_failed(f"{self.node.name}: {self.progress.message}")
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
        self._take_written()
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

    def _take_written(self) -> None:
        writer, output = self._writer, self._output
        if writer is not None and writer.rows_written is not None:
            self.progress.rows_out = (self.progress.rows_out or 0) + writer.rows_written - self._written_seen
            self._written_seen = writer.rows_written
        elif output is not None and (last := output.last()) is not None:
            first = 0 if self._output_version is None else self._output_version + 1
            written = output.rows(first, last, self.node.name) if last >= first else 0
            self.progress.rows_out = (self.progress.rows_out or 0) + written
            self._output_version = last

    def _take_totals(self) -> None:
        totals = self._ledger.totals
        self.progress.unparsed = totals.unparsed
        self.progress.quarantined = totals.quarantined + totals.unparsed
        self.progress.late = totals.late
        self.progress.extra = dict(totals.extra)
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
