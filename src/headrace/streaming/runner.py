"""Runs a version of a pipeline: one supervised streaming query per node, until it is stopped or, with `once`, done.

It owns the run's state; `query_starter` makes the queries, the tables belong to Delta, the offsets to the checkpoints.
Upstream tables are created before anything starts, so that every stream has something to read. One thread looks at all
nodes in turn. A node that the version has taken over lies in the directory of its owner, and another run may have it:
then it is left to that one until it lets go.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.core.errors import InvariantError
from headrace.streaming.check import Checked, check
from headrace.streaming.commit_rows import table_version
from headrace.streaming.declarations import Node, Static, TableOutput, TopicOutput
from headrace.streaming.graph import Graph
from headrace.streaming.kafka import Kafka
from headrace.streaming.lag import Lag
from headrace.streaming.lineage import Lineage
from headrace.streaming.live_order import LiveOrder
from headrace.streaming.loading import LoadedPipeline
from headrace.streaming.node_paths import NodePaths
from headrace.streaming.node_run import NodeRun
from headrace.streaming.once_order import OnceOrder
from headrace.streaming.outline import refuse_own_paths
from headrace.streaming.progress import NodeProgress, RunProgress, counted
from headrace.streaming.query_starter import QueryStarter
from headrace.streaming.reading import StreamReader, table_path
from headrace.streaming.redrive import Redriven
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.schemas import Schemas
from headrace.streaming.supervision import Patience
from headrace.streaming.worker_code import WorkerCode
from headrace.tables.expectations import Ledger
from headrace.tables.layout import PipelineLayout
from headrace.tables.object_store import StoreError
from headrace.tables.storage import storage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TABLES_AT_ONCE = 4  # each waits for Delta's commit most of the time
_POLL_SETTING = "spark.sql.streaming.pollingDelay"


def poll_ms(nodes: int) -> int:
    """How long a node waits after it found nothing: so long that all of them together ask some 50 times a second.
    Spark's own 10 ms would have 20 idle nodes keep a core busy."""
    return min(20 * nodes, 250)


