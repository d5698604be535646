"""`hr.read_table`: a table by its name, now or as it was, in whatever a Python program works with.

No JVM is started unless a Spark DataFrame is asked for.
"""

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.core.times import parse_time
from headrace.streaming.sources import without_hidden
from headrace.tables import arrow
from headrace.tables.reading import Snapshot, open_snapshot
from headrace.tables.resolving import Resolver, default_tables_dir

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    name: str,
    *,
    at: str | datetime | None = None,
    version: int | None = None,
    tables: str | os.PathLike[str] | None = None,
) -> "Table":
    """A table at one version: `.to_pandas()`, `.to_polars()`, `.to_arrow()`, `.to_spark()`, `.rows()`, `.count()`.

    `at` is a time (a datetime, or "10 minutes ago" as in the commands): the table as it was then, of the pipeline's
    version that was live then. `version` is a version of the Delta table. `tables` is the directory of tables; by
    default $HEADRACE_TABLES, or ./headrace-tables. A quarantine is `_quarantine/<node>`; a path reads any Delta table.

        hr.read_table("revenue").to_pandas()
        hr.read_table("revenue", at="10 minutes ago").to_polars()
        hr.read_table("revenue", version=3).to_spark().show()
    """
    moment = parse_time(at, datetime.now(UTC)) if isinstance(at, str) else at
    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    place = Resolver(tables if tables is not None else default_tables_dir(), moment).resolve(name)
    return Table(open_snapshot(place.path, name=name, version=version, at=moment if version is None else None))


class Table:
    """A table at one version: what `hr.read_table` returns. It is itself an Arrow stream, so that `polars.DataFrame`,
    `pyarrow.table` and DuckDB take it as it is."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def name(self) -> str:
        return self._snapshot.name

    @property
    def path(self) -> str:
        """The directory of the table. It never moves."""
        return self._snapshot.path

    @property
    def version(self) -> int:
        """The version of the Delta table that this reads."""
        return self._snapshot.version

    @property
    def columns(self) -> list[str]:
        return arrow.columns(self._snapshot)

    def count(self) -> int:
        """How many rows it has."""
        return arrow.count(self._snapshot)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in no particular order."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def to_arrow(self) -> "pyarrow.Table":
        return arrow.to_arrow(self._snapshot)

    def to_pandas(self) -> "pandas.DataFrame":
        return arrow.to_pandas(self._snapshot)

    def to_polars(self) -> "polars.DataFrame":
        return arrow.to_polars(self._snapshot)

    def to_spark(self, spark: "SparkSession | None" = None) -> "DataFrame":
        """In the given session, or in that of `hr.spark()`."""
        if spark is None:
            from headrace.streaming.python_session import spark as own_session

            spark = own_session()
        reader = spark.read.format("delta").option("versionAsOf", self.version)
        return without_hidden(reader.load(self.path))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return arrow.stream(self._snapshot).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, version={self.version}, columns={self.columns})"
