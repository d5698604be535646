"""`headrace table restore | vacuum | optimize`: what changes a table, with a question before it does."""

from typing import TYPE_CHECKING

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.tabling import ask, common_options, print_json, resolver_for, yes_option

if TYPE_CHECKING:
    from headrace.tables.resolving import TableLocation

FILES_SHOWN_MAX = 10


def _belongs(place: "TableLocation") -> str:
    return f" It belongs to pipeline {place.pipeline}, which may be writing it now." if place.pipeline else ""


def _unused(tables_dir: str, name: str) -> "TableLocation":
    """The table, unless it lies in an object store and is being written: there Spark does not see a commit that comes
    between its own look and its own commit."""
    resolver = resolver_for(tables_dir)
    place = resolver.resolve(name)
    if "://" not in place.path or place.pipeline is None or place.version is None:
        return place
    from headrace.core.errors import OperatorError
    from headrace.streaming.launching import is_running

    if is_running(resolver.catalog(place.pipeline), place.version):
        raise OperatorError(
            f"{place.name}: version {place.version} of pipeline {place.pipeline} is writing it, and it lies in an "
            f"object store; stop it first: headrace pipeline stop {place.pipeline}"
        )
    return place


@click.command(short_help="Set a table back to an earlier version.")
@click.argument("name")
@click.argument("version", type=click.IntRange(0))
@yes_option
@common_options
def restore(name: str, version: int, yes: bool, tables_dir: str, as_json: bool, debug: bool) -> None:
    """Make the table what it was at Delta version VERSION, as a new commit on top.

    Nothing is lost: the versions between stay in the history until they are vacuumed. A node that reads the table as a
    stream stops at a commit that removes rows, unless it was told to ignore such.
    """
    with one_line_errors(debug):
        from headrace.tables.reading import open_snapshot
        from headrace.tables.upkeep import restore as restore_table

        place = _unused(tables_dir, name)
        now = open_snapshot(place.path, name=name).version
        open_snapshot(place.path, name=name, version=version)  # refuses before it asks
        ask(f"Restore {name} from version {now} to what it was at version {version}?{_belongs(place)}", yes)
        metrics = restore_table(place.path, name, version)
        after = open_snapshot(place.path, name=name).version
        if as_json:
            print_json({"name": name, "restored": version, "version": after, "metrics": dict(metrics)})
        else:
            click.echo(f"{name}: version {after} is what version {version} was")


@click.command(short_help="Remove files that only old versions need.")
@click.argument("name")
@click.option(
    "--retention-hours",
    type=click.FloatRange(0),
    metavar="H",
    help="Keep what versions younger than this need.  [default: the table's own setting, else 168]",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@yes_option
@common_options
def vacuum(
    name: str,
    retention_hours: float | None,
    dry_run: bool,
    yes: bool,
    tables_dir: str,
    as_json: bool,
    debug: bool,
) -> None:
    """Remove data files that no version within the retention needs.

    Older versions can then no longer be queried, compared or restored, and a node that lags behind them stops.
    """
    with one_line_errors(debug):
        from headrace.tables.upkeep import vacuum as vacuum_table

        place = _unused(tables_dir, name)
        found = vacuum_table(place.path, name, retention_hours=retention_hours, dry_run=True)
        hours = f"{found.retention_hours:g} hours"
        count = f"{len(found.files):,} file{'' if len(found.files) == 1 else 's'}"
        if not dry_run and found.files:
            ask(f"Remove {count} of {name} that only versions older than {hours} need?{_belongs(place)}", yes)
            found = vacuum_table(place.path, name, retention_hours=retention_hours, dry_run=False)
            count = f"{len(found.files):,} file{'' if len(found.files) == 1 else 's'}"
        if as_json:
            print_json(
                {
                    "name": name,
                    "dry_run": dry_run,
                    "retention_hours": found.retention_hours,
                    "files": list(found.files),
                }
            )
            return
        if not found.files:
            click.echo(f"{name}: nothing to remove that is older than {hours}")
        elif dry_run:
            click.echo(f"{name}: {count} would be removed")
            for path in found.files[:FILES_SHOWN_MAX]:
                click.echo(f"  {path}")
            if len(found.files) > FILES_SHOWN_MAX:
                click.echo(f"  … and {len(found.files) - FILES_SHOWN_MAX:,} more; --json lists all")
        else:
            click.echo(f"{name}: {count} removed")


@click.command(short_help="Rewrite small files as few large ones.")
@click.argument("name")
@click.option("--zorder", metavar="COLUMNS", default="", help="Columns to sort by, separated by commas.")
@common_options
def optimize(name: str, zorder: str, tables_dir: str, as_json: bool, debug: bool) -> None:
    """Rewrite many small files as few large ones. No row changes, so nothing is asked."""
    with one_line_errors(debug):
        from headrace.tables.upkeep import optimize as optimize_table

        place = _unused(tables_dir, name)
        columns = [column.strip() for column in zorder.split(",") if column.strip()]
        metrics = optimize_table(place.path, name, zorder=columns)
        added, removed = metrics.get("numFilesAdded", 0), metrics.get("numFilesRemoved", 0)
        if as_json:
            print_json({"name": name, "metrics": dict(metrics)})
        elif not removed:
            click.echo(f"{name}: nothing to do, its files are few or large enough")
        else:
            click.echo(f"{name}: {removed:,} files became {added:,}")
