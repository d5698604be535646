"""`headrace pipeline compare`: two versions of a pipeline, table by table, at one position of the log. No Spark.

Ends with 0 when they are equal and with 3 when they differ; what one of them has only not read yet is lag.
"""

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.pipeline.options import find_catalog, newest_beside
from headrace.cli.table.diff import comparison_json, print_comparison, split_columns
from headrace.cli.tabling import common_options, print_json

if TYPE_CHECKING:
    from headrace.tables.catalog import PipelineCatalog
    from headrace.tables.compare import Comparison
    from headrace.tables.positions import Pair, Positions, Stand
    from headrace.tables.versions import Version

DIFFERENT = 3
SAMPLES_SHOWN_DEFAULT = 5
TOLERANCE_DEFAULT = 1e-9  # sums are added up in another order, and differ in their last digits
LOOK_S = 0.5
KINDS = ("only-old", "only-new", "differing", "columns", "tables", "lag")
ANY = frozenset(KINDS) - {"lag"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One table; `pair` says at which position, None where the tables' histories do not tell."""

    comparison: "Comparison"
    key: list[str]
    pair: "Pair | None"
    ahead_old: int
    ahead_new: int

    @property
    def doubtful(self) -> bool:
        """Whether what is different may only be lag."""
        found = self.comparison
        return found.doubtful and bool(found.only_a or found.only_b or found.differing)

    def kinds(self) -> set[str]:
        """What is different in it, as --fail-on names it."""
        found = self.comparison
        there = {
            "only-old": found.only_a,
            "only-new": found.only_b,
            "differing": found.differing,
            "columns": found.columns_only_a or found.columns_only_b,
            "lag": found.lag or self.ahead_old or self.ahead_new,
        }
        return {kind for kind, count in there.items() if count}


def kinds_of(given: tuple[str, ...]) -> frozenset[str]:
    """What --fail-on means: kinds, `any` (all but lag) or `none`."""
    words = [word.strip() for text in given for word in text.split(",") if word.strip()] or ["any"]
    for word in words:
        if word not in (*KINDS, "any", "none"):
            raise click.UsageError(f"--fail-on {word!r}: give any, none, or some of {', '.join(KINDS)}")
    if "none" in words and len(words) > 1:
        raise click.UsageError("--fail-on none: cannot be combined with others")
    return frozenset(word for word in words if word in KINDS) | (ANY if "any" in words else frozenset())


@click.command(short_help="What differs between two versions.")
@click.argument("pipeline", required=False)
@click.option("--table", "tables", multiple=True, metavar="NAME", help="Only this table; may be given several times.")
@click.option("--old", type=click.IntRange(1), metavar="N", help="The first version.  [default: the live one]")
@click.option("--new", type=click.IntRange(1), metavar="N", help="The second version.  [default: the newest]")
@click.option("--key", metavar="COLUMNS", default="", help="Columns that identify a row.  [default: as declared]")
@click.option("--ignore", metavar="COLUMNS", default="", help="Columns to leave out of the comparison.")
@click.option("--tolerance", type=click.FloatRange(0), default=TOLERANCE_DEFAULT, show_default=True,
              help="Relative tolerance within which floating-point values are equal.")  # fmt: skip
@click.option("--samples", type=click.IntRange(0), default=SAMPLES_SHOWN_DEFAULT, show_default=True,
              help="Rows shown of each kind.")  # fmt: skip
@click.option("--wait", "wait_s", type=click.FloatRange(0), default=0.0, metavar="SECONDS",
              help="Wait up to this long until both versions stand at one position.")  # fmt: skip
@click.option("--fail-on", multiple=True, metavar="KINDS",
              help=f"What ends with code {DIFFERENT}: any, none, or some of {', '.join(KINDS)}.  "
              "[default: any, which leaves out lag]")  # fmt: skip
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
    wait_s: float,
    fail_on: tuple[str, ...],
    tables_dir: str,
    as_json: bool,
    debug: bool,
) -> None:
    """Each table of the live version beside the same table of the newest: rows only in old, only in new, differing.

    Both are read at the newest position of the log that both have reached, and that position is shown. Where batches
    ended at different offsets, rows that changed around that position are counted as lag. Ends with 0 when nothing
    differs, and with 3 when something does (--fail-on).
    """
    with one_line_errors(debug):
        from headrace.tables import compare as comparing

        wanted = kinds_of(fail_on)
        catalog = find_catalog(pipeline, tables_dir)
        one, other = pair_of(catalog, old, new)
        keys = _keys(catalog, other)
        results: dict[str, Compared] = {}
        names = list(tables) or [name for name in other.tables if name in one.tables]
        shared = [name for name in names if one.owner(name) == other.owner(name)]
        names = [name for name in names if name not in shared]
        pairs = _pairs(catalog, one, other, names, wait_s)
        for table in names:
            by, (pair, ahead_old, ahead_new) = split_columns(key) or keys.get(table, []), pairs[table]
            before = pair.before if pair is not None else None
            comparison = comparing.compare(
                catalog.layout.table_dir(one.number, table),
                catalog.layout.table_dir(other.number, table),
                by,
                name=table,
                version_a=pair.a.version if pair is not None else None,
                version_b=pair.b.version if pair is not None else None,
                before=(pair.side, before.version) if pair is not None and before is not None else None,
                tolerance=tolerance,
                ignore=split_columns(ignore),
                samples_max=samples,
            )
            results[table] = Compared(
                comparison=comparison, key=by, pair=pair, ahead_old=ahead_old, ahead_new=ahead_new
            )
            if not as_json:
                _print(table, results[table], one, other)
        lone = {side.number: sorted(set(side.tables) - set(beside.tables)) for side, beside in
                ((one, other), (other, one))} if not tables else {}  # fmt: skip
        found = {kind for result in results.values() for kind in result.kinds()}
        found |= {"tables"} if any(lone.values()) else set()
        if as_json:
            print_json({**_content(one, other, results, lone, found, wanted), "shared": shared})
        else:
            for number, only in lone.items():
                if only:
                    click.echo(f"only in version {number}: {', '.join(only)}")
            if shared:
                click.echo(f"shared by both versions: {', '.join(shared)}")
            click.echo(_verdict(found))
        if found & wanted:
            sys.exit(DIFFERENT)


