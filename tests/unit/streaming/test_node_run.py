"""A node's query that fails, waits, starts again, and in the end stops: without Spark, by a query made of paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_commit_rows import commit

import headrace as hr
from headrace.streaming.declarations import Node
from headrace.streaming.declare_nodes import DECLARED
from headrace.streaming.kafka import BrokerAwayError
from headrace.streaming.node_run import NodeRun
from headrace.streaming.supervision import Patience
from headrace.tables.expectations import Ledger
from headrace.tables.provenance import TopicSource


@hr.table
def clean(orders):  # type: ignore[no-untyped-def]
    return orders


NODE: Node = getattr(clean, DECLARED)


class PaperWriter:
    failure: BaseException | None = None
    batch: int | None = 4
    written = True
    ranges = (TopicSource(topic="orders", ranges={0: (10, 20)}),)
    records_read: int | None = 10
    rows_written: int | None = None


class PaperQuery:
    def __init__(self, batch: int | None = None, error: Exception | None = None) -> None:
        self.isActive = error is None
        self.error = error
        self.stopped = False
        end = '{"orders": {"0": 20}}'
        self.lastProgress: Any = None
        if batch is not None:
            self.lastProgress = {
                "batchId": batch, "numInputRows": 10, "inputRowsPerSecond": 5.0, "processedRowsPerSecond": 20.0,
                "durationMs": {"triggerExecution": 500, "addBatch": 400}, "sources": [{"endOffset": end}],
            }  # fmt: skip
        self.recentProgress = [self.lastProgress]

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stopped = True


def node_run(
    tmp_path: Path, *starts: Callable[[], tuple[Any, Any]], tables: dict[str, str] | None = None
) -> tuple[NodeRun, list[str]]:
    left, said = list(starts), []  # type: ignore[var-annotated]
    run = NodeRun(
        NODE,
        lambda: left.pop(0)(),
        patience=Patience(restarts_max=2, backoff_s_min=1e-6, backoff_s_max=1e-6),
        ledger=Ledger(str(tmp_path / "_expectations" / "clean.jsonl")),
        table_paths=tables or {},
        say=said.append,
    )
    run.begin()
    return run, said


def away() -> tuple[Any, Any]:
    raise BrokerAwayError("127.0.0.1:9092: no answer")


def test_a_broker_that_is_away_is_waited_for_and_shown(tmp_path: Path) -> None:
    run, said = node_run(tmp_path, away, lambda: (PaperQuery(batch=4), PaperWriter()))
    run.step()
    assert run.progress.status == "restarting"
    assert "no answer; restart 1 in" in run.progress.message
    assert said == [f"clean: {run.progress.message}"]
    while run.progress.batch is None:
        run.step()
    assert (run.progress.status, run.progress.message, run.progress.restarts) == ("running", "", 1)
    assert (run.progress.batch, run.progress.rows_in, run.progress.batch_ms) == (4, 10, 500)
    assert run.progress.offsets == {"orders": {"0": 20}}


def test_an_idle_report_does_not_hide_the_batch_that_gets_its_number(tmp_path: Path) -> None:
    query = PaperQuery(batch=4)
    batch = query.lastProgress
    query.lastProgress = {**batch, "numInputRows": 0, "durationMs": {"triggerExecution": 3, "latestOffset": 2}}
    query.recentProgress = [query.lastProgress]
    run, _ = node_run(tmp_path, lambda: (query, PaperWriter()))
    run.step()
    run.step()
    assert (run.progress.batch, run.progress.rows_in) == (None, 0)
    assert run.progress.offsets == {"orders": {"0": 20}}
    query.recentProgress.append(batch)
    query.lastProgress = batch
    run.step()
    assert (run.progress.batch, run.progress.rows_in, run.progress.batch_ms) == (4, 10, 500)


def test_a_batch_before_an_idle_report_is_counted(tmp_path: Path) -> None:
    query = PaperQuery(batch=4)
    ran = query.lastProgress
    idle = {**ran, "batchId": 5, "numInputRows": 0, "durationMs": {"triggerExecution": 3, "latestOffset": 2}}
    query.lastProgress, query.recentProgress = idle, [ran, idle]
    run, _ = node_run(tmp_path, lambda: (query, PaperWriter()))
    run.step()
    run.step()
    run.step()
    assert (run.progress.batch, run.progress.batches, run.progress.rows_in) == (4, 1, 10)
    assert run.progress.input_rate == 0.0


def test_a_batch_that_ends_between_two_questions_is_counted_once(tmp_path: Path) -> None:
    query, writer = PaperQuery(batch=4), PaperWriter()
    writer.records_read = None
    after = {**query.lastProgress, "batchId": 5}
    query.recentProgress.append(after)
    run, _ = node_run(tmp_path, lambda: (query, writer))
    run.step()
    run.step()
    assert (run.progress.batch, run.progress.rows_in) == (4, 10)
    query.lastProgress = after
    run.step()
    assert (run.progress.batch, run.progress.rows_in) == (5, 20)


def test_what_was_done_since_the_last_look_is_counted_at_the_end(tmp_path: Path) -> None:
    query, writer = PaperQuery(batch=4), PaperWriter()
    run, _ = node_run(tmp_path, lambda: (query, writer))
    run.step()
    run.step()
    query.lastProgress = {**query.lastProgress, "batchId": 5}
    query.recentProgress.append(query.lastProgress)
    writer.records_read = 25
    run.stop()
    assert (run.progress.status, run.progress.batches, run.progress.rows_in) == ("stopped", 2, 25)


def test_rows_of_a_table_are_counted_by_its_log_whatever_a_filter_skipped(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for version, rows in enumerate((0, 513, 482, 7)):
        commit(table, version, numOutputRows=rows)
    query, writer = PaperQuery(batch=0), PaperWriter()
    writer.records_read = None

    def read(start: int | None, end: int, index: int = -1) -> list[dict[str, Any]]:
        begin, until = (
            json.dumps({"reservoirId": "t", "reservoirVersion": at, "index": index}) if at is not None else None
            for at in (start, end)
        )
        return [{"startOffset": begin, "endOffset": until}]

    query.lastProgress["sources"] = read(None, 2)
    later = {**query.lastProgress, "batchId": 1, "sources": read(2, 3)}
    run, _ = node_run(tmp_path, lambda: (query, writer), tables={"t": str(table)})
    run.step()
    run.step()
    assert run.progress.rows_in == 513
    query.recentProgress.append(later)
    query.lastProgress = later
    run.step()
    assert (run.progress.rows_in, run.rows_behind) == (995, 7)


def test_trying_has_an_end(tmp_path: Path) -> None:
    run, _ = node_run(tmp_path, away, away, away)
    while not run.ended:
        run.step()
    assert run.failed
    assert run.progress.restarts == 2


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            RuntimeError("headrace expectation failed: x (a > 0) in {}"),
            "batch 4 (orders offsets 0: 10-19): expectation",
        ),
        (RuntimeError("org.apache.spark.sql.AnalysisException: no column"), "fix the function"),
    ],
)
def test_what_does_not_mend_itself_says_batch_and_offsets(tmp_path: Path, error: Exception, says: str) -> None:
    writer = PaperWriter()
    writer.failure = error
    run, _ = node_run(tmp_path, lambda: (PaperQuery(error=error), writer))
    run.step()
    run.step()
    assert run.progress.status == "failed"
    assert says in run.progress.message


def test_a_query_that_ends_without_an_error_is_finished(tmp_path: Path) -> None:
    query = PaperQuery(batch=0)
    query.isActive = False
    run, _ = node_run(tmp_path, lambda: (query, PaperWriter()))
    run.step()
    run.step()
    assert run.progress.status == "finished"


def test_stop_stops_the_query(tmp_path: Path) -> None:
    query = PaperQuery(batch=0)
    run, _ = node_run(tmp_path, lambda: (query, PaperWriter()))
    run.step()
    run.stop()
    assert query.stopped
    assert run.progress.status == "stopped"
