"""A version of a pipeline from start to end in this process: lock, session, runner, and an eye on the catalog.

A run ends by itself when another version becomes live in the place of its own, unless the cut-over said that it goes on
for a quick rollback. A first run that fails before anything was written leaves no pipeline behind.
"""

import os
import time
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.core.errors import OperatorError
from headrace.streaming import session
from headrace.streaming.check import Checked, check
from headrace.streaming.declarations import TableStream, TopicOutput, TopicStream
from headrace.streaming.gateway import END_WAIT_S
from headrace.streaming.graph import Graph
from headrace.streaming.kafka import Kafka
from headrace.streaming.launching import Launch, exclusive, is_kept_running
from headrace.streaming.lineage import Lineage
from headrace.streaming.lineage_sink import LineageSink
from headrace.streaming.node_locks import NodeLocks
from headrace.streaming.progress import RunProgress
from headrace.streaming.reached import last_committed
from headrace.streaming.reading import table_path
from headrace.streaming.redrive import Redriven
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.run_status import RunStatus, served
from headrace.streaming.runner import Runner
from headrace.streaming.schemas import Schemas
from headrace.streaming.settings import SparkSettings
from headrace.tables.catalog import PipelineCatalog
from headrace.tables.layout import version_number
from headrace.tables.object_store import StoreError
from headrace.tables.storage import is_url, storage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_RUN_RECORDS_MAX = 500_000


def run_version(
    launch: Launch,
    settings: RunSettings,
    *,
    replay: bool = False,
    on_runner: Callable[[Runner], None] = lambda runner: None,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda line: None,
    say_failed: Callable[[str], None] | None = None,
    step: Callable[[str], None] = lambda line: None,
    end_wait_s: float = END_WAIT_S,
    leave_archive: bool = False,
) -> RunProgress:
    """`on_runner` gets the runner as soon as there is one, to be able to stop it; `step` gets a line for each step on
    the way to the first batch, `say` what happens later, `say_failed` why a node has stopped for good."""
    return _registered_if_it_wrote(
        launch,
        lambda: _run(
            launch, settings, replay, on_runner, on_progress, say, say_failed, step, end_wait_s, leave_archive
        ),
    )


def _registered_if_it_wrote(launch: Launch, run: Callable[[], RunProgress]) -> RunProgress:
    """A first run that failed before anything was written leaves no pipeline behind."""
    progress: RunProgress | None = None
    try:
        progress = run()
    finally:
        forget_unwritten(launch, progress)
    return progress


def forget_unwritten(launch: Launch, progress: RunProgress | None) -> None:
    if launch.first and (progress is None or progress.status == "failed") and not wrote(launch, progress):
        launch.catalog.remove()


def wrote(launch: Launch, progress: RunProgress | None) -> bool:
    """Whether a node has done a batch, as far as its own figures or its checkpoint say. An interrupted run has no
    figures, and may have written for days."""
    layout = launch.catalog.layout
    if progress is not None and any(node.batches for node in progress.nodes.values()):
        return True
    return any(
        last_committed(layout.checkpoint_dir(launch.version, node.name)) is not None for node in launch.graph.queries
    )


def _run(
    launch: Launch,
    settings: RunSettings,
    replay: bool,
    on_runner: Callable[[Runner], None],
    on_progress: Callable[[RunProgress], None],
    say: Callable[[str], None],
    say_failed: Callable[[str], None] | None,
    step: Callable[[str], None],
    end_wait_s: float,
    leave_archive: bool,
) -> RunProgress:
    reach_topics(launch.graph, settings)
    spark_settings = reaching(settings.spark, launch.catalog.layout.tables_dir)
    if settings.once and reads_little(launch.graph, Kafka(settings.bootstrap, settings.kafka)):
        spark_settings = replace(spark_settings, short=True)
    status = RunStatus(launch.graph.pipeline, launch.version)
    with (
        served(status, settings, step),
        closing(LineageSink(settings.lineage, say)) if settings.lineage is not None else nullcontext() as sink,
        exclusive(launch.catalog, launch.version) as lost,
        session.running(spark_settings, say=step, end_wait_s=end_wait_s, leave_archive=leave_archive) as spark,
    ):

        def taken(runner: Runner) -> None:
            status.take(runner.progress)
            runners.append(runner)
            on_runner(runner)

        def turned(progress: RunProgress) -> None:
            status.beat()
            if sink is not None:
                if not lineages:
                    lineages.append(runners[0].lineage())
                for event in lineages[0].news(progress, ended=progress.status not in ("starting", "running")):
                    sink.send(event)
            on_progress(progress)

        runners: list[Runner] = []
        lineages: list[Lineage] = []
        return _run_on(
            spark,
            launch,
            settings,
            lost,
            replay=replay,
            on_runner=taken,
            on_progress=turned,
            say=say,
            say_failed=say_failed,
            step=step,
        )


def run_version_on(
    spark: "SparkSession",
    launch: Launch,
    settings: RunSettings,
    *,
    on_runner: Callable[[Runner], None] = lambda runner: None,
    say: Callable[[str], None] = lambda line: None,
    keep_failed: bool = False,
) -> RunProgress:
    """The same in a session that was there before, and stays. With `keep_failed` a first run leaves its tables also if
    nothing was written to them."""

    def run() -> RunProgress:
        with exclusive(launch.catalog, launch.version) as lost:
            return _run_on(spark, launch, settings, lost, on_runner=on_runner, say=say)

    return run() if keep_failed else _registered_if_it_wrote(launch, run)