class Runner:
    def __init__(
        self,
        spark: "SparkSession",
        loaded: LoadedPipeline,
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
        self._paths = NodePaths(graph, layout, version, taken)
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
            own_path=self._paths.own,
            tables_dir=layout.tables_dir,
            taken=frozenset(taken),
        )
        self._starter: QueryStarter | None = None  # once `prepare` has checked the nodes
        self._stopping = threading.Event()
        self._wake = threading.Event()  # something has happened that the loop waits for
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
        self._wake.set()

    def prepare(self, step: Callable[[str], None] = lambda line: None) -> Checked:
        """Everything that can be wrong before the first batch is found here; `step` gets a line for each step."""
        step(f"checking {counted(len(self._graph.queries), 'node')}")
        refuse_own_paths(self._graph, self._layout.tables_dir)
        checked = check(
            self._spark,
            self._graph,
            parser=self._schemas.parser,
            path_of=lambda table: table_path(self._layout.tables_dir, table),
        )
        starter = self._starter = QueryStarter(
            self._spark,
            self._graph,
            self._paths,
            self._version,
            self._settings,
            checked,
            kafka=self._kafka,
            schemas=self._schemas,
            reader=self._reader,
            worker_code=self._worker_code,
            wrote=self._wake.set,
        )
        for node in self._queries:
            for read in self._graph.topics(node.name):
                self._reader.raw(read)  # one that is not there is said before anything starts
        step(f"opening {counted(len(self._graph.tables), 'table')}")
        with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="open-table") as pool:
            opened = [
                node for node in self._graph.tables if node.name not in self._paths.taken or self._mine(node.name)
            ]
            list(pool.map(starter.open, opened))
        for node in self._queries:
            if isinstance(node.output, TopicOutput):
                topic = self._paths.topic_of(node)
                self._kafka.ensure_topic(topic, like=node.output.topic if topic != node.output.topic else None)
        for node in self._queries:
            if self._mine(node.name):
                self._add(node, starter)
            else:
                self._leave(node, checked)
        return checked

    def _prepared(self) -> QueryStarter:
        if self._starter is None:
            raise InvariantError("prepare() comes first")
        return self._starter

    def _add(self, node: Node, starter: QueryStarter) -> None:
        """Makes a node one that this run runs."""
        ledger = Ledger(self._paths.expectations(node.name))
        run = NodeRun(
            node,
            lambda: starter.start(node, ledger),
            patience=Patience(
                restarts_max=self._settings.restarts_max,
                backoff_s_min=self._settings.backoff_s_min,
                backoff_s_max=self._settings.backoff_s_max,
            ),
            ledger=ledger,
            table_paths=self._paths.table_paths(self._spark, node.name),
            output_path=self._paths.own(node.output.into or node.name)
            if isinstance(node.output, TableOutput)
            else None,
            say=self._say,
            say_failed=self._say_failed,
            wake=self._wake.set,
        )
        self._describe(run.progress, node, starter.checked)
        self._nodes.append(run)

    def _leave(self, node: Node, checked: Checked) -> None:
        """A node that another run has, or that is not this version's to run before it is live."""
        owner = f"taken over from version {self._paths.home(node.name)}; " if node.name in self._paths.taken else ""
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
            progress.topic = self._paths.topic_of(node)
        self.progress.nodes[node.name] = progress

    def _take_left(self) -> None:
        """Nodes that another run has let go of."""
        for node in [node for node in self._left if self._mine(node.name)]:
            starter = self._prepared()
            self._left.remove(node)
            if isinstance(node.output, TableOutput) and node.output.into is None:
                starter.open(node)
            self._add(node, starter)
            self._say(f"{node.name}: no other run has it any more; goes on here")

    def run(
        self,
        on_progress: Callable[[RunProgress], None] = lambda progress: None,
        until: Callable[[], str | None] = lambda: None,
    ) -> RunProgress:
        """Returns when it was stopped, when every node has ended, when `once` is done, or when `until` says why."""
        path = self._layout.run_file(self._version)
        self.progress.status = "running"
        once = self._order() if self._settings.once else None
        order = once or LiveOrder(self._graph, self._nodes, self._paths.is_empty)
        looked_at = -math.inf
        try:
            while not self._stopping.is_set():
                self._take_left()
                # Events wake the loop: a first write, the end of a query. How far all is, it shows now and then only:
                # each look asks the JVM for the reports of all queries.
                self._wake.clear()
                look = time.monotonic() - looked_at >= self._settings.progress_s
                for node in self._nodes:
                    if node.progress.status == "waiting" and order.may_begin(node):
                        node.begin()
                    node.step(look=look)
                for node in once.again() if once is not None else ():
                    node.begin()
                    self._wake.set()
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
                self._wake.wait(max(0.0, looked_at + self._settings.progress_s - time.monotonic()))
        finally:
            for node in self._nodes:
                node.stop()
            self._lag.look(self._nodes, now_or_never=True)
            self.progress.caught_up = self._lag.caught_up
            self.progress.status = self._outcome()
            self.progress.write(path)
        on_progress(self.progress)
        return self.progress

    def _report(self, path: str) -> None:
        """A store that is away for a moment is no reason to stop; the report after the last batch is written anyway."""
        now = time.monotonic()
        if now - self._reported_at >= storage_of(path).replace_s_min:
            self._reported_at = now
            with suppress(StoreError):
                self.progress.write(path)

    def lineage(self) -> Lineage:
        """What its nodes read and write, as events; after `prepare`."""
        return Lineage(
            self._graph,
            self._prepared().checked,
            self._version,
            bootstrap=self._settings.bootstrap,
            own_path=self._paths.own,
            other_path=self._paths.other,
            topic_of=self._paths.topic_of,
        )

    def redrive(self) -> list[Redriven]:
        """Sends the quarantined rows of the chosen nodes through the present code; after `prepare`."""
        return self._prepared().redrive(self._queries)

    def _outcome(self) -> Any:
        if any(node.failed for node in self._nodes):
            return "failed"
        return "finished" if all(node.progress.status == "finished" for node in self._nodes) else "stopped"

    def _order(self) -> OnceOrder:
        checked = self._prepared().checked
        appends = {
            node.name
            for node in self._graph.queries
            if isinstance(node.output, TableOutput)
            and not node.output.row_key
            and node.output.into is None
            and checked.mode(node.name) == "append"
        }
        whole = {
            node.name
            for node in self._graph.queries
            if any(isinstance(edge.source, Static) for edge in self._graph.inlined_edges(node.name))
        }
        return OnceOrder(self._graph, self._nodes, lambda name: table_version(self._paths.own(name)), appends, whole)
