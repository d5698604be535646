"""`headrace table list` and `headrace table show NAME`."""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.tabling import bytes_text, common_options, print_json, resolver_for, whose

if TYPE_CHECKING:
    from headrace.tables.describing import Description, ListedTable


@click.command("list", short_help="All tables of the directory.")
@common_options
def list_command(tables_dir: str, as_json: bool, debug: bool) -> None:
    """All tables of the directory: of pipelines, quarantines, and plain Delta directories."""
    with one_line_errors(debug):
        import os

        from headrace.cli.columns import show
        from headrace.core.errors import OperatorError
        from headrace.tables.describing import list_tables

        if "://" not in tables_dir and not os.path.isdir(tables_dir):
            raise OperatorError(f"{tables_dir}: no such directory; give --tables DIR or set HEADRACE_TABLES")
        listed = list_tables(resolver_for(tables_dir))
        if as_json:
            print_json([_listed_json(each) for each in listed])
            return
        if not listed:
            click.echo(f"no tables in {tables_dir}")
            return
        show(
            ["table", "pipeline", "version", "rows", "files", "size"],
            [_listed_row(each) for each in listed],
            right=[False, False, True, True, True, True],
        )


def _listed_row(listed: "ListedTable") -> list[str | None]:
    if listed.size is None:
        return [listed.place.name, whose(listed.place), listed.problem, "", "", ""]
    rows = "?" if listed.size.rows is None else f"{listed.size.rows:,}"
    return [
        listed.place.name,
        whose(listed.place),
        str(listed.version),
        rows,
        f"{listed.size.files:,}",
        bytes_text(listed.size.bytes),
    ]


def _listed_json(listed: "ListedTable") -> dict[str, Any]:
    size = listed.size
    return {
        "name": listed.place.name,
        "path": listed.place.path,
        "kind": listed.place.kind,
        "pipeline": listed.place.pipeline,
        "pipeline_version": listed.place.version,
        "version": listed.version,
        "rows": size.rows if size else None,
        "files": size.files if size else None,
        "bytes": size.bytes if size else None,
        "problem": listed.problem or None,
    }


@click.command("show", short_help="Schema, size, properties, quarantine.")
@click.argument("name")
@common_options
def show_command(name: str, tables_dir: str, as_json: bool, debug: bool) -> None:
    """A table's schema, partitions, size and properties, its pipeline, and what was quarantined."""
    with one_line_errors(debug):
        from headrace.tables.describing import describe

        description = describe(resolver_for(tables_dir), name)
        if as_json:
            print_json(_description_json(description))
        else:
            _print_description(description)


def _print_description(description: "Description") -> None:
    from headrace.cli.columns import show

    place, size = description.place, description.size
    partitions = ", ".join(column.name for column in description.columns if column.partition)
    facts = [
        ("path", description.stable_path),
        ("directory", place.path if place.path != description.stable_path else ""),
        ("pipeline", f"{place.pipeline}, version {place.version} is live" if place.pipeline else ""),
        ("version", str(description.version)),
        ("rows", f"{size.rows:,}" if size.rows is not None else "?"),
        ("size", f"{bytes_text(size.bytes)} in {size.files:,} file{'' if size.files == 1 else 's'}"),
        ("partitions", partitions),
        ("quarantine", _quarantine_text(description)),
    ]
    click.secho(place.name, bold=True)
    for label, text in facts:
        if text:
            click.echo(f"  {label:<11} {text}")
    click.echo()
    show(
        ["column", "type", "null"],
        [[column.name, column.type, "yes" if column.nullable else "no"] for column in description.columns],
        indent="  ",
    )
    if description.properties:
        click.echo()
        show(["property", "value"], [list(pair) for pair in description.properties.items()], indent="  ")
    if description.expectations:
        click.echo()
        rows = [
            [each.name, each.action, f"{each.failed:,}", f"{each.rows:,}", _batch_text(each.batch_last_failed)]
            for each in description.expectations
        ]
        show(
            ["expectation", "action", "failed", "of rows", "last in batch"],
            rows,
            right=[False, False, True, True, True],
            indent="  ",
        )


def _quarantine_text(description: "Description") -> str:
    if description.quarantined is None:
        return ""
    return f"{description.quarantined:,} rows; see: headrace table query 'from _quarantine.{description.place.node}'"


def _batch_text(batch: int | None) -> str:
    return "-" if batch is None else str(batch)


def _description_json(description: "Description") -> dict[str, Any]:
    return {
        "name": description.place.name,
        "path": description.stable_path,
        "directory": description.place.path,
        "kind": description.place.kind,
        "pipeline": description.place.pipeline,
        "live_version": description.live_version,
        "version": description.version,
        "rows": description.size.rows,
        "files": description.size.files,
        "bytes": description.size.bytes,
        "partitions": [column.name for column in description.columns if column.partition],
        "columns": [
            {"name": column.name, "type": column.type, "nullable": column.nullable} for column in description.columns
        ],
        "properties": dict(description.properties),
        "quarantined": description.quarantined,
        "expectations": [
            {
                "name": each.name,
                "action": each.action,
                "failed": each.failed,
                "rows": each.rows,
                "batch_last_failed": each.batch_last_failed,
            }
            for each in description.expectations
        ],
    }
