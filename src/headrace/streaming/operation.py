"""A version of a pipeline from start to end in this process: lock, session, runner, and an eye on the catalog.

A run ends by itself when another version becomes live in the place of its own: its successor goes on, and two that
write to the same readers' tables would be one too many.
"""

import os
from collections.abc import Callable

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
from headrace.tables.catalog import Catalog
from headrace.tables.layout import version_number


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
    with exclusive(launch.catalog, launch.version), session.running(settings.spark, say=say) as spark:
        runner = Runner(spark, launch.loaded, launch.graph, launch.catalog.layout, launch.version, settings, say=say)
        runner.progress.replay = replay
        runner.progress.spark_log = session.log_path()
        on_runner(runner)
        runner.prepare()
        return runner.run(on_progress, until=LiveWatch(launch.catalog, launch.version))


class LiveWatch:
    """Says when a version that was live is live no more."""

    def __init__(self, catalog: Catalog, version: int) -> None:
        self._link = catalog.layout.live_link
        self._version = version
        self._was_live = False

    def __call__(self) -> str | None:
        """Why to stop; None to go on."""
        try:
            live = version_number(os.readlink(self._link))
        except OSError:
            return None
        if live == self._version:
            self._was_live = True
            return None
        return f"version {live} is live now" if self._was_live and live is not None else None


def check_file(graph: Graph, settings: RunSettings, *, say: Callable[[str], None] = lambda line: None) -> Checked:
    """Analysis alone: no job, and no broker unless a schema has to be inferred."""
    catalog = Catalog.open(settings.tables_dir, graph.pipeline)
    # The live version's directory has the schemas that were inferred for it.
    directory = catalog.layout.version_dir(catalog.live.number) if catalog.live is not None else None
    with session.running(settings.spark, say=say) as spark:
        schemas = Schemas(directory, Kafka(settings.bootstrap, settings.kafka), keep=False)
        return check(
            spark,
            graph,
            parser=schemas.parser,
            path_of=lambda table: table_path(os.path.abspath(settings.tables_dir), table),
        )
