"""`headrace table diff NAME V1 V2`: what changed between two versions of a table."""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.tabling import common_options, print_json, resolver_for

if TYPE_CHECKING:
    from headrace.tables.compare import Comparison, Sample

SAMPLES_SHOWN_DEFAULT = 5


@click.command(short_help="What changed between two versions.")
@click.argument("name")
@click.argument("v1", type=click.IntRange(0))
@click.argument("v2", type=click.IntRange(0))
@click.option(
    "--key",
    metavar="COLUMNS",
    default="",
    help="Columns that identify a row, separated by commas; shows which rows differ.",
)
@click.option("--ignore", metavar="COLUMNS", default="", help="Columns to leave out of the comparison.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=0.0,
    help="Relative tolerance within which floating-point values are equal.",
)
@click.option(
    "--samples",
    type=click.IntRange(0),
    default=SAMPLES_SHOWN_DEFAULT,
    show_default=True,
    help="Rows shown of each kind.",
)
@common_options
def diff(
    name: str,
    v1: int,
    v2: int,
    key: str,
    ignore: str,
    tolerance: float,
    samples: int,
    tables_dir: str,
    as_json: bool,
    debug: bool,
) -> None:
    """Rows only in Delta version V1, only in V2, and (with --key) differing.

    Ends with 0 also when they differ; --json tells programs what was found.
    """
    with one_line_errors(debug):
        from headrace.tables.compare import compare

        place = resolver_for(tables_dir).resolve(name)
        comparison = compare(
            place.path,
            place.path,
            split_columns(key),
            name=name,
            version_a=v1,
            version_b=v2,
            tolerance=tolerance,
            ignore=split_columns(ignore),
            samples_max=samples,
        )
        if as_json:
            print_json({"name": name, **comparison_json(comparison)})
        else:
            print_comparison(comparison, f"version {v1}", f"version {v2}", keyed=bool(key))


def split_columns(text: str) -> list[str]:
    return [column.strip() for column in text.split(",") if column.strip()]


def print_comparison(comparison: "Comparison", name_a: str, name_b: str, *, keyed: bool) -> None:
    from headrace.cli.columns import show

    counts = [
        ("same", comparison.same),
        *([("differing", comparison.differing)] if keyed else []),
        (f"only in {name_a}", comparison.only_a),
        (f"only in {name_b}", comparison.only_b),
        *([("lag", comparison.lag)] if comparison.lag else []),
    ]
    width = max(len(label) for label, _ in counts)
    for label, count in counts:
        click.echo(f"{label:<{width}}  {count:>12,}")
    for side, columns in ((name_a, comparison.columns_only_a), (name_b, comparison.columns_only_b)):
        if columns:
            click.echo(f"columns only in {side}, not compared: {', '.join(columns)}")
    rows: list[list[str | None]] = []
    for sample in comparison.samples:
        rows += _sample_rows(sample, comparison.columns, name_a, name_b)
    if rows:
        click.echo()
        show(["", *comparison.columns], rows)


def _sample_rows(sample: "Sample", columns: tuple[str, ...], name_a: str, name_b: str) -> list[list[str | None]]:
    """A row that is only in one side is one line; one that differs is two, with a mark at what changed."""
    lines: list[list[str | None]] = []
    for mark, name, row in (("-", name_a, sample.a), ("+", name_b, sample.b)):
        if row is None:
            continue
        values = [_marked(row[column], column in sample.changed) for column in columns]
        lines.append([f"{'~' if sample.kind == 'differing' else mark} {name}", *values])
    return lines


def _marked(value: str | None, changed: bool) -> str | None:
    return f"*{'null' if value is None else value}" if changed else value


def comparison_json(comparison: "Comparison") -> dict[str, Any]:
    return {
        "equal": comparison.equal,
        "same": comparison.same,
        "differing": comparison.differing,
        "only_a": comparison.only_a,
        "only_b": comparison.only_b,
        "lag": comparison.lag,
        "version_a": comparison.version_a,
        "version_b": comparison.version_b,
        "columns_only_a": list(comparison.columns_only_a),
        "columns_only_b": list(comparison.columns_only_b),
        "samples": [
            {"kind": each.kind, "a": each.a, "b": each.b, "changed": list(each.changed)} for each in comparison.samples
        ],
    }
