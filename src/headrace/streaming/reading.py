"""The real streams of a run: topics from the broker, tables from this version's directory."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.core.errors import OperatorError
from headrace.streaming.declarations import Node, PipelineError, Static, TableStream, TopicStream
from headrace.streaming.first_commits import only_appended
from headrace.streaming.kafka import Kafka
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.schemas import Schemas
from headrace.streaming.sources import UNPARSED, parsed_topic, raw_range, raw_topic, static_table, table_stream
from headrace.streaming.spark_errors import first_line
from headrace.streaming.starting import starting
from headrace.tables.layout import tables_root
from headrace.tables.provenance import TopicSource
from headrace.tables.resolving import resolve
from headrace.tables.storage import is_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_path(tables_dir: str, table: str) -> str:
    """A path or URL as it stands; a name is a table of the tables directory, whichever version of it is live."""
    if is_url(table):
        return tables_root(table)
    if "/" in table:
        return os.path.expanduser(table)
    # A store has no links: which version is live is in the catalog alone.
    return resolve(tables_dir, table) if is_url(tables_dir) else os.path.join(tables_dir, table)


def real_path(path: str) -> str:
    """A stable path may lead elsewhere tomorrow; a stream keeps to the version that it began with."""
    return path if is_url(path) else os.path.realpath(path)


class StreamReader:
    def __init__(
        self,
        spark: "SparkSession",
        settings: RunSettings,
        schemas: Schemas,
        kafka: Kafka,
        *,
        own_path: Callable[[str], str],
        tables_dir: str,
        taken: frozenset[str] = frozenset(),
    ) -> None:
        """`taken` are tables that an earlier version has begun: who begins to read them now reads all of their commits
        in order, as if it had read them from the start."""
        self._taken = taken
        self._spark = spark
        self._settings = settings
        self._schemas = schemas
        self._kafka = kafka
        self._own_path = own_path
        self._tables_dir = tables_dir

    def topic(self, topic: TopicStream, observed: str) -> "DataFrame":
        return parsed_topic(self.raw(topic), self._schemas.parser(topic), UNPARSED + observed)

    def raw(self, topic: TopicStream) -> "DataFrame":
        """The topic's records as they are in the log."""
        partitions = self._kafka.check_topic(topic.topic, topic.place)
        begin = self._settings.starting or starting(topic.starting)
        return raw_topic(
            self._spark,
            topic,
            bootstrap=self._settings.bootstrap,
            common=self._settings.kafka,
            starting=begin.options(topic.topic, partitions),
        )

    def again(self, spark: "SparkSession", topic: TopicStream, span: TopicSource) -> "DataFrame":
        return raw_range(
            spark, topic, bootstrap=self._settings.bootstrap, common=self._settings.kafka, ranges=span.ranges
        )

    def own_table(self, node: Node, given: TableStream | None, *, changes: bool) -> "DataFrame":
        path = self._own_path(node.name)
        feed = changes or (given is not None and given.change_feed)
        limit = {"commits_max": None} if node.name in self._taken else {}
        by_commits = only_appended(path, change_feed=feed, **limit)
        return table_stream(self._spark, path, given, changes=changes, by_commits=by_commits)

    def other_table(self, given: TableStream) -> "DataFrame":
        path = table_path(self._tables_dir, given.table)
        try:
            return table_stream(self._spark, real_path(path), given, changes=False)
        except Exception as error:
            raise PipelineError(given.place, f"hr.stream({given.table!r}): {first_line(error)}") from error

    def static(self, given: Static, node: Node | None) -> "DataFrame":
        path = self._own_path(node.name) if node is not None else table_path(self._tables_dir, given.table)
        try:
            return static_table(self._spark, path, given)
        except OperatorError:
            raise
        except Exception as error:
            raise PipelineError(given.place, f"hr.static({given.table!r}): {first_line(error)}") from error
