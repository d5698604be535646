"""Runs a version of a pipeline: a streaming query a node, supervised, until it is told to stop or, with `once`, done.

It owns the queries and the run's state; the tables belong to Delta, the offsets to the checkpoints. Upstream tables are
created before anything starts, so that every stream has something to read. One thread looks at all nodes in turn.
A node that the version has taken over lies in the directory of its owner, and another run may have it: then it is left
to that one until it lets go.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from headrace.core.errors import InvariantError, OperatorError
from headrace.streaming.assembling import Assembled, Assembler, stored
from headrace.streaming.batch_offsets import versions_reached
from headrace.streaming.batch_parts import BatchParts
from headrace.streaming.batch_writer import BatchWriter, Facts, Sink
from headrace.streaming.check import Checked, check
from headrace.streaming.commit_rows import table_version
from headrace.streaming.declarations import (
    BatchOutput,
    Node,
    PipelineError,
    Static,
    TableOutput,
    TableStream,
    Topic,
    TopicOutput,
)
from headrace.streaming.delete_markers import Markers
from headrace.streaming.delta_sink import DeltaSink, Keyed, UserSink
from headrace.streaming.delta_writes import Stamp
from headrace.streaming.expectations import observe
from headrace.streaming.first_commits import only_appended
from headrace.streaming.graph import Graph
from headrace.streaming.kafka import Kafka, client_config
from headrace.streaming.keyed_history import HistoryTable
from headrace.streaming.keyed_merge import KeyedTable
from headrace.streaming.keyed_partial import PartialTable
from headrace.streaming.lag import Lag
from headrace.streaming.late_rows import LateRows
from headrace.streaming.lineage import Lineage
from headrace.streaming.loading import Loaded
from headrace.streaming.maintaining import GivenReader, Inputs, MaintainSink, refuse_streamed
from headrace.streaming.node_run import NodeRun, Started
from headrace.streaming.once_order import OnceOrder
from headrace.streaming.opening import open_table
from headrace.streaming.plans import watermarked
from headrace.streaming.progress import NodeProgress, RunProgress, counted
from headrace.streaming.reached import usable
from headrace.streaming.reading import StreamReader, real_path, table_path
from headrace.streaming.realtime import RealtimeState, Together, start_quarantine, start_realtime
from headrace.streaming.recomputing import RecomputeSink, SnapshotReader, signal
from headrace.streaming.redrive import Place, Redrive, Redriven, empty_table, obstacle, one_for_one
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.schemas import Schemas
from headrace.streaming.supervision import Patience
from headrace.streaming.topic_sink import TopicSink
from headrace.streaming.worker_code import WorkerCode
from headrace.tables.expectations import Ledger
from headrace.tables.layout import PipelineLayout
from headrace.tables.object_store import StoreError
from headrace.tables.provenance import TopicSource
from headrace.tables.storage import is_delta, storage_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


TABLES_AT_ONCE = 4  # each waits for Delta's commit most of the time
ONCE_LOOK_S = 0.05  # a run that ends by itself waits for nobody's eyes
_POLL_SETTING = "spark.sql.streaming.pollingDelay"


def poll_ms(nodes: int) -> int:
    """How long a node waits after it found nothing: so long that all of them together ask some 50 times a second.
    Spark's own 10 ms would have 20 idle nodes keep a core busy."""
    return min(20 * nodes, 250)


