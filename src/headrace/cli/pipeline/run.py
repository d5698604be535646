"""`headrace pipeline run` and `replay`: a version of a pipeline in the foreground, with a live view."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.pipeline.options import RunOptions, run_options, watch_options
from headrace.cli.preparing import prepare, timed
from headrace.cli.tabling import json_option, print_json

if TYPE_CHECKING:
    from headrace.streaming.launching import Launch
    from headrace.streaming.progress import RunProgress
    from headrace.streaming.run_settings import RunSettings
    from headrace.streaming.runner import Runner

FAILED = 1
only_option = click.option(
    "--only", multiple=True, metavar="NODE", help="Run this node and no other; may be given several times."
)

accept_option = click.option("--accept-change", is_flag=True, help="Run changed code on the existing tables and state.")


@click.command(short_help="Run it; Ctrl-C stops it.")
@click.argument("file")
@click.option("--once", is_flag=True, help="Process the records that are there now, then end.")
@accept_option
@only_option
@watch_options
@run_options
def run(
    file: str,
    once: bool,
    accept_change: bool,
    only: tuple[str, ...],
    options: RunOptions,
    **watch: Any,
) -> None:
    """Runs the live version of a pipeline until Ctrl-C. FILE is its file; the name of a pipeline runs the code that
    its live version keeps, as after a rollback. Ends with 1 when a node failed."""
    with one_line_errors(options.debug):
        from headrace.streaming.launching import launch_live

        settings = options.settings(once=once, only=only, **watch)
        launch = launch_live(file, options.tables_dir, accept_change=accept_change)
        _run(launch, settings, replay=False)


@click.command(short_help="Build the next version from the log, beside the live one.")
@click.argument("file")
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    default=None,
    help="earliest, a time such as 2026-01-31T10:00, or offsets such as orders:0=100.  [default: earliest]",
)
@click.option(
    "--refresh",
    multiple=True,
    metavar="TABLE",
    help="Build only this table and what depends on it; take over the others as they are. May be given several times.",
)
@click.option("--once", is_flag=True, help="Process the records that are there now, then end.")
@watch_options
@run_options
def replay(
    file: str,
    start: str | None,
    refresh: tuple[str, ...],
    once: bool,
    options: RunOptions,
    **watch: Any,
) -> None:
    """Builds the next version of a pipeline's tables from the log, with the code of FILE, while the live version goes
    on. It shows how far it is, and goes on streaming when it has caught up. A replay of the same code that was
    interrupted goes on where it was.

    With --refresh the other tables and their checkpoints are those of the live version: nothing of them is computed
    again. Until the cut-over the live version's run writes them; after it, the run of the new version does."""
    with one_line_errors(options.debug):
        from headrace.streaming.launching import launch_next

        launch, starting = launch_next(file, options.tables_dir, start, refresh)
        settings = options.settings(once=once, starting=starting, **watch)
        _run(launch, settings, replay=True)


@click.command(short_help="Send quarantined rows through the present code.")
@click.argument("pipeline")
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only this node; may be given several times.")
@accept_option
@json_option
@run_options
def redrive(
    pipeline: str,
    nodes: tuple[str, ...],
    accept_change: bool,
    as_json: bool,
    options: RunOptions,
) -> None:
    """Sends the quarantined rows of the live version of PIPELINE, a file or a name, through its present code, each
    exactly once. What is bad again stays in quarantine. Stop the run first; downstream tables follow with the next
    one."""
    with one_line_errors(options.debug):
        from headrace.streaming.launching import launch_live
        from headrace.streaming.operation import redrive_version

        settings = options.settings(only=nodes)
        launch = launch_live(pipeline, options.tables_dir, accept_change=accept_change)
        launch.graph.chosen(nodes)
        step = timed(lambda line: click.echo(line, err=True))
        prepare(step)
        found = redrive_version(launch, settings, step=step)
        if as_json:
            print_json([asdict(each) for each in found])
        elif not found:
            click.echo(f"{launch.graph.pipeline}: nothing is in quarantine")
        for each in found if not as_json else ():
            if each.refused:
                click.echo(f"{each.node}: {each.refused}")
            else:
                click.echo(f"{each.node}: {each.sent:,} sent, {each.written:,} written, {each.kept:,} in quarantine")
        if any(each.refused for each in found):
            sys.exit(FAILED)


def _run(launch: "Launch", settings: "RunSettings", *, replay: bool) -> None:
    from headrace.cli.pipeline.view import view_of
    from headrace.streaming.operation import reach_broker, run_version
    from headrace.streaming.progress import RunProgress

    reach_broker(launch, settings)
    stopper = _Stopper()
    begun = RunProgress(pipeline=launch.graph.pipeline, version=launch.version, replay=replay)
    with _signals(stopper), view_of(sys.stdout, begun) as view:
        stopper.on_stop = view.stopping
        view.say(f"{launch.graph.pipeline} version {launch.version}")
        if launch.news:
            view.say(launch.news)
        step = timed(view.say)
        prepare(step)
        progress = run_version(
            launch,
            settings,
            replay=replay,
            on_runner=stopper.take,
            on_progress=view.show,
            say=view.say,
            say_failed=view.failed,
            step=step,
            leave_archive=True,
        )
    _end(launch, progress, replay=replay)


def _end(launch: "Launch", progress: "RunProgress", *, replay: bool) -> None:
    name = launch.graph.pipeline
    if progress.status == "failed":  # why was said when it happened
        if progress.spark_log is not None:
            click.echo(f"headrace: Spark's own log: {progress.spark_log}", err=True)
        sys.exit(FAILED)
    if progress.message:
        click.echo(f"{name} version {launch.version}: {progress.message}; this run ended")
    else:
        click.echo(f"{name} version {launch.version}: {progress.status}")
    if replay and progress.status == "finished":
        click.echo(f"next: headrace pipeline compare {name}   then: headrace pipeline cutover {name}")


class _Stopper:
    """Turns the first signal into a clean stop, also when it comes before there is anything to stop; who sends a
    second one does not want to wait."""

    def __init__(self) -> None:
        self._runner: Runner | None = None
        self._stopped = False
        self.on_stop: Callable[[], None] = lambda: None

    def take(self, runner: "Runner") -> None:
        self._runner = runner

    def stop(self, number: int, frame: object) -> None:
        if self._runner is None or self._stopped:
            raise KeyboardInterrupt
        self._stopped = True
        self.on_stop()
        self._runner.stop()


@contextmanager
def _signals(stopper: _Stopper) -> Iterator[None]:
    before = {number: signal.signal(number, stopper.stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
