"""What a pipeline reads and writes, from its graph alone: what `headrace pipeline check` knows without Spark."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.streaming.declarations import (
    Node,
    PipelineError,
    Source,
    Static,
    TableOutput,
    TableStream,
    TopicOutput,
    TopicStream,
)
from headrace.streaming.graph import Graph
from headrace.tables.layout import HIDDEN, tables_root
from headrace.tables.storage import is_url


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlinedNode:
    name: str
    reads: tuple[str, ...]
    writes: str
    notes: tuple[str, ...]


def outline(graph: Graph) -> list[OutlinedNode]:
    """The nodes that run as queries, each after what it reads."""
    return [outlined(graph, node) for node in graph.nodes.values() if node.is_query]


def outlined(graph: Graph, node: Node) -> OutlinedNode:
    return OutlinedNode(
        name=node.name,
        reads=tuple(dict.fromkeys(_reads(graph, node))),
        writes=_writes(node),
        notes=tuple(_notes(graph, node)),
    )


def check_tables(graph: Graph, tables_dir: str) -> None:
    """A table of another pipeline that is read by its name must be there. Paths, and what lies in an object store, are
    left to Spark, which may see other file systems."""
    refuse_own_paths(graph, tables_dir)
    root = tables_root(tables_dir)
    if is_url(root):
        return
    for name in graph.nodes:
        for edge in graph.edges[name]:
            table = _table_by_name(edge.source) if edge.node is None else None
            if edge.source is not None and table is not None and not os.path.exists(os.path.join(root, table)):
                call = "static" if isinstance(edge.source, Static) else "stream"
                raise PipelineError(
                    edge.source.place,
                    f"hr.{call}({table!r}): no such table in {root}; run the pipeline that makes it, or give its path",
                )


def refuse_own_paths(graph: Graph, tables_dir: str) -> None:
    """A table of this pipeline that is read by its path would escape what is checked of one read by its name."""
    root = tables_root(tables_dir)
    if is_url(root):
        return
    for node in graph.nodes.values():
        for edge in graph.edges[node.name]:
            source = edge.source
            if not isinstance(source, TableStream | Static) or "/" not in source.table or is_url(source.table):
                continue
            path = os.path.realpath(os.path.expanduser(source.table))
            own = next((name for name in graph.nodes if path == os.path.realpath(os.path.join(root, name))), None)
            if own is not None or path.startswith(os.path.join(os.path.realpath(root), HIDDEN, graph.pipeline, "")):
                call = "static" if isinstance(source, Static) else "stream"
                raise PipelineError(
                    source.place,
                    f"{node.name}: hr.{call}({source.table!r}) is a table of this pipeline; read it by its name"
                    + (f", {own}" if own is not None else ""),
                )


def _table_by_name(source: Source | None) -> str | None:
    """The name of a Delta table, and of nothing else: files of other formats may be patterns, and behind an @ a path
    may name a version."""
    if not isinstance(source, TableStream | Static) or any(letter in source.table for letter in "/@"):
        return None
    return None if isinstance(source, Static) and source.format != "delta" else source.table


def _reads(graph: Graph, node: Node) -> Iterator[str]:
    for edge in graph.inlined_edges(node.name):
        match edge.source:
            case TopicStream() as topic:
                yield f"topic {topic.topic}"
            case Static() as static:
                yield f"static {static.table}"
            case TableStream() as stream:
                yield f"{'changes of ' if stream.change_feed else ''}table {stream.table}"
            case None if node.recomputed:
                yield f"all of table {edge.node}"
            case None:
                own = graph.nodes[edge.node or ""].output
                changes = isinstance(own, TableOutput) and not own.appended
                yield f"{'changes of ' if changes else ''}table {edge.node}"


def _writes(node: Node) -> str:
    match node.output:
        case TableOutput(into=str(into)):
            return f"table {into} (fills it back)"
        case TableOutput(key=key) if key:
            return f"table {node.name} merged by {', '.join(key)}"
        case TableOutput(recomputed=True):
            return f"table {node.name} computed again from the whole"
        case TableOutput(mode="complete"):
            return f"table {node.name} rewritten"
        case TableOutput():
            return f"table {node.name} appended"
        case TopicOutput(topic=topic, latency=latency):
            return f"topic {topic} {'at least once, in real time' if latency == 'realtime' else 'exactly once'}"
    return "whatever its function writes"


def _notes(graph: Graph, node: Node) -> Iterator[str]:
    for each in node.expectations:
        yield f"{each.action} unless {each.predicate}  ({each.name})"
    if isinstance(node.output, TopicOutput) and node.output.latency == "realtime":
        yield "real time is at least once: after a failure some records may arrive a second time"
        yield "real time keeps a core busy for each partition that it reads; give Spark more than that"
    for edge in graph.inlined_edges(node.name):
        if isinstance(edge.source, TableStream) and edge.source.change_feed:
            yield f"{edge.source.table} is read as it changes: how many steps a row takes depends on the batches"
        if isinstance(edge.source, Static) and edge.node is not None:
            yield f"{edge.node} is joined as it is when a batch runs: the result depends on the batches"
