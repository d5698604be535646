"""A pipeline under test: rows in, tables out, in batches that the test chooses.

Nothing is faked: a broker of the test's own holds the rows, and every batch is a run of the whole pipeline, from its
checkpoints, as `headrace pipeline run --once` does it. So a test of two batches is a test of a restart as well.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.embedded import Broker
from headrace.core.errors import OperatorError
from headrace.streaming import operation
from headrace.streaming.kafka import Kafka
from headrace.streaming.launching import launch_loaded
from headrace.streaming.python_run import Counts, Pipeline, Run, opened, outcome_of
from headrace.streaming.python_tables import Table, read_table
from headrace.streaming.run_settings import RunSettings
from headrace.tables.layout import QUARANTINE
from headrace.testing.records import Record, read, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Mapping[str, Sequence[Any]]


class PipelineUnderTest:
    """What the fixture `headrace_pipeline` returns: a pipeline, the rows that it was given, the tables that it made."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        spark: "SparkSession",
        broker: Broker,
        tables: str | os.PathLike[str],
        name: str | None = None,
    ) -> None:
        self.spark = spark
        self.bootstrap_servers = broker.bootstrap_servers
        self.tables = os.fspath(tables)
        self._loaded, self._graph = opened(pipeline, name)
        self._topics = sorted({each.topic for node in self._graph.queries for each in self._graph.topics(node.name)})
        kafka = Kafka(self.bootstrap_servers)
        for topic in self._topics:
            kafka.ensure_topic(topic)
        self.last: Run | None = None

    def send(self, rows: Rows) -> None:
        """Sends rows (per topic), and runs nothing."""
        for topic, values in rows.items():
            if topic not in self._topics:
                raise OperatorError(f"{topic}: no node reads this topic; the pipeline reads {', '.join(self._topics)}")
            send(self.bootstrap_servers, topic, values)

    def batch(self, rows: Rows | None = None, *, allow_failures: bool = False) -> Run:
        """Sends rows (per topic), and runs everything that is there as one batch per node."""
        self.send(rows or {})
        launch = launch_loaded(self._loaded, self._graph, self.tables, path=self._loaded.file, accept_change=True)
        settings = RunSettings(tables_dir=self.tables, bootstrap=self.bootstrap_servers, once=True, restarts_max=0)
        self.last = outcome_of(
            operation.run_version_on(self.spark, launch, settings, keep_failed=True), launch, self.tables
        )
        return self.last if allow_failures else self.last.raise_for_failures()

    @property
    def counts(self) -> Mapping[str, Counts]:
        """What each node has read, put aside and dropped."""
        return self._run().counts

    @property
    def failures(self) -> Mapping[str, str]:
        """Why nodes have stopped, by their names."""
        return self._run().failures

    def table(self, name: str, *, version: int | None = None) -> Table:
        """A table, to be had as pandas, Polars, Arrow or Spark."""
        return read_table(name, tables=self.tables, version=version)

    def rows(self, table: str, *columns: str) -> list[dict[str, Any]]:
        """The rows of a table as dicts, or some columns of them, in the order of their values."""
        found = self.table(table).rows()
        if columns:
            found = [{name: row[name] for name in columns} for row in found]
        return sorted(found, key=_by_values)

    def quarantine(self, node: str) -> list[dict[str, Any]]:
        """What a node has put aside, with the `reason`; empty if nothing."""
        aside = f"{QUARANTINE}/{node}"
        if node not in self._graph.nodes:
            raise OperatorError(f"{node}: no such node; there are: {', '.join(self._graph.nodes)}")
        counts = self._run().counts.get(node)
        return self.rows(aside) if counts is not None and counts.quarantined else []

    def records(self, topic: str) -> list[Record]:
        """What is in a topic, such as one that the pipeline writes."""
        return read(self.bootstrap_servers, topic)

    def _run(self) -> Run:
        if self.last is None:
            raise OperatorError("the pipeline has not run yet; give it rows, or call batch()")
        return self.last


def _by_values(row: Mapping[str, Any]) -> list[tuple[bool, str | float]]:
    """Numbers by their size, all else by its text; nulls first."""
    return [
        (value is not None, value if isinstance(value, int | float) else "" if value is None else str(value))
        for value in row.values()
    ]
