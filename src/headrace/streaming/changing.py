"""Tables whose rows change or go, and who may read them: pure, no Spark.

A stream of such a table gives a row again when it has changed, and says nothing of a row that is gone: a sum over it
counts changes twice, and an appended copy keeps what was removed. So a node that reads one is kept up to date from its
changes (`maintaining`) where that is exact, and else refused, with the ways to be right.
"""

from collections.abc import Mapping
from typing import NoReturn

from headrace.streaming.declarations import Node, PipelineError, Static, TableOutput, TableStream
from headrace.streaming.graph import Edge, Graph
from headrace.streaming.keyed.order import Order


def changes_how(node: Node, order: Order | None) -> str | None:
    """How the rows of a node's table change; None where each row stays as it was written."""
    output = node.output
    if not isinstance(output, TableOutput):
        return None
    if output.recomputed:
        return "which is computed again as a whole"
    if output.mode == "complete":
        return "which each batch rewrites"
    if output.key and not (order is not None and order.once):
        return f"whose rows are merged by {', '.join(output.key)}"
    return None


def changing_input(graph: Graph, node: Node, changing: Mapping[str, str]) -> str | None:
    """The first table whose rows change that a node reads as if they did not. `changing` are such tables of this
    pipeline, and how they change."""
    for edge in graph.inlined_edges(node.name):
        if edge.node is not None and edge.node in changing and not _knows(edge):
            return edge.node
    return None


def unmaintainable(graph: Graph, node: Node) -> str | None:
    """Why a node cannot be kept up to date from the changes of what it reads, as far as its declaration tells."""
    output, edges = node.output, list(graph.inlined_edges(node.name))
    if not isinstance(output, TableOutput) or not output.key:
        return "it has no key"
    if output.order_by or output.delete is not None or output.mode is not None or output.into is not None:
        return "order_by=, delete=, mode= and into= cannot be used on a table that reads a changing table"
    if node.expectations:
        return "it has expectations, which are counted per batch"
    if any(edge.node is None or edge.source is not None for edge in edges):
        return "it reads something other than tables of this pipeline"
    if len({edge.node for edge in edges}) < len(edges):
        return "it reads a table twice"
    return None


def refuse(node: Node, table: str, how: str, why: str) -> NoReturn:
    raise PipelineError(
        node.place,
        f"{node.name}: reads {table}, {how}; as a stream a changed row would count twice and a removed one forever, "
        f"and it cannot be kept up to date from the changes: {why}. Declare {node.name} with @hr.materialized, or let "
        f"it read what {table} is made of, or take each change with hr.stream({table!r}, change_feed=True)",
    )


def _knows(edge: Edge) -> bool:
    """Whether the file says that rows may change: each change as it is, or the table of the moment (`graph` says who
    may read that). A stream that ignores changes gives rows again whose file was written again, and misses others."""
    return isinstance(edge.source, Static) or (isinstance(edge.source, TableStream) and edge.source.change_feed)