class Runner:
    def __init__(
        self,
        spark: "SparkSession",
        loaded: Loaded,
        graph: Graph,
        layout: PipelineLayout,
        version: int,
        settings: RunSettings,
        *,
        taken: Mapping[str, int] = MappingProxyType({}),
        mine: Callable[[str], bool] = lambda node: True,
        say: Callable[[str], None] = lambda line: None,
        say_failed: Callable[[str], None] | None = None,
    ) -> None:
        """`taken` are the nodes that lie in another version's directory; `mine` takes a node for this run, if no other
        has it."""
        self._spark = spark
        self._graph = graph
        self._layout = layout
        self._version = version
        self._taken = taken
        self._mine = mine
        self._left: list[Node] = []  # to another run, for now
        self._settings = settings
        self._say = say
        self._say_failed = say_failed
        self._kafka = Kafka(settings.bootstrap, settings.kafka)
        self._schemas = Schemas(layout.version_dir(version), self._kafka)
        self._reader = StreamReader(
            spark,
            settings,
            self._schemas,
            self._kafka,
            own_path=self._own_path,
            tables_dir=layout.tables_dir,
            taken=frozenset(taken),
        )
        self._assembler = Assembler(graph, self._reader)
        self._checked: Checked | None = None
        self._stopping = threading.Event()
        self._lag = Lag(self._kafka)
        self.progress = RunProgress(
            pipeline=graph.pipeline,
            version=version,
            file=loaded.file,
            bootstrap=settings.bootstrap,
            once=settings.once,
            only=list(settings.only),
        )
        self._queries = graph.chosen(settings.only)
        self._nodes: list[NodeRun] = []
        self._reported_at = -math.inf
        self._worker_code = WorkerCode(spark, loaded, version)
        if _POLL_SETTING not in settings.spark.extra:
            spark.conf.set(_POLL_SETTING, f"{poll_ms(len(graph.queries))}ms")

    def stop(self) -> None:
        """Can be called from anywhere, a signal handler too: the loop ends at its next turn."""
        self._stopping.set()

    def prepare(self, step: Callable[[str], None] = lambda line: None) -> Checked:
        """Everything that can be wrong before the first batch is found here; `step` gets a line for each step."""
        step(f"checking {counted(len(self._graph.queries), 'node')}")
        checked = check(
            self._spark,
            self._graph,
            parser=self._schemas.parser,
            path_of=lambda table: table_path(self._layout.tables_dir, table),
        )
        self._checked = checked
        for node in self._queries:
            for read in self._graph.topics(node.name):
                self._reader.raw(read)  # one that is not there is said before anything starts
        step(f"opening {counted(len(self._graph.tables), 'table')}")
        with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="open-table") as pool:
            opened = [node for node in self._graph.tables if node.name not in self._taken or self._mine(node.name)]
            list(pool.map(lambda node: self._open(node, checked), opened))
        for node in self._queries:
            if isinstance(node.output, TopicOutput):
                topic = self.topic_of(node)
                self._kafka.ensure_topic(topic, like=node.output.topic if topic != node.output.topic else None)
        for node in self._queries:
            if self._mine(node.name):
                self._add(node, checked)
            else:
                self._leave(node, checked)
        return checked

    def _add(self, node: Node, checked: Checked) -> None:
        """Makes a node one that this run runs."""
        ledger = Ledger(self._layout.expectations_file(self._home(node.name), node.name))
        run = NodeRun(
            node,
            lambda: self._start(node, ledger),
            patience=Patience(
                restarts_max=self._settings.restarts_max,
                backoff_s_min=self._settings.backoff_s_min,
                backoff_s_max=self._settings.backoff_s_max,
            ),
            ledger=ledger,
            table_paths=self._table_paths(node.name),
            output_path=self._own_path(node.output.into or node.name) if isinstance(node.output, TableOutput) else None,
            say=self._say,
            say_failed=self._say_failed,
        )
        self._describe(run.progress, node, checked)
        self._nodes.append(run)

    def _leave(self, node: Node, checked: Checked) -> None:
        """A node that another run has, or that is not this version's to run before it is live."""
        owner = f"taken over from version {self._home(node.name)}; " if node.name in self._taken else ""
        message = f"{owner}left to the run of another version"
        if self._settings.once:
            self._say(f"{node.name}: {message}")
            return
        self._left.append(node)
        progress = NodeProgress(name=node.name, message=f"{message} for now")
        self._describe(progress, node, checked)

    def _describe(self, progress: NodeProgress, node: Node, checked: Checked) -> None:
        progress.writes = checked.node(node.name).writes
        if isinstance(node.output, TableOutput):
            progress.table, progress.key = node.output.into or node.name, list(node.output.row_key)
        elif isinstance(node.output, TopicOutput):
            progress.topic = self.topic_of(node)
        self.progress.nodes[node.name] = progress

    def _take_left(self) -> None:
        """Nodes that another run has let go of."""
        for node in [node for node in self._left if self._mine(node.name)]:
            if self._checked is None:
                raise OperatorError("prepare() comes before run()")
            self._left.remove(node)
            if isinstance(node.output, TableOutput) and node.output.into is None:
                self._open(node, self._checked)
            self._add(node, self._checked)
            self._say(f"{node.name}: no other run has it any more; goes on here")

    def run(
        self,
        on_progress: Callable[[RunProgress], None] = lambda progress: None,
        until: Callable[[], str | None] = lambda: None,
    ) -> RunProgress:
        """Returns when it was stopped, when every node has ended, when `once` is done, or when `until` says why."""
        path = self._layout.run_file(self._version)
        self.progress.status = "running"
        order = self._order() if self._settings.once else None  # else everything runs side by side
        wait_s = min(self._settings.progress_s, ONCE_LOOK_S) if self._settings.once else self._settings.progress_s
        looked_at = -math.inf
        try:
            while not self._stopping.is_set():
                self._take_left()
                # With `once` a turn is short, so that what is ready begins at once. Not each of them shows how far all
                # is: that took a tenth of a short run's CPU time.
                look = time.monotonic() - looked_at >= self._settings.progress_s - wait_s
                for node in self._nodes:
                    if node.progress.status == "waiting" and (order is None or order.may_begin(node)):
                        node.begin()
                    node.step(look=look)
                for node in order.again() if order is not None else ():
                    node.begin()
                ended = all(node.ended for node in self._nodes) and (bool(self._nodes) or not self._left)
                if look or ended:
                    looked_at = time.monotonic()
                    self._lag.look(self._nodes)
                    self.progress.caught_up = self._lag.caught_up
                    self._report(path)
                    on_progress(self.progress)
                if ended:
                    break
                reason = until()
                if reason is not None:
                    self.progress.message = reason
                    break
                self._stopping.wait(wait_s)
        finally:
            for node in self._nodes:
                node.stop()
            self._lag.look(self._nodes, now_or_never=True)
            self.progress.caught_up = self._lag.caught_up
            self.progress.status = self._outcome()
            self.progress.write(path)
        on_progress(self.progress)
        return self.progress

    def redrive(self) -> list[Redriven]:
        """Sends the quarantined rows of the chosen nodes through the present code; `prepare` comes before."""
        if self._checked is None:
            raise OperatorError("prepare() comes before redrive()")
        self._worker_code.use()
        found = []
        for node in self._queries:
            if not is_delta(self._layout.quarantine_dir(self._home(node.name), node.name)):
                continue
            whole = node.recomputed or self._checked.node(node.name).maintained
            assembled = None if whole else self._assembler.assemble(node.name)
            frame = assembled.frame if assembled is not None else None
            why = obstacle(node, frame, whole=whole)
            if why is not None or assembled is None or frame is None:
                found.append(Redriven(node=node.name, refused=why or ""))
                continue
            found.append(Redrive(self._spark, self._place(assembled), row_wise=one_for_one(frame)).run())
        return found

    def _place(self, assembled: Assembled) -> Place:
        node, sink = assembled.node, self._sink(assembled)
        tables = self._layout.tables_dir

        def again(spark: "SparkSession", topic: Topic, ranges: dict[int, tuple[int, int]]) -> "DataFrame":
            return self._reader.again(spark, topic, TopicSource(topic=topic.topic, ranges=ranges))

        def beginnings(topic: str, partitions: set[int]) -> dict[int, int]:
            known = self._kafka.beginnings([(topic, partition) for partition in partitions])
            return {partition: offset for (_, partition), offset in known.items()}

        def empty(table: str) -> "DataFrame":
            own = table in self._graph.nodes
            return empty_table(self._spark, self._own_path(table) if own else real_path(table_path(tables, table)))

        return Place(
            node=node,
            topics=self._graph.topics(node.name),
            table=self._own_path(node.name),
            quarantine=self._layout.quarantine_dir(self._home(node.name), node.name),
            stamp=lambda number: self._stamp(node, number),
            parser=self._schemas.parser,
            assembler=lambda reader: Assembler(self._graph, reader),
            again=again,
            beginnings=beginnings,
            write=sink.write,
            static=self._reader.static,
            empty=empty,
        )

    def _report(self, path: str) -> None:
        """A store that is away for a moment is no reason to stop; the report after the last batch is written anyway."""
        now = time.monotonic()
        if now - self._reported_at >= storage_of(path).replace_s_min:
            self._reported_at = now
            with suppress(StoreError):
                self.progress.write(path)

    def lineage(self) -> Lineage:
        """What its nodes read and write, as events; after `prepare`."""
        if self._checked is None:
            raise OperatorError("prepare() comes before lineage()")
        return Lineage(
            self._graph,
            self._checked,
            self._version,
            bootstrap=self._settings.bootstrap,
            own_path=self._own_path,
            other_path=lambda table: real_path(table_path(self._layout.tables_dir, table)),
            topic_of=self.topic_of,
        )

    def topic_of(self, node: Node) -> str:
        """The first version writes the topic itself; later ones write beside it."""
        if not isinstance(node.output, TopicOutput):
            raise InvariantError(f"{node.name}: writes no topic")
        version = self._home(node.name)
        return node.output.topic if version == 1 else f"{node.output.topic}.v{version}"

    def _outcome(self) -> Any:
        if any(node.failed for node in self._nodes):
            return "failed"
        return "finished" if all(node.progress.status == "finished" for node in self._nodes) else "stopped"

    def _order(self) -> OnceOrder:
        checked = self._checked
        appends = {
            node.name
            for node in self._graph.queries
            if isinstance(node.output, TableOutput)
            and not node.output.row_key
            and node.output.into is None
            and checked is not None
            and checked.mode(node.name) == "append"
        }
        whole = {
            node.name
            for node in self._graph.queries
            if any(isinstance(edge.source, Static) for edge in self._graph.inlined_edges(node.name))
        }
        return OnceOrder(self._graph, self._nodes, lambda name: table_version(self._own_path(name)), appends, whole)

    def _home(self, node: str) -> int:
        """The version in whose directory a node lies: its state, its table and all that belongs to them."""
        return self._taken.get(node, self._version)

    def _own_path(self, table: str) -> str:
        return self._layout.table_dir(self._home(table), table)

    def _open(self, node: Node, checked: Checked) -> None:
        path, changes = self._own_path(node.name), self._graph.reads_changes_of(node.name)
        open_table(self._spark, node, path, checked.node(node.name), changes=changes)
        if checked.node(node.name).maintained:
            refuse_streamed(self._spark, node, path, self._stamp(node, 0))

    def _start(self, node: Node, ledger: Ledger) -> "tuple[StreamingQuery, Started]":
        if self._checked is None:
            raise OperatorError("prepare() comes before run()")
        self._worker_code.use()
        whole = node.recomputed or self._checked.node(node.name).maintained
        assembled = self._signalled(node) if whole else self._assembler.assemble(node.name)
        if not whole:
            self._refuse_unordered(assembled)
        output = node.output
        if isinstance(output, TopicOutput) and output.latency == "realtime":
            return self._start_realtime(assembled, output)
        writer = BatchWriter(
            self._facts(assembled),
            self._sink(assembled),
            ledger=ledger,
            read_again=self._reader.again,
            parser=self._schemas.parser,
            late_rows=(
                LateRows(self._graph, node, assembled.frame, self._schemas.parser)
                if node.late == "quarantine"
                else None
            ),
        )
        frame = observe(assembled.frame, node.expectations)
        stream: Any = (
            frame.writeStream.foreachBatch(writer)
            .queryName(f"{self._graph.pipeline}-v{self._version}-{node.name}")
            .outputMode(self._checked.mode(node.name))
            .option("checkpointLocation", usable(self._layout.checkpoint_dir(self._home(node.name), node.name)))
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
        if not self._taken or node.name in self._taken or not watermarked(assembled.frame):
            return
        for table in self._graph.upstream(node.name):
            if table in self._taken and not only_appended(self._own_path(table), change_feed=False, commits_max=None):
                raise PipelineError(
                    node.place,
                    f"{node.name}: has a watermark, and {table}, which is taken over, no longer tells in which order "
                    f"it got its rows (it was optimized, or the oldest commits are gone); refresh {table} as well",
                )

    def _signalled(self, node: Node) -> Assembled:
        """A node that is computed from whole tables: its stream only says that one of them has changed."""
        paths = dict.fromkeys(self._table_paths(node.name).values())
        return Assembled(node=node, frame=signal(self._spark, list(paths)), observed={}, statics={})

    def _recompute(self, node: Node, output: TableOutput) -> RecomputeSink:
        inputs = self._inputs(node)

        def compute(spark: "SparkSession", batch: int) -> "DataFrame":
            return inputs.compute(GivenReader(inputs.snapshots(spark, batch), {}))

        return RecomputeSink(output, self._own_path(node.name), inputs.paths, compute)

    def _inputs(self, node: Node) -> Inputs:
        """What a node reads that is computed from whole tables."""
        read = list(self._tables_read(node.name))
        checkpoint = self._layout.checkpoint_dir(self._home(node.name), node.name)
        leave_out = node.output.leave_out if isinstance(node.output, TableOutput) else ()

        def snapshots(spark: "SparkSession", batch: int) -> SnapshotReader:
            reached = versions_reached(checkpoint, batch)
            return SnapshotReader(
                spark,
                {path: reached[identity] for identity, _, path in read if identity in reached},
                own_path=self._own_path,
                path_of=lambda table: real_path(table_path(self._layout.tables_dir, table)),
            )

        return Inputs(
            paths={table: path for _, table, path in read},
            snapshots=snapshots,
            compute=lambda reader: stored(Assembler(self._graph, reader).compute(node.name), leave_out),
        )

    def _start_realtime(self, assembled: Assembled, output: TopicOutput) -> "tuple[StreamingQuery, Started]":
        node, once = assembled.node, self._settings.once
        name = f"{self._graph.pipeline}-v{self._version}-{node.name}"
        checkpoint = self._layout.checkpoint_dir(self._home(node.name), node.name)
        options = {"kafka.bootstrap.servers": self._settings.bootstrap, **self._settings.kafka}
        topic = self.topic_of(node)
        queries = [
            start_realtime(assembled, output, topic=topic, name=name, checkpoint=checkpoint, once=once, options=options)
        ]
        for index, read in assembled.observed.items():
            queries.append(
                start_quarantine(
                    self._reader.raw(read),
                    read,
                    self._schemas.parser(read),
                    path=self._layout.quarantine_dir(self._home(node.name), node.name),
                    name=f"{name}-quarantine-{index}",
                    checkpoint=f"{checkpoint}.quarantine.{index}",
                    once=once,
                    stamp=lambda batch: self._stamp(node, batch),
                )
            )
        return cast("StreamingQuery", Together(queries)), RealtimeState()

    def _stamp(self, node: Node, batch: int) -> Stamp:
        return Stamp(
            pipeline=self._graph.pipeline,
            version=self._home(node.name),
            node=node.name,
            batch=batch,
            sources=(),
            transactional=self._settings.transaction_options,
        )

    def _facts(self, assembled: Assembled) -> Facts:
        name = assembled.node.name
        return Facts(
            node=assembled.node,
            pipeline=self._graph.pipeline,
            version=self._home(name),
            checkpoint=self._layout.checkpoint_dir(self._home(name), name),
            quarantine_dir=self._layout.quarantine_dir(self._home(name), name),
            tables=self._table_ids(name),
            observed=assembled.observed,
            transactional=self._settings.transaction_options,
        )

    def _sink(self, assembled: Assembled) -> Sink:
        node = assembled.node
        match node.output:
            case TableOutput(recomputed=True) as output:
                return self._recompute(node, output)
            case TableOutput() as output if self._checked is not None and self._checked.node(node.name).maintained:
                return MaintainSink(output, self._own_path(node.name), self._inputs(node))
            case TableOutput() as output:
                table = output.into or node.name
                path = self._own_path(table)
                return DeltaSink(node, output, path, self._keyed(node, output, path) if output.key else None)
            case TopicOutput() as output:
                config = client_config(self._settings.bootstrap, self._settings.kafka)
                config.pop("logger")  # it stays on this side; workers have none
                config.update(output.options)
                parts = BatchParts(self._layout.checkpoint_dir(self._home(node.name), node.name))
                return TopicSink(node, output, self.topic_of(node), config, parts)
            case BatchOutput():
                return UserSink(node, self._graph.files, assembled.statics, self._own_path)
        raise OperatorError(f"{node.name}: writes nothing")

    def _keyed(self, node: Node, output: TableOutput, path: str) -> Keyed:
        order = self._checked.node(node.name).order if self._checked is not None else None
        deletes = self._layout.deletes_dir(self._home(node.name), node.name)
        markers, alone = Markers(deletes, output, order), not self._graph.filled_back(node.name)
        if output.history and order is not None:
            return HistoryTable(output, path, markers, order, alone=alone)
        if output.nulls == "unchanged" and order is not None:
            return PartialTable(output, path, markers, order, alone=alone)
        return KeyedTable(output, path, markers, order, alone=alone)

    def _tables_read(self, name: str) -> Iterator[tuple[str, str, str]]:
        """Delta id, name and path of each table that a node reads as a stream."""
        jvm: Any = self._spark._jvm
        for edge in self._graph.inlined_edges(name):
            if isinstance(edge.source, Static):
                continue
            if edge.node is not None:
                table, path = edge.node, self._own_path(edge.node)
            elif isinstance(edge.source, TableStream):
                table = edge.source.table
                path = real_path(table_path(self._layout.tables_dir, table))
            else:
                continue
            log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, path)
            yield str(log.tableId()), table, path

    def _table_ids(self, name: str) -> dict[str, str]:
        return {identity: table for identity, table, _ in self._tables_read(name)}

    def _table_paths(self, name: str) -> dict[str, str]:
        return {identity: path for identity, _, path in self._tables_read(name)}
