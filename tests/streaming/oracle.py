"""What a log means, by DuckDB: events as tables, queries over them, and what differs from a table that was found.
No line of Headrace and none of Spark takes part in an answer."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from headrace.tables.hidden import HIDDEN_COLUMNS
from headrace.tables.reading import open_snapshot

_TIMES = "%Y-%m-%dT%H:%M:%S.%gZ"


class Oracle:
    """`tables` are names with their columns as in CREATE TABLE; beside those each has `n`, the place in the log."""

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._tables = tables
        self._db = duckdb.connect()
        for name, columns in tables.items():
            self._db.execute(f"create table {name} ({columns}, n bigint)")
        self._count = 0

    def add(self, table: str, events: Iterable[Mapping[str, Any]]) -> None:
        """By a file: one statement per row would take minutes for a large log."""
        names = [each.split()[0] for each in self._tables[table].split(", ")]
        rows = []
        for event in events:
            rows.append([*[event.get(name) for name in names], self._count])
            self._count += 1
        if not rows:
            return
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "rows.csv"
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([["\\N" if value is None else value for value in row] for row in rows])
            options = f"format csv, header false, nullstr '\\N', timestampformat '{_TIMES}'"
            self._db.execute(f"copy {table} from '{path}' ({options})")

    def rows(self, answer: str) -> list[Any]:
        return self._db.sql(answer).fetchall()

    def differences(self, answer: str, found: pa.Table) -> tuple[int, list[Any]]:
        """How many rows the answer has, and what is on one side only: -1 stands before a row of the answer that was
        not found, 1 before a row that is not in the answer."""
        self._db.register("found", found.cast(pa.schema([_plain(field) for field in found.schema])))
        made = self._db.sql(answer)
        kinds = dict(zip(made.columns, map(str, made.types), strict=True))
        assert set(found.column_names) == set(kinds), (found.column_names, list(kinds))
        columns = ", ".join(f"round({name}, 6) as {name}" if kind == "DOUBLE" else name for name, kind in kinds.items())
        self._db.execute(f"create or replace temp table expected as select {columns} from ({answer})")
        total = self._db.sql("select count(*) from expected").fetchall()[0][0]
        sides = f"""(select -1 as side, * from (from expected except all select {columns} from found))
            union all (select 1 as side, * from (select {columns} from found except all from expected))"""
        return int(total), self._db.sql(sides).fetchall()


def stored_rows(path: str) -> pa.Table:
    """A Delta table as a reader without Spark sees it, without the columns that Headrace keeps for itself."""
    table = open_snapshot(path).table.to_pyarrow_table()
    return table.drop_columns([name for name in table.column_names if name in HIDDEN_COLUMNS])


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
