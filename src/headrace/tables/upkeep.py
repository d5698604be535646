"""What changes a table from outside its pipeline: restore, vacuum, optimize. Each is one Delta commit, by deltalake.

Nothing here asks; the command does, before it calls.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.core.errors import OperatorError
from headrace.tables.reading import open_snapshot

if TYPE_CHECKING:
    from deltalake import DeltaTable

_Result = TypeVar("_Result")
RETENTION_HOURS_DEFAULT = 168


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    files: tuple[str, ...]
    retention_hours: float
    dry_run: bool


def restore(path: str, name: str, version: int) -> Mapping[str, Any]:
    """A new commit with the content of an old version; what lies between stays in the history."""
    table = open_snapshot(path, name=name).table
    target = open_snapshot(path, name=name, version=version)
    if target.version == table.version():
        raise OperatorError(f"{name}: version {version} is the current one; nothing to restore")
    return _done(name, lambda: table.restore(version, ignore_missing_files=False))


def vacuum(path: str, name: str, *, retention_hours: float | None, dry_run: bool) -> Vacuumed:
    """Removes data files that no version within the retention needs."""
    table = open_snapshot(path, name=name).table
    hours = retention_hours if retention_hours is not None else configured_retention_hours(table)
    files = _done(
        name,
        lambda: table.vacuum(
            # Whole hours to deltalake; a part of one is kept, never given away.
            retention_hours=-int(-hours // 1),
            dry_run=dry_run,
            enforce_retention_duration=False,
        ),
    )
    return Vacuumed(files=tuple(files), retention_hours=hours, dry_run=dry_run)


def configured_retention_hours(table: "DeltaTable") -> float:
    """What the table's own property says, else a week."""
    text = table.metadata().configuration.get("delta.deletedFileRetentionDuration", "")
    words = text.removeprefix("interval ").split()
    hours = {"hour": 1.0, "day": 24.0, "week": 168.0, "minute": 1 / 60, "second": 1 / 3600}
    try:
        return float(words[0]) * hours[words[1].rstrip("s")]
    except (IndexError, KeyError, ValueError):
        return float(RETENTION_HOURS_DEFAULT)


def optimize(path: str, name: str, *, zorder: Sequence[str] = ()) -> Mapping[str, Any]:
    """Few large files instead of many small ones, sorted along the given columns if there are any."""
    table = open_snapshot(path, name=name).table
    columns = [field.name for field in table.schema().fields]
    for column in zorder:
        if column not in columns:
            raise OperatorError(f"{name}: no column {column} to order by; it has {', '.join(columns)}")
        if column in table.metadata().partition_columns:
            raise OperatorError(f"{name}: {column} is a partition already; order by another column")
    if zorder:
        return _done(name, lambda: table.optimize.z_order(list(zorder)))
    return _done(name, lambda: table.optimize.compact())


def _done(name: str, change: Callable[[], _Result]) -> _Result:
    from deltalake.exceptions import DeltaError

    try:
        return change()
    except (DeltaError, OSError) as error:
        raise OperatorError(_refusal(name, str(error).splitlines()[0].rstrip("."))) from error


def _refusal(name: str, reason: str) -> str:
    """What deltalake said, and the remedy for it. A commit is all or nothing, so nothing was changed."""
    if "nsupported" in reason or "not supported" in reason:
        return f"{name}: deltalake cannot do that ({reason}); nothing was changed, do it with Spark"
    if "missing file" in reason:
        return f"{name}: files of that version were vacuumed ({reason}); nothing was changed, take a later version"
    return f"{name}: {reason}; nothing was changed, it can be tried again"
