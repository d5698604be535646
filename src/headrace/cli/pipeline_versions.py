"""`headrace pipeline compare | cutover | rollback | discard`: the versions of a pipeline. None of them needs Spark."""

from typing import TYPE_CHECKING

import click

from headrace.cli.pipeline_screen import lag_text
from headrace.cli.pipelining import find_catalog
from headrace.cli.table_diff import comparison_json, print_comparison, split_columns
from headrace.cli.tabling import (
    ask,
    common_options,
    debug_option,
    one_line_errors,
    print_json,
    tables_option,
    yes_option,
)

if TYPE_CHECKING:
    from headrace.tables.catalog import Catalog
    from headrace.tables.versions import Version

SAMPLES_SHOWN_DEFAULT = 5
TOLERANCE_DEFAULT = 1e-9  # sums are added up in another order, and differ in their last digits


@click.command(short_help="What differs between two versions.")
@click.argument("pipeline", required=False)
@click.option("--table", "tables", multiple=True, metavar="NAME", help="Only this table; may be given several times.")
@click.option("--old", type=click.IntRange(1), metavar="N", help="The one version.  [default: the live one]")
@click.option("--new", type=click.IntRange(1), metavar="N", help="The other version.  [default: the newest]")
@click.option("--key", metavar="COLUMNS", default="", help="Columns that name a row.  [default: as declared]")
@click.option("--ignore", metavar="COLUMNS", default="", help="Columns that are not compared.")
@click.option("--tolerance", type=click.FloatRange(0), default=TOLERANCE_DEFAULT, show_default=True,
              help="Relative; floating-point values this near are the same.")  # fmt: skip
@click.option("--samples", type=click.IntRange(0), default=SAMPLES_SHOWN_DEFAULT, show_default=True,
              help="Rows shown of each kind.")  # fmt: skip
@common_options
def compare(
    pipeline: str | None,
    tables: tuple[str, ...],
    old: int | None,
    new: int | None,
    key: str,
    ignore: str,
    tolerance: float,
    samples: int,
    tables_dir: str,
    as_json: bool,
    debug: bool,
) -> None:
    """Each table of the live version beside the same table of the newest: rows only in old, only in new, differing."""
    with one_line_errors(debug):
        from headrace.tables import compare as comparing

        catalog = find_catalog(pipeline, tables_dir)
        one, other = _pair(catalog, old, new)
        keys = _keys(catalog, other)
        results = {}
        for table in tables or [name for name in other.tables if name in one.tables]:
            by = split_columns(key) or keys.get(table, [])
            comparison = comparing.compare(
                catalog.layout.table_dir(one.number, table),
                catalog.layout.table_dir(other.number, table),
                by,
                name=table,
                tolerance=tolerance,
                ignore=split_columns(ignore),
                samples_max=samples,
            )
            results[table] = comparison_json(comparison)
            if not as_json:
                by_text = f" by {', '.join(by)}" if by else ""
                click.echo(f"{table}{by_text}: version {one.number} and version {other.number}")
                print_comparison(comparison, f"version {one.number}", f"version {other.number}", keyed=bool(by))
                click.echo()
        if as_json:
            print_json({"old": one.number, "new": other.number, "tables": results})
            return
        for side, names in ((one, set(one.tables) - set(other.tables)), (other, set(other.tables) - set(one.tables))):
            if names:
                click.echo(f"only in version {side.number}: {', '.join(sorted(names))}")


