"""The graph of a pipeline: which node reads what, in an order in which each comes after what it reads.

Pure: it neither imports Spark nor touches the disk. Whatever is wrong with the names is found here, with its line.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.core.errors import OperatorError
from headrace.streaming.declarations import (
    BatchOutput,
    Node,
    PipelineError,
    Source,
    Static,
    TableOutput,
    TableStream,
    TopicOutput,
    TopicStream,
    ViewOutput,
)
from headrace.streaming.loading import LoadedPipeline
from headrace.streaming.rules import order_expected
from headrace.tables.layout import check_pipeline_name, check_table_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An argument of a function: a source, a node of this pipeline, or a node read as a source says."""

    argument: str
    source: Source | None
    node: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """`nodes` are in topological order, views among them; `edges` are those of each node, as its arguments stand;
    `files` are the user's own."""

    pipeline: str
    files: frozenset[str]
    nodes: Mapping[str, Node]
    edges: Mapping[str, tuple[Edge, ...]]

    @property
    def queries(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if node.is_query)

    @property
    def tables(self) -> tuple[Node, ...]:
        """The nodes that own a table."""
        return tuple(n for n in self.queries if isinstance(n.output, TableOutput) and n.output.into is None)

    def chosen(self, names: Iterable[str]) -> tuple[Node, ...]:
        """The queries of these names, or all if none is given."""
        wanted, known = tuple(names), {node.name: node for node in self.queries}
        for name in wanted:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
                raise OperatorError(f"{name}: no node of {self.pipeline} that writes; {hint}")
        return tuple(node for name, node in known.items() if not wanted or name in wanted)

    def filled_back(self, table: str) -> bool:
        """Whether another node than its own writes a table."""
        return any(isinstance(node.output, TableOutput) and node.output.into == table for node in self.queries)

    def inlined_edges(self, name: str) -> Iterator[Edge]:
        """The edges of a node, with views replaced by what they read."""
        yield from _inlined(name, self.nodes, self.edges)

    def topics(self, name: str) -> tuple[TopicStream, ...]:
        return tuple(dict.fromkeys(e.source for e in self.inlined_edges(name) if isinstance(e.source, TopicStream)))

    def upstream(self, name: str) -> tuple[str, ...]:
        """The nodes whose tables this one reads."""
        return tuple(dict.fromkeys(edge.node for edge in self.inlined_edges(name) if edge.node is not None))

    def reads_changes_of(self, table: str) -> bool:
        """Whether some node reads this table's change feed: one that says so, or one that is kept up to date from the
        changes of all that it reads, since a part of that changes."""
        for node in self.queries:
            edges = list(self.inlined_edges(node.name))
            for edge in edges:
                if edge.node != table or isinstance(edge.source, Static):
                    continue
                if isinstance(edge.source, TableStream):
                    if edge.source.change_feed:
                        return True
                elif not node.recomputed and any(self._changing(each) for each in edges):
                    return True
        return False

    def computes_from(self, table: str) -> bool:
        """Whether some node is computed again from the whole of this table."""
        return any(node.recomputed and table in self.upstream(node.name) for node in self.queries)

    def _changing(self, edge: Edge) -> bool:
        output = self.nodes[edge.node].output if edge.node is not None else None
        return edge.source is None and isinstance(output, TableOutput) and not output.appended


def make_graph(loaded: LoadedPipeline) -> Graph:
    try:
        check_pipeline_name(loaded.pipeline)
    except OperatorError as error:
        raise PipelineError(None, f"{loaded.file}: {error}; or name it with hr.pipeline(...)") from error
    if not any(node.is_query for node in loaded.nodes):
        raise OperatorError(
            f"{loaded.file}: writes no table and no topic; decorate a function with @hr.table or @hr.to_topic"
        )
    nodes = _by_name(loaded)
    edges = {node.name: tuple(_edge(node, argument, nodes, loaded.sources) for argument in node.inputs)
             for node in nodes.values()}  # fmt: skip
    order = _topological(nodes, edges)
    nodes = {name: _with_changes(node, nodes, edges) for name, node in nodes.items()}
    for node in nodes.values():
        _check_node(node, nodes, edges[node.name])
    return Graph(
        pipeline=loaded.pipeline,
        files=loaded.files,
        nodes={name: nodes[name] for name in order},
        edges={name: edges[name] for name in order},
    )


