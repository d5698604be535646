"""Sending quarantined rows through the present code, each exactly once.

A redrive has a number, and goes in steps of which each is whole or did not happen. The process may be killed between
any two: the next redrive completes the one before.

    1. mark      rows of the quarantine that are to go get the number           one commit of the quarantine
    2. stage     what the node's function makes of them                         one commit beside the quarantine
    3. write     what is as expected goes to the table, under the number        one transaction of the table
    4. put back  what is bad again goes to the quarantine, with its reason now  one transaction of the quarantine
    5. clear     marked rows are deleted, and what was staged                   repeated without harm

A record that could not be parsed goes through the parser and the function if it can be parsed now. A row that an
expectation kept out is made again from its record, read from the log, where the function gives at most one row per
record and passes its place on; else the row itself meets the expectations again. A node that keeps state is refused.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.streaming import expectations
from headrace.streaming.assembling import Assembler
from headrace.streaming.commit_rows import table_version
from headrace.streaming.declarations import Node, Static, TableOutput, TableStream, TopicStream
from headrace.streaming.delta_writes import Stamp, add_column, append
from headrace.streaming.parsing import BAD, Parser
from headrace.streaming.plans import operators
from headrace.streaming.quarantine import rows_kept_out
from headrace.streaming.sources import whole_records, without_hidden
from headrace.tables.storage import is_delta, storage_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PART = "redrive"
NUMBER = "redrive"  # the column of the quarantine that marks a row
STAGED = "_redrive"
_STATEFUL = frozenset({"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "GlobalLimit", "Sort",
                       "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState",
                       "TransformWithStateInPySpark", "TransformWithStateInPandas"})  # fmt: skip
_ONE_FOR_ONE = frozenset({"Project", "Filter", "SubqueryAlias", "EventTimeWatermark", "CollectMetrics"})
# What an expectation kept out has no record; what could not be parsed has one, and its text too where it is text.
_ROW = "row is not null and value is null"
_RECORD = f"not ({_ROW})"
_RAW = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """Rows of a node's quarantine that were sent, what they became, and what stays there."""

    node: str
    sent: int = 0
    written: int = 0
    kept: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveTarget:
    """Where a node's rows lie, and what reads and writes them."""

    node: Node
    topics: tuple[TopicStream, ...]
    table: str
    quarantine: str
    stamp: Callable[[int], Stamp]
    parser: Callable[[TopicStream], Parser]
    assembler: Callable[[Any], Assembler]
    again: "Callable[[SparkSession, TopicStream, dict[int, tuple[int, int]]], DataFrame]"
    beginnings: Callable[[str, set[int]], dict[int, int]]
    write: "Callable[[DataFrame, Stamp], None]"
    static: "Callable[[Static, Node | None], DataFrame]"
    empty: "Callable[[str], DataFrame]"


def obstacle(node: Node, frame: "DataFrame | None", *, whole: bool) -> str | None:
    """Why the rows of a node cannot be sent again; `frame` is its stream, `whole` if it is computed from tables."""
    if not isinstance(node.output, TableOutput) or node.output.into is not None:
        return "writes no table of its own; replay the pipeline"
    if whole or frame is None:
        return "is computed from whole tables; fix those that it reads"
    if node.output.mode == "complete":
        return "rewrites its table with each batch; replay the pipeline"
    for plan in operators(frame):
        name = str(plan.nodeName())
        if not plan.isStreaming():
            continue
        streams = sum(1 for child in _children(plan) if child.isStreaming())
        if name in _STATEFUL or (name == "Join" and streams > 1):
            return f"keeps state ({name}), which its quarantined rows are not in; replay the pipeline"
    return None


def one_for_one(frame: "DataFrame") -> bool:
    """Whether a record gives at most one row, and the row tells which record it was."""
    known = {"_topic", "_partition", "_offset"} <= set(frame.columns)
    inner = [plan for plan in operators(frame) if _children(plan)]
    return known and all(str(plan.nodeName()) in _ONE_FOR_ONE for plan in inner)


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(index) for index in range(children.size())]