@click.command(short_help="Make the new version live, in one step.")
@click.argument("pipeline", required=False)
@click.option("--version", "number", type=click.IntRange(1), help="Which version.  [default: the newest]")
@click.option("--force", is_flag=True, help="Make the version live even if it has not caught up with the log.")
@yes_option
@tables_option
@debug_option
def cutover(pipeline: str | None, number: int | None, force: bool, yes: bool, tables_dir: str, debug: bool) -> None:
    """Readers of the tables' names and stable paths see the new version from one moment on, all tables at once. A run
    of the old version ends by itself; one of the new version goes on."""
    with one_line_errors(debug):
        from headrace.core.errors import OperatorError
        from headrace.streaming.launching import is_running

        catalog = find_catalog(pipeline, tables_dir)
        version = catalog.version(number) if number is not None else _newest(catalog)
        behind = _behind(catalog, version)
        if behind is not None:
            if not force:
                raise OperatorError(
                    f"{catalog.pipeline}: version {version.number} has not caught up with the log ({behind}); let it "
                    f"run until status says that it has, or make it live as it is with --force"
                )
            ask(f"{catalog.pipeline} version {version.number} has not caught up ({behind}). Make it live?", yes)
        before = catalog.live
        made = catalog.cut_over(version.number)
        _say_live(catalog, made)
        if before is not None and before.number != made.number and is_running(catalog, before.number):
            click.echo(f"the run of version {before.number} ends by itself; after a rollback, run it again")


@click.command(short_help="Make the version before live again.")
@click.argument("pipeline", required=False)
@tables_option
@debug_option
def rollback(pipeline: str | None, tables_dir: str, debug: bool) -> None:
    """Back to the version that was live before. Running it again catches up from its own checkpoint."""
    with one_line_errors(debug):
        from headrace.streaming.launching import is_running

        catalog = find_catalog(pipeline, tables_dir)
        made = catalog.roll_back()
        _say_live(catalog, made)
        if not is_running(catalog, made.number):
            click.echo(f"it catches up when it runs: headrace pipeline run {catalog.pipeline} --tables {tables_dir}")


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
        version = catalog.version(number) if number is not None else _newest(catalog)
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


def _pair(catalog: "Catalog", old: int | None, new: int | None) -> "tuple[Version, Version]":
    from headrace.core.errors import OperatorError

    one = catalog.version(old) if old is not None else catalog.live
    if one is None:
        raise OperatorError(f"{catalog.pipeline}: nothing is live yet")
    other = catalog.version(new) if new is not None else _newest(catalog)
    return one, other


def _newest(catalog: "Catalog") -> "Version":
    """The newest that is not live."""
    from headrace.core.errors import OperatorError

    found = [version for version in catalog.versions if version.state in ("building", "retired")]
    if not found:
        raise OperatorError(f"{catalog.pipeline}: has no version beside the live one; build one with replay")
    return max(found, key=lambda version: version.number)


def _behind(catalog: "Catalog", version: "Version") -> str | None:
    """Why a version is not ready to be live; None if it is."""
    from headrace.streaming.progress import read_progress

    progress = read_progress(catalog.layout.run_file(version.number))
    if progress is None:
        return "it never ran"
    if progress.caught_up or progress.status == "finished":
        return None
    failed = [node.name for node in progress.nodes.values() if node.status == "failed"]
    if failed:
        return f"{', '.join(failed)} failed"
    waiting = [f"{node.name} {lag_text(node)}".strip() for node in progress.nodes.values() if node.lag != 0]
    return f"behind: {', '.join(waiting)}" if waiting else f"its run was {progress.status}"


def _keys(catalog: "Catalog", version: "Version") -> dict[str, list[str]]:
    from headrace.streaming.progress import read_progress

    progress = read_progress(catalog.layout.run_file(version.number))
    nodes = progress.nodes.values() if progress is not None else ()
    return {node.table: node.key for node in nodes if node.table is not None and node.key}


def _topics(catalog: "Catalog", version: "Version") -> list[str]:
    from headrace.streaming.progress import read_progress

    progress = read_progress(catalog.layout.run_file(version.number))
    return [node.topic for node in progress.nodes.values() if node.topic is not None] if progress is not None else []


def _say_live(catalog: "Catalog", version: "Version") -> None:
    click.echo(f"{catalog.pipeline}: version {version.number} is live; its tables: {', '.join(version.tables)}")
    for topic in _topics(catalog, version):
        click.echo(f"live topic: {topic}")
