"""`headrace table query "select …"`: SQL over Delta tables, in a fraction of a second."""

import csv
import sys
from typing import TYPE_CHECKING

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.tabling import at_option, common_options, time_given

if TYPE_CHECKING:
    from headrace.tables.query import Query

ROWS_SHOWN_DEFAULT = 100
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "UINTEGER", "UBIGINT")


@click.command(short_help="Run a SQL query over the tables.")
@click.argument("sql")
@click.option("--version", metavar="N", type=click.IntRange(0), help="The table as of its Delta version N.")
@at_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0),
    help=f"At most N rows; 0 for all.  [default: {ROWS_SHOWN_DEFAULT}; all with --json and --csv]",
)
@common_options
def query(
    sql: str,
    version: int | None,
    at: str | None,
    as_csv: bool,
    limit: int | None,
    tables_dir: str,
    as_json: bool,
    debug: bool,
) -> None:
    """Run a SQL query (DuckDB's dialect) over the tables that it names.

    \b
    headrace table query "select customer, sum(amount) from orders group by all"
    headrace table query "from orders" --at "10 minutes ago"
    headrace table query 'from orders except from "orders@v3"'
    headrace table query "from _quarantine.orders"

    With --at, the tables are those of the version of the pipeline that was live then. Times are in UTC.
    """
    if version is not None and at is not None:
        raise click.UsageError("--version and --at exclude each other; give one")
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other; give one")
    with one_line_errors(debug):
        from headrace.tables.query import prepared

        if sql == "-":
            sql = sys.stdin.read()
        with prepared(tables_dir, sql, version=version, at=time_given(at)) as ready:
            if as_json:
                _print_json(ready, limit or None)
            elif as_csv:
                _print_csv(ready, limit or None)
            else:
                _print_table(ready, ROWS_SHOWN_DEFAULT if limit is None else limit or None)


def _print_json(ready: "Query", rows_max: int | None) -> None:
    """One array, one row per line, so that it can be read as a whole or line by line."""
    write, separator = sys.stdout.write, "[\n"
    for row in ready.json_rows(rows_max):
        write(separator + row)
        separator = ",\n"
    write("[]\n" if separator == "[\n" else "\n]\n")
    sys.stdout.flush()


def _print_csv(ready: "Query", rows_max: int | None) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(ready.columns)
    writer.writerows(ready.texts(rows_max))
    sys.stdout.flush()


def _print_table(ready: "Query", rows_max: int | None) -> None:
    from headrace.cli.columns import show

    if ready.explain:
        for _, text in ready.texts():
            click.echo(text)
        return
    rows = list(ready.texts(None if rows_max is None else rows_max + 1))  # one more tells whether there are more
    show(ready.columns, rows[:rows_max], right=[kind.startswith(_NUMBERS) for kind in ready.types])
    if rows_max is not None and len(rows) > rows_max:
        click.echo(f"the first {rows_max:,} rows; --limit 0 shows all", err=True)
    elif not rows:
        click.echo("no rows", err=True)
