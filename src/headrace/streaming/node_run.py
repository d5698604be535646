"""One node while the pipeline runs: its query, started, looked at, started again after a failure.

`step` is called from the runner's loop and never waits. What to do about a failure is decided in `supervision`.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
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
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`wake` is called from another thread when its query has ended."""
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
        self._wake = wake
        self._over = threading.Event()  # the query has ended
        self.reported = False  # Spark has told how it goes, if only that there is nothing to do
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
        """Without `look` Spark is asked nothing unless the query has ended: each question costs both processes time."""
        if self.ended:
            return
        if self._query is None:
            if self._start_at is not None and time.monotonic() >= self._start_at:
                self._try_start()
            return
        if not look and not self._over.is_set():
            return
        active = bool(self._query.isActive)
        self._look(self._query)
        if not active:
            self._end(self._query)

    def stop(self) -> None:
        if self._query is not None:
            with suppress(Exception):
                self._query.stop()
            with suppress(Exception):
                self._look(self._query)  # batches that ended since the last look
            self._query = None
        if not self.ended:
            self.progress.status = "stopped"

    def _try_start(self) -> None:
        self._start_at = None
        try:
            self._query, self._writer = self._start()
            self._over = threading.Event()
            threading.Thread(target=self._await, args=(self._query, self._over), daemon=True).start()
            self._records_seen = self._written_seen = 0
            self.progress.status = "running"
        except Exception as error:
            self._failed(error, str(error))

    def _await(self, query: "StreamingQuery", over: threading.Event) -> None:
        """On a thread of its own, which waits in the JVM."""
        with suppress(Exception):  # why it ended is asked later
            query.awaitTermination()
        over.set()
        self._wake()

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
        self.reported = True
        # A report of nothing to do has the number that the next batch will have: the one before it may be news.
        batch = int(last["batchId"]) - (0 if _has_run(last) else 1)
        if batch >= 0 and batch != self._batch_seen:
            self._take(query, last, batch)
        if not _has_run(last):
            self.progress.input_rate = self.progress.rows_rate = 0.0
            self.progress.offsets, self.table_offsets = _offsets(last)

    def _take(self, query: "StreamingQuery", last: Any, batch: int) -> None:
        """All batches up to this one that were not seen yet; `last` is the newest report."""
        news = [last] if _has_run(last) else []
        with suppress(Exception):
            since = -1 if self._batch_seen is None else self._batch_seen
            news = [p for p in query.recentProgress if _has_run(p) and since < int(p["batchId"]) <= batch]
        # Of a batch that reports several times while it waits for data, the last report counts.
        by_batch = {int(each["batchId"]): each for each in news}
        self._batch_seen = batch
        if not by_batch:  # it ran before this query began
            return
        progress = self.progress
        progress.batches += len(by_batch)
        records = self._writer.records_read if self._writer is not None else None
        if records is not None:
            progress.rows_in += records - self._records_seen
            self._records_seen = records
        else:
            progress.rows_in += sum(self._rows_read(each) for each in by_batch.values())
        self._take_written()
        newest = by_batch[max(by_batch)]
        progress.batch = int(newest["batchId"])
        progress.input_rate = round(float(newest["inputRowsPerSecond"] or 0.0), 1)
        progress.rows_rate = round(float(newest["processedRowsPerSecond"] or 0.0), 1)
        progress.batch_ms = int((newest["durationMs"] or {}).get("triggerExecution", 0))
        progress.last_batch_at = now_text()
        progress.offsets, self.table_offsets = _offsets(newest)
        progress.status = "running"
        progress.message = ""
        self._restarts = 0  # a batch went through: what was wrong has passed
        self._take_totals()

    def _rows_read(self, report: Any) -> int:
        """Of tables, by their logs: Spark's own count leaves out what a filter skipped, and knows nothing of a node
        that is computed from whole tables."""
        starts, ends = _table_versions(report, "startOffset"), _table_versions(report, "endOffset")
        if not ends or ends.keys() - self._tables.keys():
            return int(report["numInputRows"])
        return sum(self._tables[table].rows(starts.get(table, 0), end - 1) for table, end in ends.items())

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
    for end in _sources(last, "endOffset"):
        for topic, partitions in end.items():
            if isinstance(partitions, dict):
                topics.setdefault(topic, {}).update({p: int(o) for p, o in partitions.items()})
    return topics, _table_versions(last, "endOffset")


def _table_versions(report: Any, side: str) -> dict[str, int]:
    """The next version of each table's id."""
    # A negative index means that nothing of that version was read yet.
    return {
        str(each["reservoirId"]): int(each["reservoirVersion"]) + (1 if int(each["index"]) >= 0 else 0)
        for each in _sources(report, side)
        if "reservoirVersion" in each
    }


def _sources(report: Any, side: str) -> Iterator[dict[str, Any]]:
    for source in report["sources"]:
        offset = source.get(side)
        with suppress(ValueError, TypeError):
            offset = json.loads(offset) if isinstance(offset, str) else offset
        if isinstance(offset, dict):
            yield offset
