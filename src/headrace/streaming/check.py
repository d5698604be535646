"""`headrace pipeline check`: the schemas and modes of a pipeline, found by Spark's analysis alone.

The functions run on streams that have the right schemas and no rows, so that no Spark job starts, and neither tables
nor topics need to exist. Whatever is wrong names the file and the line.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from headrace.core.errors import InvariantError
from headrace.streaming import late_rows
from headrace.streaming.assembling import Assembled, Assembler, stored
from headrace.streaming.batch_dependence import dependence_notes, refuse_dependent
from headrace.streaming.changing import changes_how, changing_input, refuse, unmaintainable
from headrace.streaming.debezium import EXTRA_COLUMNS
from headrace.streaming.declarations import (
    HISTORY_COLUMNS,
    MODES,
    BatchOutput,
    Mode,
    Node,
    PipelineError,
    TableOutput,
    TopicOutput,
    TopicStream,
)
from headrace.streaming.empty_reading import EmptyReader, EmptyTables
from headrace.streaming.graph import Graph
from headrace.streaming.keyed.history import history_schema
from headrace.streaming.keyed.order import Order, order_field, order_notes, order_of
from headrace.streaming.keyed.partial import orders_field
from headrace.streaming.maintainable import obstacle
from headrace.streaming.outline import OutlinedNode, outlined
from headrace.streaming.parsing import Parser
from headrace.streaming.plans import above_state, ends_in_groups, filters, gives_rows_once, group_problem, updates_rows
from headrace.streaming.spark_errors import first_line
from headrace.streaming.spark_internals.plan import refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNode(OutlinedNode):
    """`order` tells which row of a key is the last; None for a table without a key, or one that state updates.
    `maintained`: it is kept up to date from the changes of the tables that it reads. `grouped`: its rows are groups,
    each under its key, so that a batch has one row per key at most."""

    mode: Mode
    schema: "StructType"
    order: Order | None = None
    hidden: "tuple[StructField, ...]" = ()
    maintained: bool = False
    grouped: bool = False


@dataclass(slots=True, kw_only=True)
class Checked:
    pipeline: str
    nodes: list[CheckedNode] = field(default_factory=list)

    def schema(self, node: str) -> "StructType":
        return self.node(node).schema

    def mode(self, node: str) -> Mode:
        return self.node(node).mode

    def node(self, name: str) -> CheckedNode:
        return next(each for each in self.nodes if each.name == name)


def check(
    spark: "SparkSession",
    graph: Graph,
    *,
    parser: Callable[[TopicStream], Parser],
    path_of: Callable[[str], str],
) -> Checked:
    """`parser` knows a topic's schema; `path_of` where a table lies that is not of this pipeline."""
    checked = Checked(pipeline=graph.pipeline)
    schemas: dict[str, StructType] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-check-") as directory:
        reader = EmptyReader(spark, directory, schemas, parser, path_of)
        assembler = Assembler(graph, reader)
        changing: dict[str, str] = {}
        for node in graph.queries:
            table = None if node.recomputed else changing_input(graph, node, changing)
            if node.recomputed or table is not None:
                found = _checked_whole(graph, node, reader, schemas, table, changing)
            else:
                assembled = assembler.assemble(node.name)
                if isinstance(node.output, TableOutput) and node.output.inherited:
                    _check_unfiltered(graph, assembled, reader)
                found = _checked(graph, assembled, schemas)
            checked.nodes.append(found)
            how = changes_how(node, found.order)
            if how is not None:
                changing[node.name] = how
    return checked


def _check_unfiltered(graph: Graph, assembled: Assembled, reader: EmptyReader) -> None:
    """A change that is filtered out leaves the row as it was before, and a delete must come through."""
    node = assembled.node
    (topic,) = graph.topics(node.name)
    if filters(assembled.frame) > filters(reader.topic(topic, "0")):
        raise PipelineError(
            node.place,
            f"{node.name}: filters the changes of {topic.topic!r}, so that a row which no longer passes would stay as "
            f"it was; filter in a table that reads this one",
        )


def _checked_whole(
    graph: Graph,
    node: Node,
    reader: EmptyReader,
    schemas: "dict[str, StructType]",
    table: str | None,
    changing: Mapping[str, str],
) -> CheckedNode:
    """A node that is computed from whole tables; `table`, if it is to be kept up to date from that one's changes."""
    why = unmaintainable(graph, node) if table is not None else None
    tables = EmptyTables(reader)
    frame = None if why is not None else Assembler(graph, tables).compute(node.name)
    if table is not None:
        if frame is not None and isinstance(node.output, TableOutput):
            _check_columns(node, "key", node.output.key, frame.columns)
            why = obstacle(frame, node.output.key, tuple(tables.given))
        if why is not None:
            refuse(node, table, changing[table], why)
    if frame is None:
        raise InvariantError(f"{node.name}: neither refused nor computed")
    assembled = Assembled(node=node, frame=frame, observed={}, statics={})
    return _checked(graph, assembled, schemas, maintained=table is not None)


