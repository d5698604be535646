"""`headrace pipeline status` and `stop`: what runs, how it goes, and its end. Neither needs Spark."""

import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.pipeline.options import find_catalog
from headrace.cli.tabling import common_options, debug_option, print_json, tables_option

if TYPE_CHECKING:
    from headrace.tables.catalog import PipelineCatalog
    from headrace.tables.versions import Version

STOP_S_MAX = 90.0


@click.command(short_help="What runs, and how it goes.")
@click.argument("pipeline", required=False)
@common_options
def status(pipeline: str | None, tables_dir: str, as_json: bool, debug: bool) -> None:
    """Versions of a pipeline (or of all), which is live, and how the nodes of each run are doing."""
    with one_line_errors(debug):
        from headrace.tables.catalog import PipelineCatalog, pipelines

        if pipeline is None:
            catalogs = [PipelineCatalog.open(tables_dir, name) for name in pipelines(tables_dir)]
        else:
            catalogs = [find_catalog(pipeline, tables_dir)]
        if as_json:
            print_json([_json(catalog) for catalog in catalogs])
            return
        if not catalogs:
            click.echo(f"{tables_dir}: no pipeline has run here yet")
        for catalog in catalogs:
            _show(catalog)


@click.command(short_help="Stop a run cleanly.")
@click.argument("pipeline", required=False)
@click.option("--version", "number", type=click.IntRange(1), help="The run of this version.  [default: every run]")
@tables_option
@debug_option
def stop(pipeline: str | None, number: int | None, tables_dir: str, debug: bool) -> None:
    """Stops the runs of a pipeline and waits until they have ended. What was written stays; the next run goes on."""
    with one_line_errors(debug):
        from headrace.core.errors import OperatorError
        from headrace.streaming.launching import is_running
        from headrace.streaming.progress import read_progress

        catalog = find_catalog(pipeline, tables_dir)
        numbers = [number] if number is not None else [version.number for version in catalog.versions]
        stopped = 0
        for each in numbers:
            if not is_running(catalog, each):
                continue
            progress = read_progress(catalog.layout.run_file(each))
            if progress is None:
                raise OperatorError(f"{catalog.pipeline}: version {each} is just starting; try again in a moment")
            if progress.host != socket.gethostname():
                raise OperatorError(
                    f"{catalog.pipeline}: version {each} is run by process {progress.pid} on {progress.host}; "
                    f"stop it there"
                )
            with suppress(ProcessLookupError):
                os.kill(progress.pid, signal.SIGTERM)
            deadline = time.monotonic() + STOP_S_MAX
            while is_running(catalog, each):
                if time.monotonic() > deadline:
                    raise OperatorError(
                        f"{catalog.pipeline}: process {progress.pid} has not ended within {STOP_S_MAX:g} s; "
                        f"kill it: nothing is lost or doubled by that"
                    )
                time.sleep(0.1)
            stopped += 1
            click.echo(f"{catalog.pipeline} version {each}: stopped")
        if not stopped:
            click.echo(f"{catalog.pipeline}: nothing runs")


def _json(catalog: "PipelineCatalog") -> dict[str, Any]:
    from headrace.streaming.launching import is_running
    from headrace.streaming.progress import read_progress
    from headrace.tables.versions import time_text

    versions = []
    for version in catalog.versions:
        progress = read_progress(catalog.layout.run_file(version.number))
        versions.append(
            {
                "version": version.number,
                "state": version.state,
                "created_at": time_text(version.created_at),
                "taken": dict(version.taken),
                "running": is_running(catalog, version.number),
                "run": asdict(progress) if progress is not None else None,
            }
        )
    return {"pipeline": catalog.pipeline, "live": catalog.live.number if catalog.live else None, "versions": versions}


def _show(catalog: "PipelineCatalog") -> None:
    for version in catalog.versions:
        if version.state != "discarded":
            _show_version(catalog, version)


def _show_version(catalog: "PipelineCatalog", version: "Version") -> None:
    from headrace.cli.pipeline.view import node_line
    from headrace.streaming.launching import is_running
    from headrace.streaming.progress import read_progress

    progress = read_progress(catalog.layout.run_file(version.number))
    running = is_running(catalog, version.number)
    if running:
        how = f"running (process {progress.pid})" if progress is not None else "starting"
    else:
        how = f"not running, {progress.status} {progress.updated_at}" if progress is not None else "never ran"
        if progress is not None and progress.status in ("running", "starting"):
            how = f"not running, killed after {progress.updated_at}"
    caught_up = ", caught up" if progress is not None and progress.replay and progress.caught_up else ""
    click.echo(f"{catalog.pipeline} version {version.number}: {version.state}, {how}{caught_up}")
    for owner in sorted(set(version.taken.values())):
        nodes = sorted(node for node, each in version.taken.items() if each == owner)
        click.echo(f"  taken over from version {owner}: {', '.join(nodes)}")
    for node in progress.nodes.values() if progress is not None else ():
        click.echo(f"  {node_line(node)}")
        if node.topic is not None:
            word = "live topic" if version.state == "live" else "topic"
            click.echo(f"    {word}: {node.topic}")
