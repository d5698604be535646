"""`hr.run` and `hr.check`: a pipeline run from Python, in the session of this process, with its outcome as a value."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from headrace.core.errors import OperatorError
from headrace.streaming import operation
from headrace.streaming.check import Checked
from headrace.streaming.declarations import PipelineError, Source, SourceLine, collected
from headrace.streaming.given_functions import load_functions
from headrace.streaming.graph import Graph, make_graph
from headrace.streaming.kafka import Kafka
from headrace.streaming.launching import Launch, launch_live, launch_loaded, open_pipeline
from headrace.streaming.loading import LoadedPipeline
from headrace.streaming.outline import check_tables
from headrace.streaming.progress import NodeProgress, RunProgress
from headrace.streaming.python_session import spark as own_session
from headrace.streaming.python_tables import Table, read_table
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.runner import Runner
from headrace.tables.layout import tables_root
from headrace.tables.storage import is_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Pipeline = str | os.PathLike[str] | ModuleType | Callable[..., Any] | Iterable[Callable[..., Any] | Source]
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


class RunFailedError(OperatorError):
    """A node of a run has failed."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Of one node: records or rows that this run has read, and what its version has put aside or lost so far."""

    read: int
    unparsed: int
    quarantined: int
    late: int
    expectations: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a run ended: what `hr.run` returns. `run["revenue"]` is a table of it."""

    pipeline: str
    version: int
    status: str
    tables_dir: str
    counts: Mapping[str, Counts]
    failures: Mapping[str, str]
    table_names: tuple[str, ...]
    spark_log: str | None = field(repr=False, default=None)

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def tables(self) -> dict[str, Table]:
        """Each table of the pipeline as it is now."""
        return {name: self[name] for name in self.table_names}

    def __getitem__(self, table: str) -> Table:
        return read_table(table, tables=self.tables_dir)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table_names)

    def raise_for_failures(self) -> "Run":
        """Raises if a node failed; returns the run itself otherwise."""
        if self.failures:
            raise RunFailedError("; ".join(f"{node}: {message}" for node, message in self.failures.items()))
        return self


def run(
    pipeline: Pipeline,
    *,
    once: bool = True,
    tables: str | os.PathLike[str] | None = None,
    bootstrap: str | None = None,
    name: str | None = None,
    accept_change: bool = False,
    conf: Mapping[str, Any] | None = None,
    spark: "SparkSession | None" = None,
) -> Run:
    """Runs a pipeline in this process, and says how it went: `.tables`, `.counts`, `.failures`.

    `pipeline` is a file, a module, the name of a pipeline that has run, or functions: those that they read come along.
    With `once` it processes what is there and returns; without, it runs until it is interrupted. `tables` and
    `bootstrap` are as in `headrace pipeline run`, `conf` are settings of Spark, or of Kafka as `kafka.KEY`. `name` is
    for functions; a file says its own. `accept_change` goes on with changed code on the tables that are there.

        run = hr.run("shop.py", once=True)
        run["revenue"].to_pandas()
        hr.run([clean_orders, revenue], name="shop").raise_for_failures()
    """
    if collected() is not None:
        raise PipelineError(
            SourceLine.of_caller(),
            'hr.run: called while the file is read as a pipeline; put the call under if __name__ == "__main__":',
        )
    settings = _settings(tables, bootstrap, conf, once=once)
    launch = _launch(pipeline, settings.tables_dir, name, accept_change)
    if launch.news:
        _say(launch.news)
    runners: list[Runner] = []
    try:
        session = _session(launch, settings, conf, spark)
        progress = operation.run_version_on(session, launch, settings, on_runner=runners.append, say=_say)
    except KeyboardInterrupt:
        if once or not runners:
            raise
        progress = runners[0].progress
    return outcome_of(progress, launch, settings.tables_dir)


def _session(
    launch: Launch, settings: RunSettings, conf: Mapping[str, Any] | None, spark: "SparkSession | None"
) -> "SparkSession":
    try:
        if any(launch.graph.topics(node.name) for node in launch.graph.queries):
            Kafka(settings.bootstrap, settings.kafka).reach()  # one that is away is said before Spark starts
        return spark if spark is not None else own_session(s3=is_url(settings.tables_dir) or None, conf=_spark(conf))
    except BaseException:
        operation.forget_unwritten(launch, None)
        raise


def check(
    pipeline: Pipeline,
    *,
    tables: str | os.PathLike[str] | None = None,
    bootstrap: str | None = None,
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    spark: "SparkSession | None" = None,
) -> Checked:
    """Checks a pipeline without running it: its graph, its columns, its output modes. What is wrong is raised, with
    file and line.

    `.nodes` of what it returns have `name`, `reads`, `writes`, `mode`, `schema` and `notes`. The arguments are those of
    `hr.run`.

        for node in hr.check("shop.py").nodes:
            print(node.name, node.reads, node.schema.simpleString())
    """
    settings = _settings(tables, bootstrap, conf, once=True)
    _, graph = opened(pipeline, name)
    check_tables(graph, settings.tables_dir)
    session = spark if spark is not None else own_session(s3=is_url(settings.tables_dir) or None, conf=_spark(conf))
    return operation.check_on(session, graph, settings)


def _settings(
    tables: str | os.PathLike[str] | None, bootstrap: str | None, conf: Mapping[str, Any] | None, *, once: bool
) -> RunSettings:
    given: dict[str, Any] = {"once": once}
    given["kafka"] = {key: str(value) for key, value in (conf or {}).items() if key.startswith("kafka.")}
    if bootstrap is not None:
        given["bootstrap"] = bootstrap
    if tables is not None:
        given["tables_dir"] = os.fspath(tables)
    settings = RunSettings(**given)
    # The JVM may have been started in another directory.
    return RunSettings(**{**given, "tables_dir": tables_root(settings.tables_dir)})


def _spark(conf: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (conf or {}).items() if not key.startswith("kafka.")}


def _launch(pipeline: Pipeline, tables_dir: str, name: str | None, accept_change: bool) -> Launch:
    if isinstance(pipeline, str | os.PathLike):
        return launch_live(os.fspath(pipeline), tables_dir, accept_change=accept_change)
    loaded, graph = opened(pipeline, name)
    return launch_loaded(loaded, graph, tables_dir, path=loaded.file, accept_change=accept_change)


def opened(pipeline: Pipeline, name: str | None = None) -> tuple[LoadedPipeline, Graph]:
    """What was given, read and joined to a graph."""
    if isinstance(pipeline, str | os.PathLike):
        return open_pipeline(os.fspath(pipeline))
    if isinstance(pipeline, ModuleType):
        if getattr(pipeline, "__file__", None) is None:
            raise OperatorError(f"{pipeline.__name__}: a module without a file; give its functions instead")
        return open_pipeline(str(pipeline.__file__))
    given: list[Callable[..., Any] | Source] = [pipeline] if callable(pipeline) else list(pipeline)
    loaded = load_functions(given, names=_callers_names(), pipeline=name)
    return loaded, make_graph(loaded)


def _callers_names() -> dict[str, object]:
    """The variables of whoever called: functions that are declared inside another know their sources from there."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return dict(frame.f_locals) if frame is not None else {}


def outcome_of(progress: RunProgress, launch: Launch, tables_dir: str) -> Run:
    """How a run ended, from how its nodes did."""
    nodes = progress.nodes
    return Run(
        pipeline=progress.pipeline,
        version=progress.version,
        status=progress.status,
        tables_dir=tables_dir,
        counts={name: _counts(node) for name, node in nodes.items()},
        failures={name: node.message for name, node in nodes.items() if node.status == "failed"},
        table_names=tuple(node.name for node in launch.graph.tables),
        spark_log=progress.spark_log,
    )


def _counts(node: NodeProgress) -> Counts:
    return Counts(
        read=node.rows_in,
        unparsed=node.unparsed,
        quarantined=node.quarantined,
        late=node.late,
        expectations=node.expectations,
    )


def _say(line: str) -> None:
    print(f"headrace: {line}", file=sys.stderr)
