"""`headrace pipeline check`: the schemas and modes of a pipeline, found by Spark's analysis alone.

The functions run on streams that have the right schemas and no rows, so that no Spark job starts, and neither tables
nor topics need to exist. Whatever is wrong names the file and the line.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from headrace.streaming.assembling import Assembled, Assembler, stored
from headrace.streaming.declarations import (
    MODES,
    BatchOutput,
    Mode,
    Node,
    PipelineError,
    Static,
    TableOutput,
    TableStream,
    Topic,
    TopicOutput,
)
from headrace.streaming.graph import Graph
from headrace.streaming.outline import OutlinedNode, outlined
from headrace.streaming.parsing import Parser, first_line
from headrace.streaming.sources import (
    CHANGE_COLUMNS,
    UNPARSED,
    empty_stream,
    parsed_topic,
    raw_topic,
    static_table,
    table_stream,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNode(OutlinedNode):
    mode: Mode
    schema: "StructType"


@dataclass(slots=True, kw_only=True)
class Checked:
    pipeline: str
    nodes: list[CheckedNode] = field(default_factory=list)

    def schema(self, node: str) -> "StructType":
        return next(each.schema for each in self.nodes if each.name == node)

    def mode(self, node: str) -> Mode:
        return next(each.mode for each in self.nodes if each.name == node)


def check(
    spark: "SparkSession",
    graph: Graph,
    *,
    parser: Callable[[Topic], Parser],
    path_of: Callable[[str], str],
) -> Checked:
    """`parser` knows a topic's schema; `path_of` where a table lies that is not of this pipeline."""
    checked = Checked(pipeline=graph.pipeline)
    schemas: dict[str, StructType] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-check-") as directory:
        assembler = Assembler(graph, _EmptyReader(spark, directory, schemas, parser, path_of))
        for node in graph.nodes.values():
            if not node.is_query:
                continue
            assembled = assembler.assemble(node.name)
            checked.nodes.append(_checked(graph, assembled, schemas))
    return checked


class _EmptyReader:
    def __init__(
        self,
        spark: "SparkSession",
        directory: str,
        schemas: "Mapping[str, StructType]",
        parser: Callable[[Topic], Parser],
        path_of: Callable[[str], str],
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._schemas = schemas
        self._parser = parser
        self._path_of = path_of

    def topic(self, topic: Topic, observed: str) -> "DataFrame":
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


def _checked(graph: Graph, assembled: Assembled, schemas: "dict[str, StructType]") -> CheckedNode:
    node, output = assembled.node, assembled.node.output
    frame = assembled.frame
    for expectation in node.expectations:
        _check_predicate(node, frame, f"expectation {expectation.name!r}", expectation.predicate)
    schema = stored(frame).schema
    if isinstance(output, TableOutput):
        _check_table(node, output, frame, schema)
        schemas[node.name] = schema
        if output.into is not None:
            _check_into(node, schema, schemas[output.into])
    if isinstance(output, TopicOutput):
        _check_topic(node, output, frame)
    return CheckedNode(**asdict(outlined(graph, node)), mode=output_mode(node, frame), schema=schema)


def output_mode(node: Node, frame: "DataFrame") -> Mode:
    """The mode that was asked for, or the first that fits; Spark itself says which do."""
    output = node.output
    declared: Mode | None = getattr(output, "mode", None)
    keyed = isinstance(output, TableOutput) and bool(output.key)
    wanted: tuple[Mode, ...]
    if declared is not None:
        wanted = (declared,)
    elif keyed or isinstance(output, TopicOutput | BatchOutput):
        wanted = ("update", "append")
    else:
        wanted = ("append",)
    if not set(wanted) <= set(MODES):
        raise PipelineError(node.place, f"{node.name}: mode {declared!r} is unknown")
    refusals = []
    for mode in wanted:
        refusal = _refusal(frame, mode)
        if refusal is None:
            return mode
        refusals.append(refusal)
    remedy = "" if keyed or declared else "; add key= to merge rows as they change, or mode='complete', or a watermark"
    raise PipelineError(node.place, f"{node.name}: {refusals[0]}{remedy}")


def _refusal(frame: "DataFrame", mode: Mode) -> str | None:
    jvm = frame.sparkSession._jvm
    if jvm is None:
        return None
    catalyst = jvm.org.apache.spark.sql.catalyst
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    java_mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    try:
        catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            frame._jdf.queryExecution().analyzed(), java_mode
        )
    except Exception as error:
        return first_line(error).split(";")[0]
    return None


def _check_predicate(node: Node, frame: "DataFrame", what: str, predicate: str) -> None:
    try:
        frame.where(predicate)
    except Exception as error:
        raise PipelineError(node.place, f"{node.name}: {what}: {predicate!r}: {first_line(error)}") from error


def _check_columns(node: Node, what: str, names: tuple[str, ...], columns: list[str]) -> None:
    import difflib

    for name in names:
        if name not in columns:
            near = difflib.get_close_matches(name, columns, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(columns)}"
            raise PipelineError(node.place, f"{node.name}: {what} names {name!r}, which it does not return{hint}")


def _check_table(node: Node, output: TableOutput, frame: "DataFrame", schema: "StructType") -> None:
    repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if repeated:
        raise PipelineError(node.place, f"{node.name}: returns two columns named {repeated[0]!r}; rename or drop one")
    _check_columns(node, "key", output.key, schema.names)
    _check_columns(node, "partition_by", output.partition_by, schema.names)
    _check_columns(node, "order_by", output.order_by, frame.columns)
    if output.delete is not None:
        _check_predicate(node, frame, "delete", output.delete)
    if output.replace_where is not None:
        _check_predicate(node, frame, "replace_where", output.replace_where)
    for column in schema.fields:
        if column.dataType.typeName() == "void":
            raise PipelineError(
                node.place, f"{node.name}: column {column.name!r} has no type; cast it, e.g. F.lit(None).cast('string')"
            )


def _check_into(node: Node, schema: "StructType", target: "StructType") -> None:
    mine = {column.name: column.dataType for column in schema.fields}
    theirs = {column.name: column.dataType for column in target.fields}
    if mine != theirs:
        raise PipelineError(node.place, f"{node.name}: its columns are not those of the table that it fills back")


def _check_topic(node: Node, output: TopicOutput, frame: "DataFrame") -> None:
    columns = frame.columns
    _check_columns(node, "key", output.key, columns)
    _check_columns(node, "order_by", output.order_by, columns)
    if output.value is not None:
        _check_columns(node, "value", (output.value,), columns)
    if output.headers is not None:
        _check_columns(node, "headers", (output.headers,), columns)