def _verdict(found: set[str]) -> str:
    different = [kind for kind in KINDS if kind in found and kind != "lag"]
    lag = "; the rest is lag" if "lag" in found else ""
    return f"different: {', '.join(different)}{lag}" if different else f"equal{lag}"


def pair_of(catalog: "PipelineCatalog", old: int | None, new: int | None) -> "tuple[Version, Version]":
    from headrace.core.errors import OperatorError

    one = catalog.version(old) if old is not None else catalog.live
    if one is None:
        raise OperatorError(f"{catalog.pipeline}: nothing is live yet")
    return one, catalog.version(new) if new is not None else newest_beside(catalog)


def _pairs(
    catalog: "PipelineCatalog", one: "Version", other: "Version", tables: list[str], wait_s: float
) -> "dict[str, tuple[Pair | None, int, int]]":
    """At which versions each table is compared, and how many records more the old and the new one have read since."""
    deadline = time.monotonic() + wait_s
    while True:
        sides = [_positions(catalog, version) for version in (one, other)]
        pairs = {table: _pair(table, *(side.stands(table) for side in sides)) for table in tables}
        met = all(pair is None or (pair.before is None and not old and not new) for pair, old, new in pairs.values())
        if met or time.monotonic() >= deadline:
            return pairs
        time.sleep(LOOK_S)


def _positions(catalog: "PipelineCatalog", version: "Version") -> "Positions":
    from headrace.streaming.reached import ReachedNodes
    from headrace.tables.delta_log import DeltaLog
    from headrace.tables.positions import Positions

    layout = catalog.layout
    return Positions(
        lambda table: DeltaLog(layout.table_dir(version.number, table), table),
        ReachedNodes(layout, version.number, version.tables),
    )


def _pair(table: str, old: "list[Stand]", new: "list[Stand]") -> "tuple[Pair | None, int, int]":
    from headrace.core.errors import OperatorError
    from headrace.tables.positions import common, shared_topics

    topics = shared_topics(old, new)
    if not topics:
        return None, 0, 0
    old, new = ([stand.only(topics) for stand in side] for side in (old, new))
    pair = common(old, new)
    if pair is None:
        raise OperatorError(
            f"{table}: no position that both versions have been at (old: {old[-1].text()}; new: {new[-1].text()}); "
            f"let both catch up, or give --wait SECONDS"
        )
    return pair, old[-1].records_ahead_of(pair.a), new[-1].records_ahead_of(pair.b)


def _print(table: str, result: Compared, one: "Version", other: "Version") -> None:
    by = f" by {', '.join(result.key)}" if result.key else ""
    click.echo(f"{table}{by}: version {one.number} and version {other.number}{_where(result)}")
    names = (f"version {one.number}", f"version {other.number}")
    print_comparison(result.comparison, *names, keyed=bool(result.key))
    if result.comparison.lag:
        moving = one if result.pair is not None and result.pair.side == "a" else other
        click.echo(f"lag: changed in a batch of version {moving.number} that reaches beyond that position")
    if result.doubtful:
        click.echo(
            "some of these may be lag: the versions' batches ended at different offsets, and what changed and changed "
            "back within a batch cannot be told; --wait SECONDS waits for one position"
        )
    for name, ahead in zip(names, (result.ahead_old, result.ahead_new), strict=True):
        if ahead:
            click.echo(f"{name} has read {ahead:,} records more: lag, not compared")
    for version in (one, other):
        place = version.note.removeprefix("from ")
        if place != version.note and place != "earliest":
            click.echo(f"version {version.number} was replayed from {place}")
    click.echo()


def _where(result: Compared) -> str:
    if result.pair is None:
        return ", as they are (their histories name no offsets)"
    return f", at {result.pair.position.text()}"


def _content(
    one: "Version", other: "Version", results: dict[str, Compared], lone: dict[int, list[str]], found: set[str],
    wanted: frozenset[str],
) -> dict[str, Any]:  # fmt: skip
    return {
        "old": one.number,
        "new": other.number,
        "equal": not found - {"lag"},
        "failed": bool(found & wanted),
        "kinds": sorted(found),
        "tables": {
            table: {
                **comparison_json(result.comparison),
                "position": _position(result),
                "exact": result.pair is not None and result.pair.before is None,
                "doubtful": result.doubtful,
                "ahead_old": result.ahead_old,
                "ahead_new": result.ahead_new,
            }
            for table, result in results.items()
        },
        "only_old": lone.get(one.number, []),
        "only_new": lone.get(other.number, []),
    }


def _position(result: Compared) -> dict[str, dict[str, int]] | None:
    """Topics by name, the next offset of each partition; of another pipeline's table, its Delta version."""
    if result.pair is None:
        return None
    position: dict[str, dict[str, int]] = {}
    for (topic, partition), (_, end) in sorted(result.pair.position.ends.items()):
        position.setdefault(topic, {})["version" if partition < 0 else str(partition)] = end
    return position


def _keys(catalog: "PipelineCatalog", version: "Version") -> dict[str, list[str]]:
    from headrace.streaming.progress import read_progress

    progress = read_progress(catalog.layout.run_file(version.number))
    nodes = progress.nodes.values() if progress is not None else ()
    return {node.table: node.key for node in nodes if node.table is not None and node.key}
