"""Opening a Delta table at a version or a time, and giving DuckDB a view of it.

DuckDB reads the Parquet files itself wherever the log allows that, with its own pruning and no copy; tables with
deletion vectors, renamed columns or partition values that are not in the paths go through deltalake's Arrow stream.
Either way the rows are those of exactly one version. It only reads.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headrace.core.errors import OperatorError
from headrace.tables.delta_log import DeltaLog
from headrace.tables.engine import literal, missing_extra, quoted
from headrace.tables.hidden import shown
from headrace.tables.object_store import delta_options
from headrace.tables.sql_types import sql_type
from headrace.tables.storage import is_delta, is_url

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection

# Reader features that change nothing in how Parquet files are read, or that are looked at below; a widened type is
# cast from what each file has.
_PLAIN_FEATURES = frozenset(
    {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening", "deletionVectors", "columnMapping"}
)
_HIVE_TYPES = frozenset({"string", "byte", "short", "integer", "long", "date", "boolean"})
_GLOB = frozenset("*?[")
_UNOPENABLE = frozenset("[]^|%\\")  # deltalake takes a path for an address, and these are not allowed there
_HIVE_NULLS = ("", "__HIVE_DEFAULT_PARTITION__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A table at one version."""

    name: str
    path: str
    version: int
    table: "DeltaTable"


def open_snapshot(
    path: str, *, name: str | None = None, version: int | None = None, at: datetime | None = None
) -> Snapshot:
    name = name or path
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as error:
        raise missing_extra(error) from error
    if at is not None:
        version = DeltaLog(path, name).version_at(at)
    if "://" not in path and not _UNOPENABLE.isdisjoint(path):
        odd = " ".join(sorted(_UNOPENABLE.intersection(path)))
        raise OperatorError(f"{path}: deltalake opens no path with {odd} in it; rename the directory")
    try:
        options = delta_options(path)
        table = DeltaTable(path, storage_options=options)
        last = table.version()
        if version is not None and not 0 <= version <= last:
            raise OperatorError(f"{name}: version {version} is outside [0, {last}]; see: headrace table history {name}")
        if version is not None and version != last:
            table = DeltaTable(path, version=version, storage_options=options)
    except TableNotFoundError as error:
        if version is not None and is_delta(path):
            raise OperatorError(_unreadable(name, path, version, error)) from error
        raise OperatorError(f"{path}: not a Delta table; give the path of a directory with a _delta_log") from error
    except DeltaError as error:
        raise OperatorError(_unreadable(name, path, version, error)) from error
    return Snapshot(name=name, path=path, version=table.version(), table=table)


def _unreadable(name: str, path: str, version: int | None, error: Exception) -> str:
    reason = str(error).splitlines()[0]
    if "feature" in reason.lower() or "protocol" in reason.lower():
        return f"{name}: it needs what deltalake cannot read ({reason}); read it with Spark"
    if version is not None and version < DeltaLog(path, name).first:
        return f"{name}: version {version} is no longer in the log; it begins at {DeltaLog(path, name).first}"
    return f"{name}: cannot be opened ({reason})"


def attach(
    connection: "DuckDBPyConnection", view: str, snapshot: Snapshot, *, columns: Sequence[str] | None = None
) -> None:
    """Makes the snapshot readable in SQL under the (quoted) name `view`, without what Headrace keeps for itself; or
    just the `columns` of it, hidden ones among them."""
    from deltalake.exceptions import DeltaError

    fields = shown(field.name for field in snapshot.table.schema().fields) if columns is None else columns
    names = ", ".join(map(quoted, fields))
    if is_url(snapshot.path) and _is_plain(snapshot.table):
        # DuckDB asks it for the columns and the rows that a query needs.
        name = f"headrace_dataset_{id(snapshot)}"
        connection.register(name, snapshot.table.to_pyarrow_dataset())
        connection.execute(f"create or replace view {view} as select {names} from {name}")
        return
    select = _parquet_select(snapshot, columns)
    if select is not None:
        connection.execute(f"create or replace view {view} as {select}")
        return
    try:
        stream = snapshot.table.scan()
        connection.register("headrace_stream", stream)
        try:
            # A stream can be read once, a query may name its table twice.
            connection.execute(f"create or replace temp table {view} as select {names} from headrace_stream")
        finally:
            connection.unregister("headrace_stream")
    except (DeltaError, OSError) as error:
        raise OperatorError(_unreadable(snapshot.name, snapshot.path, None, error)) from error


