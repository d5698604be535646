"""Where the nodes of a version lie: each in the directory of its version, or of the one that it is taken over from."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.core.errors import InvariantError
from headrace.streaming.commit_rows import table_version
from headrace.streaming.declarations import Node, Static, TableOutput, TableStream, TopicOutput
from headrace.streaming.graph import Graph
from headrace.streaming.reading import real_path, table_path
from headrace.streaming.spark_internals.delta import table_id
from headrace.tables.layout import PipelineLayout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NodePaths:
    def __init__(self, graph: Graph, layout: PipelineLayout, version: int, taken: Mapping[str, int]) -> None:
        """`taken` are the nodes that lie in another version's directory, and which."""
        self.taken = taken
        self.tables_dir = layout.tables_dir
        self._graph = graph
        self._layout = layout
        self._version = version

    def home(self, node: str) -> int:
        """The version in whose directory a node lies: its state, its table and all that belongs to them."""
        return self.taken.get(node, self._version)

    def own(self, table: str) -> str:
        """The directory of a node's table."""
        return self._layout.table_dir(self.home(table), table)

    def other(self, table: str) -> str:
        """The directory of a table that is no node of this pipeline, as it is at present."""
        return real_path(table_path(self.tables_dir, table))

    def checkpoint(self, node: str) -> str:
        return self._layout.checkpoint_dir(self.home(node), node)

    def quarantine(self, node: str) -> str:
        return self._layout.quarantine_dir(self.home(node), node)

    def deletes(self, node: str) -> str:
        return self._layout.deletes_dir(self.home(node), node)

    def expectations(self, node: str) -> str:
        return self._layout.expectations_file(self.home(node), node)

    def topic_of(self, node: Node) -> str:
        """The first version writes the topic itself; later ones write beside it."""
        if not isinstance(node.output, TopicOutput):
            raise InvariantError(f"{node.name}: writes no topic")
        version = self.home(node.name)
        return node.output.topic if version == 1 else f"{node.output.topic}.v{version}"

    def is_empty(self, node: str) -> bool:
        """Whether its table has nothing but the commit that created it."""
        return isinstance(self._graph.nodes[node].output, TableOutput) and not table_version(self.own(node))

    def tables_read(self, spark: "SparkSession", name: str) -> Iterator[tuple[str, str, str]]:
        """Delta id, name and path of each table that a node reads as a stream."""
        for edge in self._graph.inlined_edges(name):
            if isinstance(edge.source, Static):
                continue
            if edge.node is not None:
                table, path = edge.node, self.own(edge.node)
            elif isinstance(edge.source, TableStream):
                table = edge.source.table
                path = self.other(table)
            else:
                continue
            yield table_id(spark, path), table, path

    def table_paths(self, spark: "SparkSession", name: str) -> dict[str, str]:
        """By Delta id."""
        return {identity: path for identity, _, path in self.tables_read(spark, name)}
