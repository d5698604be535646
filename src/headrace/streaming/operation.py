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


def run_version(
    launch: Launch,
    settings: RunSettings,
    *,
    replay: bool = False,
    on_runner: Callable[[Runner], None] = lambda runner: None,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda line: None,
) -> RunProgress:
    """`on_runner` gets the runner as soon as there is one, to be able to stop it."""
    spark_settings = reaching(settings.spark, launch.catalog.layout.tables_dir)
    with (
        exclusive(launch.catalog, launch.version) as lost,
        session.running(spark_settings, say=say) as spark,
    ):
        runner = Runner(spark, launch.loaded, launch.graph, launch.catalog.layout, launch.version, settings, say=say)
        runner.progress.replay = replay
        runner.progress.spark_log = session.log_path()
        on_runner(runner)
        runner.prepare()
        watch = LiveWatch(launch.catalog, launch.version)
        return runner.run(on_progress, until=lambda: lost() or watch())


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
    with session.running(reaching(settings.spark, catalog.layout.tables_dir), say=say) as spark:
        schemas = Schemas(directory, Kafka(settings.bootstrap, settings.kafka), keep=False)
        return check(
            spark,
            graph,
            parser=schemas.parser,
            path_of=lambda table: table_path(catalog.layout.tables_dir, table),
        )