def _by_name(loaded: LoadedPipeline) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for node in loaded.nodes:
        if node.name in nodes:
            raise PipelineError(
                node.place, f"{node.name}: declared already at {nodes[node.name].place}; give one of them another name"
            )
        source = loaded.sources.get(node.name)
        if source is not None:
            raise PipelineError(
                node.place, f"{node.name}: has the name of the source at {source.place}; give one of them another name"
            )
        try:
            check_table_name(node.name)
        except OperatorError as error:
            raise PipelineError(node.place, str(error)) from error
        nodes[node.name] = node
    return nodes


def _edge(node: Node, argument: str, nodes: Mapping[str, Node], sources: Mapping[str, Source]) -> Edge:
    source = node.defaults.get(argument) or (sources.get(argument) if argument not in nodes else None)
    if source is not None:
        of_own = isinstance(source, TableStream | Static) and source.table in nodes
        table = source.table if of_own and not isinstance(source, TopicStream) else None
        if table is not None:
            _check_readable(node, table, nodes, stored=True)
        return Edge(argument=argument, source=source, node=table)
    if argument in nodes:
        _check_readable(node, argument, nodes, stored=False)
        return Edge(argument=argument, source=None, node=argument)
    raise PipelineError(node.place, f"{node.name}: reads {argument!r}, {_unknown(argument, [*nodes, *sources])}")


def _check_readable(node: Node, name: str, nodes: Mapping[str, Node], *, stored: bool) -> None:
    output = nodes[name].output
    if isinstance(output, TopicOutput):
        raise PipelineError(
            node.place, f"{node.name}: {name} writes a topic; read it with hr.topic({output.topic!r}, ...)"
        )
    if isinstance(output, BatchOutput):
        raise PipelineError(node.place, f"{node.name}: {name} writes its batches itself; read them by their path")
    if isinstance(output, TableOutput) and output.into is not None:
        raise PipelineError(node.place, f"{node.name}: {name} writes into {output.into}; read {output.into}")
    if stored and isinstance(output, ViewOutput):
        raise PipelineError(node.place, f"{node.name}: {name} is a view, which is not stored; read it by its name")


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"which is neither a function nor a source of this file{hint}"


def _topological(nodes: Mapping[str, Node], edges: Mapping[str, tuple[Edge, ...]]) -> list[str]:
    """Depth first, without recursion being the user's limit; a way back to a node under way is a cycle."""
    order: list[str] = []
    done: set[str] = set()
    for root in nodes:
        path: list[str] = []
        work = [(root, False)]
        while work:
            name, left = work.pop()
            if left:
                path.pop()
                done.add(name)
                order.append(name)
                continue
            if name in done:
                continue
            if name in path:
                cycle = " -> ".join([*path[path.index(name) :], name])
                raise PipelineError(
                    nodes[name].place,
                    f"{name}: reads itself by way of {cycle}; break the cycle, for example with a topic",
                )
            path.append(name)
            work.append((name, True))
            work.extend((edge.node, False) for edge in reversed(edges[name]) if edge.node is not None)
    return order


