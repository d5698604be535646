"""Runs the user's functions: from a node to the DataFrame that its query is made of.

Functions are called with DataFrames and must return one; nothing is executed. What a function raises becomes one line
with the file and the line of the user's code, whichever library raised it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.streaming.declarations import (
    METADATA_COLUMNS,
    BatchOutput,
    Node,
    PipelineError,
    SourceLine,
    Static,
    TableOutput,
    TableStream,
    TopicStream,
    ViewOutput,
)
from headrace.streaming.graph import Edge, Graph
from headrace.streaming.spark_errors import first_line, wrong_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class InputReader(Protocol):
    """Where DataFrames come from: real streams when a pipeline runs, empty ones when it is checked."""

    def topic(self, topic: TopicStream, observed: str) -> "DataFrame": ...
    def own_table(self, node: Node, given: TableStream | None, *, changes: bool) -> "DataFrame": ...
    def other_table(self, given: TableStream) -> "DataFrame": ...
    def static(self, given: Static, node: Node | None) -> "DataFrame": ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """`frame` is what streams; `observed` are the topics read, under the names by which their counts are reported."""

    node: Node
    frame: "DataFrame"
    observed: dict[str, TopicStream]
    statics: "dict[str, DataFrame]"


class Assembler:
    def __init__(self, graph: Graph, reader: InputReader) -> None:
        self._graph = graph
        self._reader = reader

    def assemble(self, name: str) -> Assembled:
        """For a node that writes its batches itself, the frame is its first argument and the function is not run."""
        node = self._graph.nodes[name]
        observed: dict[str, TopicStream] = {}
        statics: dict[str, DataFrame] = {}
        if isinstance(node.output, BatchOutput):
            first, *rest = self._graph.edges[name]
            frame = self._input(node, first, observed)
            for edge in rest:
                if not isinstance(edge.source, Static):
                    raise PipelineError(
                        node.place,
                        f"{node.name}: {edge.argument} is a second stream, a batch is of one; join them in a @hr.view",
                    )
                statics[edge.argument] = self._input(node, edge, observed)
        else:
            frame = self._call(node, observed)
        if not frame.isStreaming:
            raise PipelineError(node.place, f"{node.name}: its DataFrame does not stream; read a stream in it")
        return Assembled(node=node, frame=frame, observed=observed, statics=statics)

    def compute(self, name: str) -> "DataFrame":
        """The rows of a node from whatever the reader gives: plain DataFrames, if it reads tables as a whole."""
        node = self._graph.nodes[name]
        frame = self._call(node, {})
        if frame.isStreaming:
            raise PipelineError(
                node.place, f"{node.name}: its DataFrame streams; a materialized one reads whole tables"
            )
        return frame

    def _call(self, node: Node, observed: dict[str, TopicStream]) -> "DataFrame":
        inputs = {edge.argument: self._input(node, edge, observed) for edge in self._graph.edges[node.name]}
        result = call_user(node, self._graph.files, lambda: node.function(**inputs))
        if not (hasattr(result, "isStreaming") and hasattr(result, "schema")):
            kind = type(result).__name__
            raise PipelineError(node.place, f"{node.name}: returns {kind}, not a DataFrame; is a return missing?")
        return result  # type: ignore[no-any-return]

    def _input(self, node: Node, edge: Edge, observed: dict[str, TopicStream]) -> "DataFrame":
        own = self._graph.nodes[edge.node] if edge.node is not None else None
        match edge.source:
            case TopicStream() as topic:
                name = f"{len(observed)}"
                observed[name] = topic
                return self._reader.topic(topic, name)
            case Static() as static:
                return self._reader.static(static, own)
            case TableStream() as stream if own is None:
                return self._reader.other_table(stream)
        if own is None:
            raise PipelineError(node.place, f"{node.name}: reads {edge.argument!r}, which is nothing")
        if isinstance(own.output, ViewOutput):
            return self._call(own, observed)
        given = edge.source if isinstance(edge.source, TableStream) else None
        changes = given is None and isinstance(own.output, TableOutput) and not own.output.appended
        return self._reader.own_table(own, given, changes=changes)


def call_user(node: Node, files: frozenset[str], call: Callable[[], Any]) -> Any:
    """Runs the user's code; what it raises names the user's line."""
    try:
        return call()
    except HeadraceError:
        raise
    except Exception as error:
        place = SourceLine.of_error(error, files | {node.place.file}) or node.place
        what = wrong_name(str(error)) or f"{type(error).__name__}: {first_line(error)}"
        raise PipelineError(place, f"{node.name}: {what}") from error


def stored(frame: "DataFrame", leave_out: Sequence[str] = ()) -> "DataFrame":
    """What of a frame is stored, without what is declared to be left out. A function that passes all six metadata
    columns on has not chosen any: they go.
    One that selected some of them wants those: they stay."""
    if all(name in frame.columns for name in METADATA_COLUMNS):
        frame = frame.drop(*METADATA_COLUMNS)
    return frame.drop(*leave_out) if leave_out else frame