def _run_on(
    spark: "SparkSession",
    launch: Launch,
    settings: RunSettings,
    lost: Callable[[], str | None],
    *,
    replay: bool = False,
    on_runner: Callable[[Runner], None] = lambda runner: None,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda line: None,
    say_failed: Callable[[str], None] | None = None,
    step: Callable[[str], None] = lambda line: None,
) -> RunProgress:
    layout, version = launch.catalog.layout, launch.version
    with NodeLocks(layout, version, launch.taken) as locks:
        runner = Runner(
            spark,
            launch.loaded,
            launch.graph,
            layout,
            version,
            settings,
            taken=launch.taken,
            mine=locks.mine,
            say=say,
            say_failed=say_failed,
        )
        runner.progress.replay = replay
        runner.progress.spark_log = session.log_path()
        on_runner(runner)
        runner.prepare(step)
        step("starting the first batches")
        watch = LiveWatch(launch.catalog, launch.version)
        return runner.run(on_progress, until=lambda: lost() or watch())


def redrive_version(
    launch: Launch, settings: RunSettings, *, step: Callable[[str], None] = lambda line: None
) -> list[Redriven]:
    """Sends what a version has in quarantine through its code; nobody else may run the version meanwhile."""
    if launch.first:
        launch.catalog.remove()
        raise OperatorError(f"{launch.graph.pipeline}: has not run yet, so nothing is in quarantine; run it first")
    spark_settings = replace(reaching(settings.spark, launch.catalog.layout.tables_dir), short=True)
    layout, version, taken = launch.catalog.layout, launch.version, launch.taken
    with exclusive(launch.catalog, version), NodeLocks(layout, version, taken) as locks:
        for node in launch.graph.chosen(settings.only):
            if not locks.mine(node.name):
                raise OperatorError(
                    f"{node.name}: run by another version, which shares it; stop that run first: "
                    f"headrace pipeline stop {launch.graph.pipeline}"
                )
        with session.running(spark_settings, say=step) as spark:
            runner = Runner(spark, launch.loaded, launch.graph, layout, version, settings, taken=taken)
            runner.prepare(step)
            step("sending what is in quarantine")
            return runner.redrive()


def reach_broker(launch: Launch, settings: RunSettings) -> None:
    """A broker that is away or a topic that is missing is reported before anything is started; a first run that ends
    here registers nothing."""
    try:
        reach_topics(launch.graph, settings)
    except BaseException:
        if launch.first:
            launch.catalog.remove()
        raise


def reach_topics(graph: Graph, settings: RunSettings) -> None:
    """A pipeline that only reads and writes tables needs no broker."""
    topics = [topic for node in graph.queries for topic in graph.topics(node.name)]
    if not topics and not any(isinstance(node.output, TopicOutput) for node in graph.queries):
        return
    kafka = Kafka(settings.bootstrap, settings.kafka)
    kafka.reach()
    for topic in dict.fromkeys(topics):
        kafka.check_topic(topic.topic, topic.place)


def reads_little(graph: Graph, kafka: Kafka) -> bool:
    """Whether all that the topics hold is so little that compiling it well would take longer than running it."""
    edges = [edge for node in graph.queries for edge in graph.inlined_edges(node.name)]
    if any(isinstance(edge.source, TableStream) for edge in edges):
        return False  # how much a table holds is not asked
    topics = {edge.source.topic for edge in edges if isinstance(edge.source, TopicStream)}
    places = [(topic, partition) for topic in topics for partition in range(kafka.partitions(topic))]
    firsts, ends = kafka.beginnings(places), kafka.ends(places)
    return sum(ends.get(place, 0) - firsts.get(place, 0) for place in places) <= SHORT_RUN_RECORDS_MAX


class LiveWatch:
    """Says when a version that was live is live no more."""

    def __init__(self, catalog: PipelineCatalog, version: int) -> None:
        self._catalog = catalog
        self._version = version
        self._was_live = False
        self._looked_at = 0.0

    def __call__(self) -> str | None:
        """Why to stop; None to go on."""
        live = self._live()
        if live == self._version:
            self._was_live = True
            return None
        if not self._was_live or live is None or is_kept_running(self._catalog, self._version):
            return None
        return f"version {live} is live now"

    def _live(self) -> int | None:
        """The link is cheap to look at; an object store is asked now and then."""
        layout = self._catalog.layout
        if not is_url(layout.root):
            try:
                return version_number(os.readlink(layout.live_link))
            except OSError:
                return None
        if time.monotonic() - self._looked_at >= storage_of(layout.root).replace_s_min:
            self._looked_at = time.monotonic()
            with suppress(StoreError):
                self._catalog.refresh()
        return self._catalog.live.number if self._catalog.live is not None else None


def reaching(spark: SparkSettings, tables_dir: str) -> SparkSettings:
    """With what Spark needs for the place where the tables lie."""
    return replace(spark, s3=True) if is_url(tables_dir) else spark


def check_file(graph: Graph, settings: RunSettings, *, say: Callable[[str], None] = lambda line: None) -> Checked:
    """Analysis alone: no job, and no broker unless a schema has to be inferred."""
    spark_settings = replace(
        reaching(settings.spark, PipelineCatalog.open(settings.tables_dir, graph.pipeline).layout.tables_dir),
        short=True,
    )
    with session.running(spark_settings, say=say) as spark:
        return check_on(spark, graph, settings)


def check_on(spark: "SparkSession", graph: Graph, settings: RunSettings) -> Checked:
    """The same in a session that was there before."""
    catalog = PipelineCatalog.open(settings.tables_dir, graph.pipeline)
    # The live version's directory has the schemas that were inferred for it.
    directory = catalog.layout.version_dir(catalog.live.number) if catalog.live is not None else None
    schemas = Schemas(directory, Kafka(settings.bootstrap, settings.kafka), keep=False)
    return check(
        spark,
        graph,
        parser=schemas.parser,
        path_of=lambda table: table_path(catalog.layout.tables_dir, table),
    )