def _check_node(node: Node, nodes: Mapping[str, Node], edges: tuple[Edge, ...]) -> None:
    seen = set()
    for expectation in node.expectations:
        if expectation.name in seen:
            raise PipelineError(node.place, f"{node.name}: two expectations are named {expectation.name!r}; rename one")
        seen.add(expectation.name)
    if all(isinstance(edge.source, Static) for edge in edges):
        raise PipelineError(
            node.place,
            f"{node.name}: reads only static tables, so it never begins; read one with hr.stream",
        )
    output = node.output
    if not isinstance(output, BatchOutput):
        _check_statics(node, edges)
    if node.recomputed:
        for edge in edges:
            if isinstance(edge.source, TopicStream):
                raise PipelineError(
                    node.place,
                    f"{node.name}: reads the topic {edge.source.topic!r}, and a materialized table is computed from "
                    f"whole tables; make a table of the topic first, and read that",
                )
    if isinstance(output, TableOutput) and output.into is not None:
        _check_into(node, output.into, nodes)
    if isinstance(output, TopicOutput):
        for edge in edges:
            if isinstance(edge.source, TopicStream) and edge.source.topic == output.topic:
                raise PipelineError(
                    node.place, f"{node.name}: reads and writes the topic {output.topic!r}, and would never end"
                )
    if isinstance(output, BatchOutput) and isinstance(edges[0].source, Static):
        raise PipelineError(node.place, f"{node.name}: its first argument must be a stream, not a static table")


def _check_statics(node: Node, edges: tuple[Edge, ...]) -> None:
    """A table of this pipeline grows while it runs: what a row meets in it would depend on when its batch runs."""
    for edge in edges:
        if isinstance(edge.source, Static) and edge.node is not None:
            raise PipelineError(
                edge.source.place,
                f"{node.name}: hr.static({edge.node!r}) is a table of this pipeline, and what a batch finds in it "
                f"depends on when it runs. Read {edge.node} by its name: in a table with key=, which is kept up to "
                f"date as both sides change, or in @hr.materialized",
            )


def _with_changes(node: Node, nodes: Mapping[str, Node], edges: Mapping[str, tuple[Edge, ...]]) -> Node:
    """A table that says nothing of keys is what the changes that it reads say."""
    output = node.output
    if not isinstance(output, TableOutput) or output.mode is not None or output.into is not None or output.recomputed:
        return node
    streams = [edge for edge in _inlined(node.name, nodes, edges) if not isinstance(edge.source, Static)]
    rules = [edge.source.changes for edge in streams if isinstance(edge.source, TopicStream) and edge.source.changes]
    if len(rules) > 1:
        names = ", ".join(sorted({edge.source.topic for edge in streams if isinstance(edge.source, TopicStream)}))
        raise PipelineError(
            node.place,
            f"{node.name}: reads several topics of changes ({names}), each with a key and an order of its own; make a "
            f"table of each, and read those tables, or keep every change with mode='append'",
        )
    if not rules or output.key:
        return node
    if len(streams) > 1:
        raise PipelineError(
            node.place,
            f"{node.name}: reads a topic of changes beside other streams, which says nothing of the rows that changed "
            f"or went before; make a table of the changes, and read that, or keep every change with mode='append'",
        )
    declared = rules[0]
    made = replace(
        output,
        key=declared.key,
        order_by=declared.order_by,
        delete=declared.delete,
        truncate=declared.truncate,
        leave_out=tuple(dict.fromkeys((*output.leave_out, *declared.leave_out))),
        inherited=True,
    )
    return replace(node, output=made, expectations=node.expectations + order_expected(made))


def _inlined(name: str, nodes: Mapping[str, Node], edges: Mapping[str, tuple[Edge, ...]]) -> Iterator[Edge]:
    for edge in edges[name]:
        if edge.node is not None and isinstance(nodes[edge.node].output, ViewOutput):
            yield from _inlined(edge.node, nodes, edges)
        else:
            yield edge


def _check_into(node: Node, table: str, nodes: Mapping[str, Node]) -> None:
    target = nodes.get(table)
    if target is None:
        raise PipelineError(node.place, f"{node.name}: into={table!r}, {_unknown(table, nodes)}")
    if not isinstance(target.output, TableOutput) or target.output.into is not None or not target.output.appended:
        raise PipelineError(node.place, f"{node.name}: into={table!r} is not a table of appended rows")
