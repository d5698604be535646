"""`headrace pipeline cutover | rollback | discard | remove`: the versions of a pipeline. None of them needs Spark."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.pipeline.options import find_catalog, newest_beside
from headrace.cli.pipeline.screen import lag_text
from headrace.cli.tabling import ask, debug_option, tables_option, yes_option

if TYPE_CHECKING:
    from headrace.tables.catalog import PipelineCatalog
    from headrace.tables.versions import Version

STOP_S_MAX = 90.0
LOOK_S = 0.1


keep_option = click.option(
    "--keep-running/--stop-old",
    "keep",
    default=False,
    show_default=True,
    help="Let the run of the version that was live go on, for a quick way back; or stop it.",
)


@click.command(short_help="Make the new version live, in one step.")
@click.argument("pipeline", required=False)
@click.option("--version", "number", type=click.IntRange(1), help="Which version.  [default: the newest]")
@click.option("--force", is_flag=True, help="Make the version live even if it has not caught up with the log.")
@keep_option
@yes_option
@tables_option
@debug_option
def cutover(
    pipeline: str | None, number: int | None, force: bool, keep: bool, yes: bool, tables_dir: str, debug: bool
) -> None:
    """Readers of the tables' names and stable paths see the new version from one moment on, all tables at once. A run
    of the old version is stopped, or goes on with --keep-running; one of the new version goes on."""
    with one_line_errors(debug):
        from headrace.core.errors import OperatorError

        catalog = find_catalog(pipeline, tables_dir)
        version = catalog.version(number) if number is not None else newest_beside(catalog)
        behind = _behind(catalog, version)
        if behind is not None:
            if not force:
                raise OperatorError(
                    f"{catalog.pipeline}: version {version.number} has not caught up with the log ({behind}); let it "
                    f"run until status says that it has, or make it live as it is with --force"
                )
            ask(f"{catalog.pipeline} version {version.number} has not caught up ({behind}). Make it live?", yes)
        _move(catalog, lambda: catalog.cut_over(version.number), keep, tables_dir)


@click.command(short_help="Make the version before live again.")
@click.argument("pipeline", required=False)
@keep_option
@tables_option
@debug_option
def rollback(pipeline: str | None, keep: bool, tables_dir: str, debug: bool) -> None:
    """Back to the version that was live before. Running it again catches up from its own checkpoint."""
    with one_line_errors(debug):
        catalog = find_catalog(pipeline, tables_dir)
        _move(catalog, catalog.roll_back, keep, tables_dir)


def _move(catalog: "PipelineCatalog", move: "Callable[[], Version]", keep: bool, tables_dir: str) -> None:
    """Makes another version live; says what becomes of the runs of both."""
    from headrace.streaming.launching import is_running, keep_running

    before = catalog.live
    ran = before is not None and is_running(catalog, before.number)
    if before is not None:
        keep_running(catalog, before.number, keep)
    made = move()
    _say_live(catalog, made)
    if not is_running(catalog, made.number):
        again = f"headrace pipeline run {catalog.pipeline} --tables {tables_dir}"
        click.echo(f"version {made.number} does not run; it catches up when it does: {again}")
    if before is not None and before.number != made.number:
        _say_old(catalog, before.number, ran, keep)


def _say_old(catalog: "PipelineCatalog", number: int, ran: bool, keep: bool) -> None:
    from headrace.streaming.launching import is_running

    name = catalog.pipeline
    if not ran:
        click.echo(f"version {number} does not run; its tables stay as they are until it is rolled back to and run")
        return
    if keep:
        click.echo(
            f"version {number} goes on running beside it, so that a rollback finds it up to date; "
            f"stop it with: headrace pipeline stop {name} --version {number}"
        )
        return
    deadline = time.monotonic() + STOP_S_MAX
    while is_running(catalog, number) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    if is_running(catalog, number):
        click.echo(
            f"version {number} was told to stop and still runs; end it with: "
            f"headrace pipeline stop {name} --version {number}"
        )
    else:
        click.echo(f"version {number} was stopped; after a rollback, run it again")


@click.command(short_help="Remove a version that is not live.")
@click.argument("pipeline", required=False)
@click.option("--version", "number", type=click.IntRange(1), help="Which version.  [default: the newest]")
@yes_option
@tables_option
@debug_option
def discard(pipeline: str | None, number: int | None, yes: bool, tables_dir: str, debug: bool) -> None:
    """Removes the tables, checkpoints and quarantine of a version for good. The live one is refused."""
    with one_line_errors(debug):
        from headrace.core.errors import OperatorError
        from headrace.streaming.launching import is_running

        catalog = find_catalog(pipeline, tables_dir)
        version = catalog.version(number) if number is not None else newest_beside(catalog)
        if is_running(catalog, version.number):
            raise OperatorError(
                f"{catalog.pipeline}: version {version.number} is running; stop it first: "
                f"headrace pipeline stop {catalog.pipeline} --version {version.number}"
            )
        ask(f"Remove version {version.number} of {catalog.pipeline}, its tables and checkpoints, for good?", yes)
        topics = _topics(catalog, version)
        catalog.discard(version.number)
        click.echo(f"{catalog.pipeline} version {version.number}: removed")
        for topic in topics:
            click.echo(f"its topic {topic} is still there")


@click.command(short_help="End a pipeline for good.")
@click.argument("pipeline", required=False)
@yes_option
@tables_option
@debug_option
def remove(pipeline: str | None, yes: bool, tables_dir: str, debug: bool) -> None:
    """Removes a pipeline: every version with its tables, checkpoints and quarantine, and its names in the directory of
    tables. The topics that it wrote stay."""
    with one_line_errors(debug):
        from headrace.core.errors import OperatorError
        from headrace.streaming.launching import is_running

        catalog = find_catalog(pipeline, tables_dir)
        kept = [version for version in catalog.versions if version.state != "discarded"]
        running = [version.number for version in kept if is_running(catalog, version.number)]
        if running:
            raise OperatorError(
                f"{catalog.pipeline}: version {running[0]} is running; stop it first: "
                f"headrace pipeline stop {catalog.pipeline}"
            )
        tables = sorted({table for version in kept for table in version.tables})
        versions = f"{len(kept)} version{'' if len(kept) == 1 else 's'}"
        ask(f"Remove {catalog.pipeline} for good: {versions}, tables {', '.join(tables) or 'none'}?", yes)
        topics = sorted({topic for version in kept for topic in _topics(catalog, version)})
        catalog.remove()
        click.echo(f"{catalog.pipeline}: removed")
        for topic in topics:
            click.echo(f"its topic {topic} is still there")


def _behind(catalog: "PipelineCatalog", version: "Version") -> str | None:
    """Why a version is not ready to be live; None if it is."""
    from headrace.streaming.progress import read_progress

    progress = read_progress(catalog.layout.run_file(version.number))
    if progress is None:
        return "it never ran"
    if progress.only:
        return f"its last run was of {', '.join(progress.only)} only"
    if progress.caught_up or progress.status == "finished":
        return None
    failed = [node.name for node in progress.nodes.values() if node.status == "failed"]
    if failed:
        return f"{', '.join(failed)} failed"
    waiting = [f"{node.name} {lag_text(node)}".strip() for node in progress.nodes.values() if node.lag != 0]
    return f"behind: {', '.join(waiting)}" if waiting else f"its run was {progress.status}"


def _topics(catalog: "PipelineCatalog", version: "Version") -> list[str]:
    from headrace.streaming.progress import read_progress

    progress = read_progress(catalog.layout.run_file(version.number))
    return [node.topic for node in progress.nodes.values() if node.topic is not None] if progress is not None else []


def _say_live(catalog: "PipelineCatalog", version: "Version") -> None:
    click.echo(f"{catalog.pipeline}: version {version.number} is live; its tables: {', '.join(version.tables)}")
    for topic in _topics(catalog, version):
        click.echo(f"live topic: {topic}")