def _parquet_select(snapshot: Snapshot, wanted: Sequence[str] | None = None) -> str | None:
    """What reads the table's files directly; None if they do not hold the rows as they are."""
    table = snapshot.table
    every = {field.name: field.type for field in table.schema().fields}
    fields = [(name, sql_type(every[name]), every[name]) for name in (shown(every) if wanted is None else wanted)]
    if any(kind is None for _, kind, _ in fields) or not _is_plain(table) or is_url(snapshot.path):
        return None
    partitions = table.metadata().partition_columns
    columns = [
        f"cast({_partition_value(name) if name in partitions else quoted(name)} as {kind}) as {quoted(name)}"
        for name, kind, _ in fields
    ]
    actions = table.get_add_actions(flatten=True)
    logged: list[str] = list(actions.column("path").to_pylist())
    if not logged:
        return "select " + ", ".join(f"cast(null as {kind}) as {quoted(name)}" for name, kind, _ in fields) + " limit 0"
    # In the log a path is an address: relative, with percent signs. A clone's are absolute.
    files = [os.path.join(snapshot.path, unquote(path)) for path in logged]
    if any(os.path.isabs(path) or ":/" in path for path in logged) or not _GLOB.isdisjoint("".join(files)):
        return None
    if partitions:
        kinds = {name: getattr(kind, "type", None) for name, _, kind in fields if name in partitions}
        values = [[_text(value) for value in actions.column(f"partition.{name}").to_pylist()] for name in partitions]
        told = [_path_values(path, partitions) for path in files]
        if not set(kinds.values()) <= _HIVE_TYPES or told != [list(row) for row in zip(*values, strict=True)]:
            return None
    _check_present(snapshot, files)
    # The empty select names every column that the schema has, also those that no file has yet.
    names = ", ".join(f"cast(null as {kind}) as {quoted(name)}" for name, kind, _ in fields if name not in partitions)
    paths = ", ".join(map(literal, files))
    hive = ", ".join(f"{quoted(name)}: varchar" for name in partitions)
    options = f"hive_partitioning = true, hive_types = {{{hive}}}" if partitions else "hive_partitioning = false"
    scan = f"from read_parquet([{paths}], union_by_name = true, {options})"
    if names:
        scan = f"from ((select {names} limit 0) union all by name ({scan}))"
    return f"select {', '.join(columns)} {scan}"


def _partition_value(name: str) -> str:
    """To Delta, an empty partition value is null as well."""
    value = quoted(name)
    for null in _HIVE_NULLS:
        value = f"nullif({value}, {literal(null)})"
    return value


def _is_plain(table: "DeltaTable") -> bool:
    protocol = table.protocol()
    if not set(protocol.reader_features or ()) <= _PLAIN_FEATURES:
        return False
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        return False
    has_vectors = "deletionVectors" in (protocol.reader_features or ())
    return not has_vectors or next(iter(table.deletion_vectors()), None) is None


def _path_values(path: str, partitions: list[str]) -> list[str | None] | None:
    """What `name=value` in a path says; the log alone is the truth, so the two are compared."""
    pairs = [part.split("=", 1) for part in path.split("/")[:-1] if "=" in part]
    found = dict(pairs)
    if len(found) < len(pairs) or not set(partitions) <= found.keys():
        return None
    return [None if found[name] in _HIVE_NULLS else unquote(found[name]) for name in partitions]


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_present(snapshot: Snapshot, files: list[str]) -> None:
    for path in files:
        if not os.path.exists(path):
            raise OperatorError(
                f"{snapshot.name}: version {snapshot.version} needs {os.path.basename(path)}, which is gone "
                f"(a vacuum removes what is older than its retention); ask for a later version"
            )
