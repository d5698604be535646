"""Makes the streaming queries of a version's nodes, and sends quarantined rows through the same code again."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from headrace.streaming.assembling import Assembled, Assembler
from headrace.streaming.batch_writer import BatchWriter
from headrace.streaming.check import Checked
from headrace.streaming.declarations import Node, PipelineError, TopicOutput, TopicStream
from headrace.streaming.expectations import observe
from headrace.streaming.first_commits import only_appended
from headrace.streaming.graph import Graph
from headrace.streaming.kafka import Kafka
from headrace.streaming.late_rows import LateRows
from headrace.streaming.maintaining import refuse_streamed
from headrace.streaming.node_paths import NodePaths
from headrace.streaming.node_run import Started
from headrace.streaming.opening import open_table
from headrace.streaming.plans import watermarked
from headrace.streaming.reached import usable
from headrace.streaming.reading import StreamReader
from headrace.streaming.realtime import RealtimeState, Together, start_quarantine, start_realtime
from headrace.streaming.recomputing import signal
from headrace.streaming.redrive import Redrive, Redriven, RedriveTarget, empty_table, obstacle, one_for_one
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.schemas import Schemas
from headrace.streaming.sinks import Sinks
from headrace.streaming.worker_code import WorkerCode
from headrace.tables.expectations import Ledger
from headrace.tables.provenance import TopicSource
from headrace.tables.storage import is_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class QueryStarter:
    def __init__(
        self,
        spark: "SparkSession",
        graph: Graph,
        paths: NodePaths,
        version: int,
        settings: RunSettings,
        checked: Checked,
        *,
        kafka: Kafka,
        schemas: Schemas,
        reader: StreamReader,
        worker_code: WorkerCode,
        wrote: Callable[[], None],
    ) -> None:
        """`wrote` is called when a batch has been written."""
        self._spark = spark
        self._graph = graph
        self._paths = paths
        self._version = version
        self._settings = settings
        self.checked = checked
        self._kafka = kafka
        self._schemas = schemas
        self._reader = reader
        self._worker_code = worker_code
        self._wrote = wrote
        self._assembler = Assembler(graph, reader)
        self._sinks = Sinks(spark, graph, paths, settings, checked)

    def open(self, node: Node) -> None:
        path, changes = self._paths.own(node.name), self._graph.reads_changes_of(node.name)
        # Only the change feed tells a row that came again, and got another place in its order, from one that changed.
        changes = changes or (bool(self.checked.node(node.name).hidden) and self._graph.computes_from(node.name))
        open_table(self._spark, node, path, self.checked.node(node.name), changes=changes)
        if self.checked.node(node.name).maintained:
            refuse_streamed(self._spark, node, path, self._sinks.stamp(node, 0))

    def start(self, node: Node, ledger: Ledger) -> "tuple[StreamingQuery, Started]":
        self._worker_code.use()
        whole = node.recomputed or self.checked.node(node.name).maintained
        assembled = self._signalled(node) if whole else self._assembler.assemble(node.name)
        if not whole:
            self._refuse_unordered(assembled)
        output = node.output
        if isinstance(output, TopicOutput) and output.latency == "realtime":
            return self._start_realtime(assembled, output)
        writer = BatchWriter(
            self._sinks.facts(assembled),
            self._sinks.of(assembled),
            ledger=ledger,
            read_again=self._reader.again,
            parser=self._schemas.parser,
            late_rows=(
                LateRows(self._graph, node, assembled.frame, self._schemas.parser)
                if node.late == "quarantine"
                else None
            ),
            wrote=self._wrote,
        )
        frame = observe(assembled.frame, node.expectations)
        stream: Any = (
            frame.writeStream.foreachBatch(writer)
            .queryName(f"{self._graph.pipeline}-v{self._version}-{node.name}")
            .outputMode(self.checked.mode(node.name))
            .option("checkpointLocation", usable(self._paths.checkpoint(node.name)))
            .options(**node.options)
        )
        if self._settings.once:
            stream = stream.trigger(availableNow=True)
        elif node.trigger is not None:
            stream = stream.trigger(processingTime=node.trigger)
        query = stream.start()
        writer.started(query)
        return query, writer

    def _refuse_unordered(self, assembled: Assembled) -> None:
        """What is late depends on the order of the rows, and only the commits of a table tell in which order it got
        them."""
        node = assembled.node
        if not self._paths.taken or node.name in self._paths.taken or not watermarked(assembled.frame):
            return
        for table in self._graph.upstream(node.name):
            if table in self._paths.taken and not only_appended(
                self._paths.own(table), change_feed=False, commits_max=None
            ):
                raise PipelineError(
                    node.place,
                    f"{node.name}: has a watermark, and {table}, which is taken over, no longer tells in which order "
                    f"it got its rows (it was optimized, or the oldest commits are gone); refresh {table} as well",
                )

    def _signalled(self, node: Node) -> Assembled:
        """A node that is computed from whole tables: its stream only says that one of them has changed."""
        paths = dict.fromkeys(self._paths.table_paths(self._spark, node.name).values())
        return Assembled(node=node, frame=signal(self._spark, list(paths)), observed={}, statics={})

    def _start_realtime(self, assembled: Assembled, output: TopicOutput) -> "tuple[StreamingQuery, Started]":
        node, once = assembled.node, self._settings.once
        name = f"{self._graph.pipeline}-v{self._version}-{node.name}"
        checkpoint = self._paths.checkpoint(node.name)
        options = {"kafka.bootstrap.servers": self._settings.bootstrap, **self._settings.kafka}
        topic = self._paths.topic_of(node)
        queries = [
            start_realtime(assembled, output, topic=topic, name=name, checkpoint=checkpoint, once=once, options=options)
        ]
        for index, read in assembled.observed.items():
            queries.append(
                start_quarantine(
                    self._reader.raw(read),
                    read,
                    self._schemas.parser(read),
                    path=self._paths.quarantine(node.name),
                    name=f"{name}-quarantine-{index}",
                    checkpoint=f"{checkpoint}.quarantine.{index}",
                    once=once,
                    stamp=lambda batch: self._sinks.stamp(node, batch),
                )
            )
        return cast("StreamingQuery", Together(queries)), RealtimeState()

    def redrive(self, nodes: Iterable[Node]) -> list[Redriven]:
        """Sends the quarantined rows of these nodes through the present code."""
        self._worker_code.use()
        found = []
        for node in nodes:
            if not is_delta(self._paths.quarantine(node.name)):
                continue
            whole = node.recomputed or self.checked.node(node.name).maintained
            assembled = None if whole else self._assembler.assemble(node.name)
            frame = assembled.frame if assembled is not None else None
            why = obstacle(node, frame, whole=whole)
            if why is not None or assembled is None or frame is None:
                found.append(Redriven(node=node.name, refused=why or ""))
                continue
            found.append(Redrive(self._spark, self._target(assembled), row_wise=one_for_one(frame)).run())
        return found

    def _target(self, assembled: Assembled) -> RedriveTarget:
        node, sink = assembled.node, self._sinks.of(assembled)

        def again(spark: "SparkSession", topic: TopicStream, ranges: dict[int, tuple[int, int]]) -> "DataFrame":
            return self._reader.again(spark, topic, TopicSource(topic=topic.topic, ranges=ranges))

        def beginnings(topic: str, partitions: set[int]) -> dict[int, int]:
            known = self._kafka.beginnings([(topic, partition) for partition in partitions])
            return {partition: offset for (_, partition), offset in known.items()}

        def empty(table: str) -> "DataFrame":
            own = table in self._graph.nodes
            return empty_table(self._spark, self._paths.own(table) if own else self._paths.other(table))

        return RedriveTarget(
            node=node,
            topics=self._graph.topics(node.name),
            table=self._paths.own(node.name),
            quarantine=self._paths.quarantine(node.name),
            stamp=lambda number: self._sinks.stamp(node, number),
            parser=self._schemas.parser,
            assembler=lambda reader: Assembler(self._graph, reader),
            again=again,
            beginnings=beginnings,
            write=sink.write,
            static=self._reader.static,
            empty=empty,
        )