class _Reader:
    """The inputs of a function: the records that are sent again for their topics, nothing of all other streams."""

    def __init__(self, place: RedriveTarget, raw: "DataFrame") -> None:
        self._place = place
        self._raw = raw

    def topic(self, topic: TopicStream, observed: str) -> "DataFrame":
        from pyspark.sql import functions as F

        return whole_records(self._raw.where(F.col("topic") == topic.topic), self._place.parser(topic))

    def own_table(self, node: Node, given: TableStream | None, *, changes: bool) -> "DataFrame":
        return self._place.empty(node.name)

    def other_table(self, given: TableStream) -> "DataFrame":
        return self._place.empty(given.table)

    def static(self, given: Static, node: Node | None) -> "DataFrame":
        return self._place.static(given, node)


class Redrive:
    """One node. `row_wise` says that a record gives at most one row."""

    def __init__(self, spark: "SparkSession", place: RedriveTarget, *, row_wise: bool) -> None:
        self._spark = spark
        self._place = place
        self._row_wise = row_wise
        self._staged = os.path.join(
            os.path.dirname(os.path.dirname(place.quarantine)), STAGED, os.path.basename(place.quarantine)
        )

    def run(self) -> Redriven:
        """Completes what was interrupted, then sends all that is there."""
        if not is_delta(self._place.quarantine):
            return Redriven(node=self._place.node.name)
        self._add_column()
        pending = self._pending()
        if pending is not None:
            self._finish(pending)
        storage_of(self._staged).remove_tree(self._staged)
        # Each redrive commits to the quarantine: a number never comes twice.
        number = (table_version(self._place.quarantine) or 0) + 1
        sent = self._mark(number)
        written = self._finish(number) if sent else 0
        return Redriven(node=self._place.node.name, sent=sent, written=written, kept=self._rows().count())

    def _rows(self) -> "DataFrame":
        return self._spark.read.format("delta").load(self._place.quarantine)

    def _add_column(self) -> None:
        from pyspark.sql.types import LongType, StructField

        if NUMBER not in self._rows().columns:
            add_column(self._spark, self._place.quarantine, StructField(NUMBER, LongType()))

    def _pending(self) -> int | None:
        from pyspark.sql import functions as F

        found = self._rows().agg(F.max(NUMBER)).first()
        return None if found is None or found[0] is None else int(found[0])

    def _mark(self, number: int) -> int:
        """All that was kept out by an expectation, and what can be parsed now."""
        from pyspark.sql import functions as F

        rows = self._rows()
        goes = self._goes(rows)
        marked = goes.withColumn(NUMBER, F.when(F.col("_goes"), F.lit(number).cast("bigint"))).drop("_goes")
        count = goes.where("_goes").count()
        if count:
            kept = marked.select(*rows.columns)
            kept.write.format("delta").mode("overwrite").save(self._place.quarantine)
        return count

    def _goes(self, rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        whole = F.struct(*[F.col(f"`{name}`") for name in rows.columns])
        parts = [rows.where(_ROW).select(whole.alias("_q"), F.lit(True).alias("_goes"))]
        names = [topic.topic for topic in self._place.topics]
        single = [topic for topic in self._place.topics if names.count(topic.topic) == 1]
        raw = rows.where(_RECORD).withColumn("headers", _no_headers())
        for topic in single:
            parsed = self._place.parser(topic).split(raw.where(F.col("topic") == topic.topic))
            parts.append(parsed.select(whole.alias("_q"), (~F.col(BAD)).alias("_goes")))
        known = [topic.topic for topic in single]
        other = raw.where(~F.coalesce(F.col("topic").isin(*known), F.lit(False))) if known else raw
        parts.append(other.select(whole.alias("_q"), F.lit(False).alias("_goes")))
        return reduce(lambda one, more: one.unionAll(more), parts).select("_q.*", "_goes")

    def _finish(self, number: int) -> int:
        from delta.tables import DeltaTable
        from pyspark.sql import functions as F

        place, stamp = self._place, self._place.stamp(number)
        staged = os.path.join(self._staged, str(number))
        if not is_delta(staged):
            marked = self._rows().where(F.col(NUMBER) == number)
            made = expectations.observe(self._made(marked), place.node.expectations)
            made.write.format("delta").mode("overwrite").save(staged)
        frame = self._spark.read.format("delta").load(staged)
        place.write(frame, stamp.as_part(PART))
        written = expectations.kept(frame, place.node.expectations).count()
        if any(each.action == "quarantine" for each in place.node.expectations):
            bad, reason = expectations.quarantined(frame, place.node.expectations)
            rows, under = rows_kept_out(bad, reason, stamp.as_part(f"{PART}/quarantine"))
            append(rows, place.quarantine, under)
        DeltaTable.forPath(self._spark, place.quarantine).delete(F.col(NUMBER) == number)
        storage_of(staged).remove_tree(staged)
        return written

    def _made(self, marked: "DataFrame") -> "DataFrame":
        """What the present code makes of the marked rows."""
        raw = marked.where(_RECORD).withColumn("headers", _no_headers()).select(*_RAW)
        rows = marked.where(_ROW)
        if self._row_wise:
            found, rows = self._from_log(rows)
            for each in found:
                raw = raw.unionByName(each)
        assembler = self._place.assembler(_Reader(self._place, raw))
        made = assembler.compute(self._place.node.name)
        return made.unionByName(_from_json(rows, made), allowMissingColumns=True)

    def _from_log(self, rows: "DataFrame") -> "tuple[list[DataFrame], DataFrame]":
        """The records of rows whose place in the log is known and still there; and the rows that are left."""
        from pyspark.sql import functions as F

        spans = rows.where("offset is not null").groupBy("topic", "partition").agg(F.min("offset"), F.max("offset"))
        by_topic: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, partition, first, last in spans.collect():
            by_topic.setdefault(topic, {})[int(partition)] = (int(first), int(last) + 1)
        found, left = [], rows
        for topic in self._place.topics:
            wanted = by_topic.pop(topic.topic, {})
            begin = self._place.beginnings(topic.topic, set(wanted))
            ranges = {p: span for p, span in wanted.items() if p in begin and span[0] >= begin[p]}
            if not ranges:
                continue
            here = (F.col("topic") == topic.topic) & F.col("partition").isin(*ranges) & F.col("offset").isNotNull()
            places = left.where(here).select("topic", "partition", "offset").distinct()
            raw = self._place.again(self._spark, topic, ranges)
            found.append(raw.join(F.broadcast(places), ["topic", "partition", "offset"], "left_semi").select(*_RAW))
            left = left.where(~F.coalesce(here, F.lit(False)))
        return found, left


def _no_headers() -> "Column":
    from pyspark.sql import functions as F

    return F.lit(None).cast("array<struct<key: string, value: binary>>")


def _from_json(rows: "DataFrame", like: "DataFrame") -> "DataFrame":
    """Rows as the function once gave them, from their JSON; with their place in the log as far as it is known."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    kept = {"_topic": "topic", "_partition": "partition", "_offset": "offset", "_timestamp": "timestamp", "_key": "key"}
    schema = StructType([column for column in like.schema.fields if column.name not in kept])
    parsed = rows.withColumn("_row", F.from_json("row", schema))
    columns = [
        F.col(kept[name]).cast(like.schema[name].dataType).alias(name)
        if name in kept
        else F.col("_row").getField(name).alias(name)
        for name in like.columns
    ]
    return parsed.select(*columns)


def empty_table(spark: "SparkSession", path: str) -> "DataFrame":
    """An empty frame of a table's columns."""
    return without_hidden(spark.read.format("delta").load(path)).limit(0)
