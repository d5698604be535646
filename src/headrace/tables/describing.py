"""What there is to say about a table: schema, size, rows, files, its pipeline, what was quarantined."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.core.errors import OperatorError
from headrace.tables.engine import engine
from headrace.tables.expectations import ExpectationSummary, read_outcomes, summarize
from headrace.tables.hidden import HIDDEN_COLUMNS
from headrace.tables.reading import Snapshot, attach, open_snapshot
from headrace.tables.resolving import Resolver, TableLocation
from headrace.tables.storage import is_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    type: str
    nullable: bool
    partition: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    files: int
    bytes: int
    rows: int | None  # None where a file was written without a count


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    place: TableLocation
    stable_path: str
    version: int
    size: Size
    columns: tuple[Column, ...]
    properties: Mapping[str, str]
    live_version: int | None
    quarantined: int | None  # None if the node has no quarantine
    expectations: tuple[ExpectationSummary, ...]


def size_of(snapshot: Snapshot) -> Size:
    """From the log alone; no data file is opened."""
    actions = snapshot.table.get_add_actions(flatten=True)
    sizes = actions.column("size_bytes").to_pylist()
    counts: list[int | None] = list(actions.column("num_records").to_pylist()) if sizes else []
    return Size(files=len(sizes), bytes=sum(sizes), rows=_rows(snapshot, counts))


def _rows(snapshot: Snapshot, counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    deleted = 0
    if "deletionVectors" in (snapshot.table.protocol().reader_features or ()):
        for batch in snapshot.table.deletion_vectors():
            for kept in batch.column("selection_vector").to_pylist():
                deleted += sum(not each for each in kept)
    return sum(known) - deleted


def count_rows(snapshot: Snapshot) -> int:
    rows = size_of(snapshot).rows
    if rows is not None:
        return rows
    with engine() as connection:
        attach(connection, "counted", snapshot)
        ((count,),) = connection.execute("select count(*) from counted").fetchall()
        return int(count)


def describe(resolver: Resolver, name: str) -> Description:
    place = resolver.resolve(name)
    snapshot = open_snapshot(place.path, name=name)
    size = size_of(snapshot)
    metadata = snapshot.table.metadata()
    live = resolver.version(place.pipeline) if place.pipeline else None
    return Description(
        place=place,
        stable_path=_stable_path(resolver, place),
        version=snapshot.version,
        size=Size(files=size.files, bytes=size.bytes, rows=count_rows(snapshot)),
        columns=tuple(
            Column(
                name=field.name,
                type=_type_text(field.type),
                nullable=field.nullable,
                partition=field.name in metadata.partition_columns,
            )
            for field in snapshot.table.schema().fields
            if field.name not in HIDDEN_COLUMNS
        ),
        properties=dict(sorted(metadata.configuration.items())),
        live_version=live.number if live else None,
        quarantined=_quarantined(resolver, place),
        expectations=tuple(summarize(read_outcomes(_expectations_file(resolver, place)))),
    )


def _stable_path(resolver: Resolver, place: TableLocation) -> str:
    """A store has no links, so a table has no path there but that of its version."""
    linked = place.kind == "pipeline" and not is_url(resolver.tables_dir)
    return os.path.join(resolver.tables_dir, place.name) if linked else place.path


def _quarantined(resolver: Resolver, place: TableLocation) -> int | None:
    for other in resolver.quarantines():
        if place.kind == "pipeline" and (other.pipeline, other.node) == (place.pipeline, place.node):
            return count_rows(open_snapshot(other.path, name=other.name))
    return None


def _expectations_file(resolver: Resolver, place: TableLocation) -> str:
    if place.pipeline is None or place.version is None or place.node is None:
        return ""
    return resolver.catalog(place.pipeline).layout.expectations_file(place.version, place.node)


def _type_text(kind: object) -> str:
    """`array<string>`, `struct<a: long>`: as Spark prints them."""
    match getattr(kind, "type", None):
        case "struct":
            inner = ", ".join(f"{field.name}: {_type_text(field.type)}" for field in kind.fields)  # type: ignore[attr-defined]
            return f"struct<{inner}>"
        case "array":
            return f"array<{_type_text(kind.element_type)}>"  # type: ignore[attr-defined]
        case "map":
            return f"map<{_type_text(kind.key_type)}, {_type_text(kind.value_type)}>"  # type: ignore[attr-defined]
        case str(name):
            return name
        case _:
            return str(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTable:
    """One line of a list; `problem` where the table could not be opened."""

    place: TableLocation
    version: int | None = None
    size: Size | None = None
    problem: str = ""


def list_tables(resolver: Resolver) -> list[ListedTable]:
    listed = []
    for place in resolver.places():
        if not place.written:
            listed.append(ListedTable(place=place, problem="not written yet"))
            continue
        try:
            snapshot = open_snapshot(place.path, name=place.name)
            listed.append(ListedTable(place=place, version=snapshot.version, size=size_of(snapshot)))
        except OperatorError as error:
            listed.append(ListedTable(place=place, problem=str(error)))
    return listed