def _checked(
    graph: Graph, assembled: Assembled, schemas: "dict[str, StructType]", *, maintained: bool = False
) -> CheckedNode:
    node, output = assembled.node, assembled.node.output
    frame = assembled.frame
    for expectation in node.expectations:
        _check_predicate(node, frame, f"expectation {expectation.name!r}", expectation.predicate)
    schema = stored(frame, output.leave_out if isinstance(output, TableOutput) else ()).schema
    if isinstance(output, TableOutput):
        _check_table(node, output, frame, schema)
        if output.history:
            schema = _with_history(node, schema, frame)
        schemas[node.name] = schema
        if output.into is not None:
            _check_into(node, schema, schemas[output.into])
    if isinstance(output, TopicOutput):
        _check_topic(node, output, frame)
    whole = node.recomputed or maintained
    mode = "append" if whole else output_mode(node, frame)
    if not whole:
        refuse_dependent(node, frame, mode)
    if node.late == "quarantine" and (why := late_rows.obstacle(graph, node, frame, mode)) is not None:
        raise PipelineError(
            node.place, f"{node.name}: late='quarantine': {why}; or leave it out, late rows are counted"
        )
    order = None if whole else _order(node, frame, mode)
    hidden = _hidden(output, order, schema, frame) if isinstance(output, TableOutput) and order is not None else ()
    found = outlined(graph, node)
    ordered = order_notes(output, order) if isinstance(output, TableOutput) else ()
    outline = {**asdict(found), "notes": (*found.notes, *ordered, *dependence_notes(node, frame, mode))}
    keyed = isinstance(output, TableOutput) and bool(output.key) and order is None
    return CheckedNode(
        **outline, mode=mode, schema=schema, order=order, hidden=hidden, maintained=maintained,
        grouped=keyed and ends_in_groups(frame),
    )  # fmt: skip


def _hidden(output: TableOutput, order: Order, schema: "StructType", frame: "DataFrame") -> "tuple[StructField, ...]":
    field = order_field(order, frame.schema)
    return (field,) if output.nulls == "null" else (field, orders_field(order, output, schema, frame.schema))


def _order(node: Node, frame: "DataFrame", mode: Mode) -> Order | None:
    output = node.output
    if not isinstance(output, TableOutput):
        return None
    order = order_of(output, frame.columns, by_state=mode == "update" and updates_rows(frame))
    if output.key and order is None:
        _check_state(node, frame, output.key)
    if order is None and (output.history or output.truncate is not None or output.nulls == "unchanged"):
        raise PipelineError(
            node.place,
            f"{node.name}: history=, truncate= and nulls= cannot be used with an aggregate or custom state; "
            f"remove them",
        )
    if order is not None and order.once and output.delete is not None:
        raise PipelineError(
            node.place,
            f"{node.name}: delete= needs to know whether a row came before or after; add order_by=, "
            f"or return _topic, _partition and _offset",
        )
    return order


def _check_state(node: Node, frame: "DataFrame", key: tuple[str, ...]) -> None:
    """Rows that state updates must reach the table one for one, each under the key of its group."""
    above = above_state(frame)
    if above is not None:
        operator, condition = above
        deleted = f'remove such rows with delete="not {condition}", or ' if condition is not None else ""
        raise PipelineError(
            node.place,
            f"{node.name}: has a {operator.lower()} above an aggregate or custom state, so that a row which it leaves "
            f"out after an update would stay in the table as it was; {deleted}keep the rows of the state in a table of "
            f"their own, and declare {node.name} with @hr.materialized over it",
        )
    why = group_problem(frame, key)
    if why is not None:
        raise PipelineError(node.place, f"{node.name}: {why}; let key= be the columns that it groups by, as they are")


def output_mode(node: Node, frame: "DataFrame") -> Mode:
    """The mode that was asked for, or the first that fits; Spark itself says which do."""
    output = node.output
    declared: Mode | None = getattr(output, "mode", None)
    keyed = isinstance(output, TableOutput) and bool(output.key)
    wanted: tuple[Mode, ...]
    if declared is not None:
        wanted = (declared,)
    elif keyed or isinstance(output, TopicOutput | BatchOutput):
        wanted = ("append",) if gives_rows_once(frame) else ("update", "append")
    else:
        wanted = ("append",)
    if not set(wanted) <= set(MODES):
        raise PipelineError(node.place, f"{node.name}: mode {declared!r} is unknown")
    refusals = []
    for mode in wanted:
        why = refusal(frame, mode)
        if why is None:
            return mode
        refusals.append(why)
    remedy = "" if keyed or declared else "; add key= to merge rows as they change, or mode='complete', or a watermark"
    raise PipelineError(node.place, f"{node.name}: {refusals[0]}{remedy}")


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
    # What a topic of changes leaves out may be gone already.
    _check_columns(node, "leave_out", tuple(set(output.leave_out) - set(EXTRA_COLUMNS)), frame.columns)
    if output.delete is not None:
        _check_predicate(node, frame, "delete", output.delete)
    if output.truncate is not None:
        _check_predicate(node, frame, "truncate", output.truncate)
    if output.replace_where is not None:
        _check_predicate(node, frame, "replace_where", output.replace_where)
    for column in schema.fields:
        if column.dataType.typeName() == "void":
            raise PipelineError(
                node.place, f"{node.name}: column {column.name!r} has no type; cast it, e.g. F.lit(None).cast('string')"
            )


def _with_history(node: Node, schema: "StructType", frame: "DataFrame") -> "StructType":
    taken = [name for name in schema.names if name in HISTORY_COLUMNS]
    if taken:
        raise PipelineError(node.place, f"{node.name}: history=True adds a column {taken[0]!r}; rename the function's")
    return history_schema(schema, frame.schema[node.output.order_by[0]].dataType)  # type: ignore[union-attr]


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
