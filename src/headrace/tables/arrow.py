"""A table at one version as Arrow, pandas or Polars, without what Headrace keeps in it for itself. It only reads."""

import importlib
from typing import TYPE_CHECKING, Any

from headrace.core.errors import OperatorError
from headrace.tables.hidden import shown
from headrace.tables.reading import Snapshot

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


def columns(snapshot: Snapshot) -> list[str]:
    return list(shown(field.name for field in snapshot.table.schema().fields))


def stream(snapshot: Snapshot, names: list[str] | None = None) -> Any:
    """The rows as an Arrow stream that can be read once."""
    return snapshot.table.scan(columns=names if names is not None else columns(snapshot))


def to_arrow(snapshot: Snapshot) -> "pyarrow.Table":
    arrow = needed("pyarrow")
    # The stream has views of strings, which not every reader of Arrow takes.
    schema = arrow.schema(snapshot.table.schema().to_arrow())
    return arrow.table(stream(snapshot)).cast(arrow.schema([schema.field(name) for name in columns(snapshot)]))


def to_pandas(snapshot: Snapshot) -> "pandas.DataFrame":
    needed("pandas")
    return to_arrow(snapshot).to_pandas()


def to_polars(snapshot: Snapshot) -> "polars.DataFrame":
    frame: polars.DataFrame = needed("polars").DataFrame(stream(snapshot))
    return frame


def count(snapshot: Snapshot) -> int:
    return sum(batch.num_rows for batch in stream(snapshot, columns(snapshot)[:1]))


def needed(name: str) -> Any:
    """A package that is installed only where it is used."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OperatorError(f"{name} is not installed; run: pip install {name}") from error
