"""Inputs of the right schemas and without rows: what a pipeline's functions are called with to be checked."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.streaming.declarations import Node, PipelineError, Static, TableStream, TopicStream
from headrace.streaming.parsing import Parser
from headrace.streaming.sources import (
    CHANGE_COLUMNS,
    UNPARSED,
    empty_stream,
    parsed_topic,
    raw_topic,
    static_table,
    table_stream,
)
from headrace.streaming.spark_errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class EmptyReader:
    def __init__(
        self,
        spark: "SparkSession",
        directory: str,
        schemas: "Mapping[str, StructType]",
        parser: Callable[[TopicStream], Parser],
        path_of: Callable[[str], str],
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._schemas = schemas
        self._parser = parser
        self._path_of = path_of

    def topic(self, topic: TopicStream, observed: str) -> "DataFrame":
        raw = raw_topic(self._spark, topic, bootstrap="127.0.0.1:9", common={}, starting={})
        return parsed_topic(raw, self._parser(topic), UNPARSED + observed)

    def own_table(self, node: Node, given: TableStream | None, *, changes: bool) -> "DataFrame":
        schema = self._schemas[node.name]
        if given is not None and given.change_feed:
            from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

            kinds = (StringType(), LongType(), TimestampType())
            extra = [StructField(name, kind) for name, kind in zip(CHANGE_COLUMNS, kinds, strict=True)]
            schema = StructType([*schema.fields, *extra])
        return empty_stream(self._spark, schema, self._directory)

    def whole(self, stream: "DataFrame") -> "DataFrame":
        return self._spark.createDataFrame([], stream.schema)

    def other_table(self, given: TableStream) -> "DataFrame":
        try:
            return table_stream(self._spark, self._path_of(given.table), given, changes=False)
        except Exception as error:
            raise PipelineError(given.place, f"hr.stream({given.table!r}): {first_line(error)}") from error

    def static(self, given: Static, node: Node | None) -> "DataFrame":
        if node is not None:
            return self._spark.createDataFrame([], self._schemas[node.name])
        try:
            return static_table(self._spark, self._path_of(given.table), given)
        except Exception as error:
            raise PipelineError(given.place, f"hr.static({given.table!r}): {first_line(error)}") from error


class EmptyTables:
    """The same for a function that reads whole tables. `given` are those that were asked for, but not static ones."""

    def __init__(self, empty: EmptyReader) -> None:
        self._empty = empty
        self.given: list[DataFrame] = []

    def topic(self, topic: TopicStream, observed: str) -> "DataFrame":
        raise PipelineError(topic.place, f"topic {topic.topic!r}: cannot be read whole; make a table of it first")

    def own_table(self, node: Node, given: TableStream | None, *, changes: bool) -> "DataFrame":
        return self._given(self._empty.own_table(node, given, changes=changes))

    def other_table(self, given: TableStream) -> "DataFrame":
        return self._given(self._empty.other_table(given))

    def static(self, given: Static, node: Node | None) -> "DataFrame":
        return self._empty.static(given, node)

    def _given(self, stream: "DataFrame") -> "DataFrame":
        self.given.append(self._empty.whole(stream))
        return self.given[-1]
