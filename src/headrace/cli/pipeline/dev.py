"""`headrace pipeline dev FILE`: run the file on a sample, show what each node gives, and again when it is saved."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.pipeline.options import RunOptions, run_options
from headrace.cli.preparing import prepare, timed

if TYPE_CHECKING:
    from headrace.streaming.run_settings import RunSettings
    from headrace.streaming.trial import Trial, Trials, Tried

LOOK_S = 0.1
SAMPLE_DEFAULT = 1_000
SHOWN_DEFAULT = 5
State = tuple[tuple[str, int, int], ...]


@click.command(short_help="Run it on a sample, and again at each save.")
@click.argument("file")
@click.option("--sample", type=click.IntRange(1, 1_000_000), default=SAMPLE_DEFAULT, show_default=True,
              help="Records read per topic, the newest.")  # fmt: skip
@click.option("--rows", type=click.IntRange(0, 1_000), default=SHOWN_DEFAULT, show_default=True,
              help="Rows shown per node.")  # fmt: skip
@click.option(
    "--runs", type=click.IntRange(1), default=None, help="Number of runs, after which it ends.  [default: until Ctrl-C]"
)
@run_options
def dev(
    file: str,
    sample: int,
    rows: int,
    runs: int | None,
    options: RunOptions,
) -> None:
    """Runs a pipeline's FILE on the newest records of its topics, on scratch tables in a session that stays warm, and
    shows the rows and the columns of each node. Saving the file, or a module beside it, runs it again."""
    with one_line_errors(options.debug):
        from headrace.streaming import session
        from headrace.streaming.loading import read_code
        from headrace.streaming.operation import reaching
        from headrace.streaming.trial import Trials

        read_code(os.path.abspath(file))
        settings = options.settings()
        _reach(os.path.abspath(file), settings)
        step = timed(lambda line: click.echo(line, err=True))
        prepare(step)
        # A sample is small: Java had better compile it quickly than well.
        spark_settings = replace(reaching(settings.spark, options.tables_dir), short=True)
        with session.running(spark_settings, say=step) as spark, interrupts() as stopped:
            trials = Trials(spark, settings, records_max=sample, shown_max=rows, stopped=stopped.is_set)
            try:
                _loop(trials, os.path.abspath(file), runs, step)
            except KeyboardInterrupt:
                click.echo()
            finally:
                trials.close()


def _reach(file: str, settings: "RunSettings") -> None:
    """A broker that is away is reported before Spark starts; what is wrong with the file is for the first run."""
    from headrace.core.errors import HeadraceError
    from headrace.streaming.launching import open_pipeline
    from headrace.streaming.operation import reach_topics

    try:
        _, graph = open_pipeline(file)
    except HeadraceError:
        return
    reach_topics(graph, settings)


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Ctrl-C ends it also while Spark works: Spark's own handler only cancels the jobs, and the call that waited for
    them then fails like any other. The event says that it was Ctrl-C."""
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopped.set()
        logging.disable()  # py4j logs the call that it cuts off, with a traceback
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)


def _loop(trials: "Trials", file: str, runs: int | None, step: Callable[[str], None]) -> None:
    files, done = frozenset({file}), 0
    while True:
        seen = state_of(files)
        files = _once(trials, file, step) | files
        done += 1
        if done == runs:
            return
        click.echo(click.style("save the file to run it again; Ctrl-C ends", dim=True))
        # A module that was imported for the first time counts from now on.
        known = {each[0] for each in seen}
        while [each for each in state_of(files) if each[0] in known] == list(seen):
            time.sleep(LOOK_S)
        step = timed(lambda line: click.echo(line, err=True))


def state_of(files: frozenset[str]) -> State:
    """When each file was saved, and its size; one that is away for a moment, while it is saved, has neither."""
    found = []
    for path in sorted(files):
        try:
            status = os.stat(path)
            found.append((path, status.st_mtime_ns, status.st_size))
        except OSError:
            found.append((path, 0, 0))
    return tuple(found)


def _once(trials: "Trials", file: str, step: Callable[[str], None]) -> frozenset[str]:
    """Runs it; whatever is wrong with it is shown. Gives the files to watch."""
    from headrace.core.errors import HeadraceError
    from headrace.streaming.launching import open_pipeline

    files = frozenset({file})
    try:
        loaded, graph = open_pipeline(file)
        files = loaded.files
        trial = trials.run(loaded, graph, step)
    except HeadraceError as error:
        _clear()
        click.echo(click.style(str(error), fg="red"))
        return files
    _clear()
    show(trial, os.path.basename(file))
    return files


def _clear() -> None:
    if sys.stdout.isatty():
        click.clear()


def show(trial: "Trial", name: str) -> None:
    """The nodes, and under them the line that tells what was run: what is long scrolls away at the top."""
    for node in trial.nodes:
        _show_node(node)
        click.echo()
    read = ", ".join(
        f"{count:,} records of {topic}{_unparsed(trial.unparsed.get(topic, 0))}"
        for topic, count in sorted(trial.records.items())
    )
    failed = sum(1 for node in trial.nodes if node.error)
    wrong = click.style(f"  {failed} of {len(trial.nodes)} nodes gave nothing", fg="red") if failed else ""
    click.echo(click.style(f"{name}  run {trial.number}, {trial.seconds:.1f} s", bold=True) + f"  {read}{wrong}")


def _unparsed(count: int) -> str:
    return click.style(f" ({count:,} could not be parsed)", fg="yellow") if count else ""


def _show_node(node: "Tried") -> None:
    from headrace.cli.columns import show as show_rows

    title = click.style(node.node, bold=True, fg="red" if node.error else "green")
    if node.error:
        click.echo(f"{title}  {node.error}")
        return
    left_out = f", {node.left_out:,} left out by expectations" if node.left_out else ""
    before = click.style("  as before", dim=True) if node.before else ""
    click.echo(f"{title}  {node.rows:,} row{'' if node.rows == 1 else 's'}{left_out}{before}")
    click.echo(click.style("  " + ", ".join(f"{column} {kind}" for column, kind in node.columns), dim=True))
    if node.sample:
        show_rows([column for column, _ in node.columns], [list(row) for row in node.sample])
