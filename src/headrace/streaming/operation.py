"""A version of a pipeline from start to end in this process: lock, session, runner, and an eye on the catalog.

A run ends by itself when another version becomes live in the place of its own: its successor goes on, and two that
write to the same readers' tables would be one too many.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from headrace.streaming import session
from headrace.streaming.check import Checked, check
from headrace.streaming.declarations import TableStream, Topic
from headrace.streaming.gateway import END_WAIT_S
from headrace.streaming.graph import Graph
from headrace.streaming.kafka import Kafka
from headrace.streaming.launching import Launch, exclusive
from headrace.streaming.progress import RunProgress
from headrace.streaming.reading import table_path
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.runner import Runner
from headrace.streaming.schemas import Schemas
from headrace.streaming.settings import SparkSettings
from headrace.tables.catalog import Catalog
from headrace.tables.layout import version_number
from headrace.tables.object_store import StoreError
from headrace.tables.storage import is_url, storage_of

SHORT_RUN_RECORDS_MAX = 500_000


def run_version(
    launch: Launch,
    settings: RunSettings,
    *,
    replay: bool = False,
    on_runner: Callable[[Runner], None] = lambda runner: None,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda line: None,
    step: Callable[[str], None] = lambda line: None,
    end_wait_s: float = END_WAIT_S,
) -> RunProgress:
    """`on_runner` gets the runner as soon as there is one, to be able to stop it; `step` gets a line for each step on
    the way to the first batch, `say` what happens later."""
    spark_settings = reaching(settings.spark, launch.catalog.layout.tables_dir)
    if settings.once and reads_little(launch.graph, Kafka(settings.bootstrap, settings.kafka)):
        spark_settings = replace(spark_settings, short=True)
    with (
        exclusive(launch.catalog, launch.version) as lost,
        session.running(spark_settings, say=step, end_wait_s=end_wait_s) as spark,
    ):
        runner = Runner(spark, launch.loaded, launch.graph, launch.catalog.layout, launch.version, settings, say=say)
        runner.progress.replay = replay
        runner.progress.spark_log = session.log_path()
        on_runner(runner)
        runner.prepare(step)
        watch = LiveWatch(launch.catalog, launch.version)
        return runner.run(on_progress, until=lambda: lost() or watch())


def reads_little(graph: Graph, kafka: Kafka) -> bool:
    """Whether all that the topics hold is so little that compiling it well would take longer than running it."""
    edges = [edge for node in graph.queries for edge in graph.inlined_edges(node.name)]
    if any(isinstance(edge.source, TableStream) for edge in edges):
        return False  # how much a table holds is not asked
    topics = {edge.source.topic for edge in edges if isinstance(edge.source, Topic)}
    places = [(topic, partition) for topic in topics for partition in range(kafka.partitions(topic))]
    firsts, ends = kafka.beginnings(places), kafka.ends(places)
    return sum(ends.get(place, 0) - firsts.get(place, 0) for place in places) <= SHORT_RUN_RECORDS_MAX


class LiveWatch:
    """Says when a version that was live is live no more."""

    def __init__(self, catalog: Catalog, version: int) -> None:
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
        return f"version {live} is live now" if self._was_live and live is not None else None

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
    catalog = Catalog.open(settings.tables_dir, graph.pipeline)
    # The live version's directory has the schemas that were inferred for it.
    directory = catalog.layout.version_dir(catalog.live.number) if catalog.live is not None else None
    spark_settings = replace(reaching(settings.spark, catalog.layout.tables_dir), short=True)
    with session.running(spark_settings, say=say) as spark:
        schemas = Schemas(directory, Kafka(settings.bootstrap, settings.kafka), keep=False)
        return check(
            spark,
            graph,
            parser=schemas.parser,
            path_of=lambda table: table_path(catalog.layout.tables_dir, table),
        )
