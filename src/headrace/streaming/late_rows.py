"""Rows that came behind the watermark, put aside with `late="quarantine"`.

Spark tells how many rows an operator dropped, never which. So they are found a second time: the records of the batch
are read again from the log, the function runs over them as a plain batch up to the operator that dropped rows, and what
that operator compared with the watermark is compared again. This is exact where one operator can drop rows, and its
rows come straight from one topic; for everything else `check` refuses it, with the reason.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.streaming.assembling import Assembler
from headrace.streaming.declarations import Node, PipelineError, Static, TableStream, TopicOutput, TopicStream
from headrace.streaming.graph import Graph
from headrace.streaming.parsing import Parser
from headrace.streaming.plans import bare, is_attribute
from headrace.streaming.sources import whole_records
from headrace.streaming.spark_internals.plan import analysed, each_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DELAY = "spark.watermarkDelayMs"  # Spark marks the column of a watermark, and a window of it, with this
_GROUPING = "Aggregate"
_DROPPING = frozenset({_GROUPING, "Deduplicate", "DeduplicateWithinWatermark"})
_PLAIN = frozenset({"Project", "Filter", "SubqueryAlias", "EventTimeWatermark", "CollectMetrics", "Generate", "Expand",
                    "Sort"})  # fmt: skip


def obstacle(graph: Graph, node: Node, frame: "DataFrame", mode: str) -> str | None:
    """Why late rows of a node cannot be put aside; `frame` is its stream."""
    if not frame.isStreaming:
        return "it is computed from whole tables, so that no row of it comes late"
    if isinstance(node.output, TopicOutput) and node.output.latency == "realtime":
        return "latency='realtime' has no batches to look at again"
    edges = list(graph.inlined_edges(node.name))
    if len(edges) != 1 or not isinstance(edges[0].source, TopicStream):
        return (
            "Spark does not show which rows it dropped, and only the records of a single topic can be read again for "
            "each batch; give this node one topic and nothing else to read"
        )
    if mode == "complete":
        return "mode='complete' drops no row"
    plans = list(_down(analysed(frame)))
    other = [str(plan.nodeName()) for plan in plans if each_of(plan.children()) and str(plan.nodeName()) not in _PLAIN]
    if [name for name in other if name not in _DROPPING] or len(other) > 1:
        return f"which of its operators dropped a row cannot be told ({', '.join(other)}); let one of them have state"
    if not other or _marked(next(plan for plan in plans if str(plan.nodeName()) in _DROPPING)) is None:
        return "nothing in it drops late rows; group by, or drop duplicates by, the column of withWatermark"
    return None


class LateRows:
    """Of one node, for which there is no `obstacle`."""

    def __init__(self, graph: Graph, node: Node, frame: "DataFrame", parser: Callable[[TopicStream], Parser]) -> None:
        self._graph = graph
        self._node = node
        self._parser = parser
        stateful = next(plan for plan in _down(analysed(frame)) if str(plan.nodeName()) in _DROPPING)
        self._kind, self._marked = str(stateful.nodeName()), _marked(stateful)

    def find(self, spark: "SparkSession", raw: "DataFrame", watermark_ms: int) -> "tuple[DataFrame, Column]":
        """The late ones of a batch, and an expression of the reason; `raw` are its records as they are in the log."""
        from pyspark.sql import functions as F

        made: Any = Assembler(self._graph, _Records(raw, self._parser)).compute(self._node.name)
        stateful = next(plan for plan in _down(analysed(made)) if str(plan.nodeName()) == self._kind)
        below = each_of(stateful.children())[0]
        identity = _compared(stateful)[self._marked or 0].exprId().id()
        at = next(index for index, each in enumerate(each_of(below.output())) if each.exprId().id() == identity)
        rows = rows_of(spark, below)
        names = _unique(rows.columns)
        rows = rows.toDF(*names)
        window = rows.schema.fields[at].dataType.typeName() == "struct"
        time = F.col(f"`{names[at]}`.end") if window else F.col(f"`{names[at]}`")
        watermark = F.timestamp_millis(F.lit(watermark_ms))
        what = f"late: the end of {names[at]} is " if window else f"late: {names[at]} is "
        reason = F.concat(F.lit(what), time.cast("string"), F.lit(", the watermark is "), watermark.cast("string"))
        return rows.where(time <= watermark), reason


class _Records:
    """The records of a batch as the one input of a function."""

    def __init__(self, raw: "DataFrame", parser: Callable[[TopicStream], Parser]) -> None:
        self._raw = raw
        self._parser = parser

    def topic(self, topic: TopicStream, observed: str) -> "DataFrame":
        return whole_records(self._raw, self._parser(topic))

    def own_table(self, node: Node, given: TableStream | None, *, changes: bool) -> "DataFrame":
        raise PipelineError(node.place, f"{node.name}: late rows of a table cannot be read again")

    def other_table(self, given: TableStream) -> "DataFrame":
        raise PipelineError(given.place, f"{given.table}: late rows of a table cannot be read again")

    def static(self, given: Static, node: Node | None) -> "DataFrame":
        raise PipelineError(given.place, f"{given.table}: late rows of a table cannot be read again")


def _down(plan: Any) -> Any:
    """The operators above the source, from the last one down."""
    while True:
        yield plan
        children = each_of(plan.children())
        if len(children) != 1:
            return
        plan = children[0]


def _compared(stateful: Any) -> list[Any]:
    """The columns of an operator of which one may be compared with the watermark."""
    match str(stateful.nodeName()):
        case "Aggregate":
            found = stateful.groupingExpressions()
        case "Deduplicate":
            found = stateful.keys()
        case _:
            found = each_of(stateful.children())[0].output()
    return [bare(each) for each in each_of(found)]


def _marked(stateful: Any) -> int | None:
    """Which of them, in a stream."""
    for index, each in enumerate(_compared(stateful)):
        if is_attribute(each) and each.metadata().contains(_DELAY):
            return index
    return None


def _unique(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        found.append(name if name not in found else f"{name}_{len(found)}")
    return found
