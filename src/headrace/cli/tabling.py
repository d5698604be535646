"""What the `headrace table` commands have in common: options, one-line errors, JSON, questions."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from headrace.tables.resolving import Resolver, TableLocation

_Command = TypeVar("_Command", bound=Callable[..., Any])

tables_option = click.option(
    "--tables",
    "tables_dir",
    metavar="DIR",
    envvar="HEADRACE_TABLES",
    default="./headrace-tables",
    show_default=True,
    help="The directory of tables, or s3://BUCKET/PREFIX; also $HEADRACE_TABLES.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
at_option = click.option(
    "--at", metavar="TIME", help="As of a time: 2026-10-05T12:00:00Z, '2026-10-05 12:00' (UTC) or '10 minutes ago'."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
debug_option = click.option("--debug", is_flag=True, envvar="HEADRACE_DEBUG", help="Show tracebacks.")


def common_options(command: _Command) -> _Command:
    """--tables, --json and --debug."""
    for option in (debug_option, json_option, tables_option):
        command = option(command)
    return command


def time_given(at: str | None) -> datetime | None:
    from headrace.core.times import parse_time

    return None if at is None else parse_time(at, datetime.now(UTC))


def resolver_for(tables_dir: str, at: datetime | None = None) -> "Resolver":
    """Says on stderr what the catalogs found odd."""
    from headrace.tables.catalog import pipelines
    from headrace.tables.resolving import Resolver

    resolver = Resolver(tables_dir, at)
    for pipeline in pipelines(tables_dir):
        for warning in resolver.catalog(pipeline).warnings:
            click.echo(f"headrace: warning: {warning}", err=True)
    return resolver


def whose(place: "TableLocation") -> str:
    """`shop v2`, or `-` for a table that no pipeline made."""
    return f"{place.pipeline} v{place.version}" if place.pipeline else "-"


def ask(question: str, yes: bool) -> None:
    """A question before anything is removed."""
    if yes:
        return
    try:
        answer = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        if sys.stdin.isatty():
            raise
        raise click.UsageError("there is no terminal to ask on; add --yes") from None
    if not answer:
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(1)


def print_json(content: object) -> None:
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))


def bytes_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
