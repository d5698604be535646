"""What a node's batches are written with: for each kind of output, the sink that makes a batch one commit."""

from typing import TYPE_CHECKING

from headrace.core.errors import OperatorError
from headrace.streaming.assembling import Assembled, Assembler, stored
from headrace.streaming.batch_offsets import versions_reached
from headrace.streaming.batch_parts import BatchParts
from headrace.streaming.batch_writer import Sink, WriterFacts
from headrace.streaming.check import Checked
from headrace.streaming.declarations import BatchOutput, Node, TableOutput, TopicOutput
from headrace.streaming.delta_sink import DeltaSink, Keyed, UserSink
from headrace.streaming.delta_writes import Stamp
from headrace.streaming.graph import Graph
from headrace.streaming.kafka import client_config
from headrace.streaming.keyed.tables import keyed_table
from headrace.streaming.maintaining import GivenReader, Inputs, MaintainSink
from headrace.streaming.node_paths import NodePaths
from headrace.streaming.recomputing import RecomputeSink, SnapshotReader
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.topic_sink import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Sinks:
    def __init__(
        self, spark: "SparkSession", graph: Graph, paths: NodePaths, settings: RunSettings, checked: Checked
    ) -> None:
        self._spark = spark
        self._graph = graph
        self._paths = paths
        self._settings = settings
        self._checked = checked

    def of(self, assembled: Assembled) -> Sink:
        node = assembled.node
        match node.output:
            case TableOutput(recomputed=True) as output:
                return self._recompute(node, output)
            case TableOutput() as output if self._checked.node(node.name).maintained:
                grouped = self._checked.node(node.name).grouped
                return MaintainSink(output, self._paths.own(node.name), self._inputs(node), grouped=grouped)
            case TableOutput() as output:
                table = output.into or node.name
                path = self._paths.own(table)
                return DeltaSink(node, output, path, self._keyed(node, output, path) if output.key else None)
            case TopicOutput() as output:
                config = client_config(self._settings.bootstrap, self._settings.kafka)
                config.pop("logger")  # it stays on this side; workers have none
                config.update(output.options)
                parts = BatchParts(self._paths.checkpoint(node.name))
                return TopicSink(node, output, self._paths.topic_of(node), config, parts)
            case BatchOutput():
                return UserSink(node, self._graph.files, assembled.statics, self._paths.own)
        raise OperatorError(f"{node.name}: writes nothing")

    def _keyed(self, node: Node, output: TableOutput, path: str) -> Keyed:
        checked, alone = self._checked.node(node.name), not self._graph.filled_back(node.name)
        deletes = self._paths.deletes(node.name)
        return keyed_table(output, path, deletes, checked.order, alone=alone, grouped=checked.grouped)

    def _recompute(self, node: Node, output: TableOutput) -> RecomputeSink:
        inputs = self._inputs(node)

        def compute(spark: "SparkSession", batch: int) -> "DataFrame":
            return inputs.compute(GivenReader(inputs.snapshots(spark, batch), {}))

        return RecomputeSink(output, self._paths.own(node.name), inputs.paths, inputs.reached, compute)

    def _inputs(self, node: Node) -> Inputs:
        """What a node reads that is computed from whole tables."""
        read = list(self._paths.tables_read(self._spark, node.name))
        checkpoint = self._paths.checkpoint(node.name)
        leave_out = node.output.leave_out if isinstance(node.output, TableOutput) else ()

        def reached(batch: int) -> dict[str, int]:
            found = versions_reached(checkpoint, batch)
            return {path: found[identity] for identity, _, path in read if identity in found}

        def snapshots(spark: "SparkSession", batch: int) -> SnapshotReader:
            return SnapshotReader(
                spark,
                reached(batch),
                own_path=self._paths.own,
                path_of=self._paths.other,
            )

        return Inputs(
            paths={table: path for _, table, path in read},
            reached=reached,
            snapshots=snapshots,
            compute=lambda reader: stored(Assembler(self._graph, reader).compute(node.name), leave_out),
        )

    def facts(self, assembled: Assembled) -> WriterFacts:
        name = assembled.node.name
        return WriterFacts(
            node=assembled.node,
            pipeline=self._graph.pipeline,
            version=self._paths.home(name),
            checkpoint=self._paths.checkpoint(name),
            quarantine_dir=self._paths.quarantine(name),
            tables={identity: table for identity, table, _ in self._paths.tables_read(self._spark, name)},
            observed=assembled.observed,
            transactional=self._settings.transaction_options,
        )

    def stamp(self, node: Node, batch: int) -> Stamp:
        return Stamp(
            pipeline=self._graph.pipeline,
            version=self._paths.home(node.name),
            node=node.name,
            batch=batch,
            sources=(),
            transactional=self._settings.transaction_options,
        )
