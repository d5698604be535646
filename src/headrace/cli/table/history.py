"""`headrace table history NAME`: every commit, and the offsets of the log that made it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.tabling import common_options, print_json, resolver_for

if TYPE_CHECKING:
    from headrace.tables.delta_log import Commit
    from headrace.tables.history import Offsets
    from headrace.tables.provenance import Source
    from headrace.tables.resolving import Resolver, TableLocation

COMMITS_SHOWN_DEFAULT = 20


@click.command(short_help="Commits, and the offsets that made them.")
@click.argument("name")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=COMMITS_SHOWN_DEFAULT,
    show_default=True,
    metavar="N",
    help="The newest N commits; 0 for all that the log still holds.",
)
@click.option("--offsets", is_flag=True, help="Follow tables that it is made from, down to the offsets of topics.")
@common_options
def history(name: str, limit: int, offsets: bool, tables_dir: str, as_json: bool, debug: bool) -> None:
    """A table's commits, newest first: when, what, how many rows, and what made them."""
    with one_line_errors(debug):
        from headrace.tables.delta_log import DeltaLog
        from headrace.tables.history import OffsetTrail

        resolver = resolver_for(tables_dir)
        place = resolver.resolve(name)
        log = DeltaLog(place.path, name)
        commits = log.commits(limit or None)
        trail = OffsetTrail(lambda table: DeltaLog(_sibling(resolver, place, table), table)) if offsets else None
        followed = {commit.version: trail.offsets(commit) for commit in commits} if trail else {}
        if as_json:
            print_json([_commit_json(commit, followed.get(commit.version)) for commit in commits])
            return
        _print(commits, followed)
        hidden = len(log.versions) - len(commits)
        if hidden:
            click.echo(f"{hidden:,} older; --limit 0 shows all", err=True)
        elif log.first > 0:
            click.echo(f"older commits are no longer in the log; it begins at version {log.first}", err=True)


def _sibling(resolver: "Resolver", place: "TableLocation", table: str) -> str:
    """Upstream is the table of the same pipeline version, which need not be the live one."""
    if place.pipeline is None or place.version is None:
        return resolver.resolve(table).path
    return resolver.catalog(place.pipeline).layout.table_dir(place.version, table)


def _print(commits: "list[Commit]", followed: "Mapping[int, Offsets]") -> None:
    from headrace.cli.columns import show
    from headrace.tables.versions import time_text

    rows: list[list[str | None]] = []
    for commit in commits:
        made = commit.provenance
        found = followed.get(commit.version)
        source = _offsets_text(found) if found else "; ".join(map(_source_text, made.sources)) if made else ""
        rows.append(
            [
                str(commit.version),
                time_text(commit.at),
                commit.operation,
                _rows_text(commit),
                made.node if made else "",
                str(made.batch) if made else "",
                source,
            ]
        )
    show(
        ["version", "time", "operation", "rows", "node", "batch", "made from"],
        rows,
        right=[True, False, False, True, False, True, False],
    )


def _rows_text(commit: "Commit") -> str:
    if commit.rows_added is None:
        return "?"
    removed = " -?" if commit.rows_removed is None else f" -{commit.rows_removed:,}" if commit.rows_removed else ""
    return f"+{commit.rows_added:,}{removed}"


def _source_text(source: "Source") -> str:
    from headrace.tables.provenance import TopicSource

    if isinstance(source, TopicSource):
        parts = " ".join(f"{partition}:{start}-{end}" for partition, (start, end) in sorted(source.ranges.items()))
        return f"{source.topic} {parts}"
    first, last = source.versions
    return f"table {source.table} v{first}" + (f"-v{last}" if last != first else "")


def _offsets_text(offsets: "Offsets") -> str:
    parts = [
        f"{topic} "
        + " ".join(
            f"{partition}:" + ",".join(f"{start}-{end}" for start, end in ranges)
            for partition, ranges in partitions.items()
        )
        for topic, partitions in offsets.topics.items()
    ]
    return "; ".join([*parts, *(f"({gap})" for gap in offsets.gaps)])


def _commit_json(commit: "Commit", offsets: "Offsets | None") -> dict[str, Any]:
    from headrace.tables.provenance import source_content
    from headrace.tables.versions import time_text

    made = commit.provenance
    content: dict[str, Any] = {
        "version": commit.version,
        "time": time_text(commit.at),
        "operation": commit.operation,
        "parameters": dict(commit.parameters),
        "metrics": dict(commit.metrics),
        "rows_added": commit.rows_added,
        "rows_removed": commit.rows_removed,
        "engine": commit.engine,
        "pipeline": made.pipeline if made else None,
        "pipeline_version": made.version if made else None,
        "node": made.node if made else None,
        "batch": made.batch if made else None,
        "sources": [source_content(source) for source in made.sources] if made else [],
        "user_metadata": None if made else commit.user_metadata,
    }
    if offsets is not None:
        content["offsets"] = {
            topic: {str(partition): [list(each) for each in ranges] for partition, ranges in partitions.items()}
            for topic, partitions in offsets.topics.items()
        }
        content["offset_gaps"] = list(offsets.gaps)
    return content
