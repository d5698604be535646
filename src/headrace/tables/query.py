"""SQL over the tables of a directory. Only the tables that the SQL names are opened, each at one version.

A table is named as it is (`orders`), at a Delta version (`"orders@v3"`), as a quarantine (`_quarantine.orders`) or
by its path (`'./elsewhere/orders'`).
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.core.errors import OperatorError
from headrace.tables.engine import engine, one_line_errors, quoted
from headrace.tables.layout import QUARANTINE
from headrace.tables.reading import Snapshot, attach, open_snapshot
from headrace.tables.resolving import Resolver
from headrace.tables.storage import is_delta

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS_PER_FETCH = 2_000
_AT_VERSION = re.compile(r"(.+)@v(\d+)")
_AT_COLUMN = re.compile(rb"at\b(?!\s+time\s+zone\b)(?!\s*\()", re.IGNORECASE)
_READING = ("SELECT", "EXPLAIN", "MULTI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A table that the SQL names: what to resolve, and the name that DuckDB will look for."""

    name: str
    view: str = field(compare=False)
    version: int | None = None
    required: bool = True  # False for what may as well be a common table expression, a function's or a file's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query that is ready to run, over the snapshots that it reads."""

    connection: "DuckDBPyConnection"
    sql: str
    explain: bool
    columns: tuple[str, ...]
    types: tuple[str, ...]
    snapshots: tuple[Snapshot, ...]

    def texts(self, rows_max: int | None = None) -> Iterator[tuple[str | None, ...]]:
        """Rows with every value as text."""
        if self.explain:
            return self._rows(self.sql)
        return self._rows(f"select columns(*)::varchar from ({self.sql}\n){_limit(rows_max)}")

    def json_rows(self, rows_max: int | None = None) -> Iterator[str]:
        """Rows as JSON objects, a string each."""
        if self.explain:
            return (json.dumps(dict(zip(self.columns, row, strict=True))) for row in self._rows(self.sql))
        inner = f"select * {self._iso_times()} from ({self.sql}\n){_limit(rows_max)}"
        rows = self._rows(f"select to_json(t)::varchar from ({inner}) t")
        return (_strict_json(row[0]) for row in rows)

    def _iso_times(self) -> str:
        """Times as programs read them, with a T and a Z."""
        formats = {"TIMESTAMP WITH TIME ZONE": "%Y-%m-%dT%H:%M:%S.%fZ", "TIMESTAMP": "%Y-%m-%dT%H:%M:%S.%f"}
        times = [
            f"strftime({quoted(name)}, '{formats[kind]}') as {quoted(name)}"
            for name, kind in zip(self.columns, self.types, strict=True)
            if kind in formats
        ]
        return f"replace ({', '.join(times)})" if times else ""

    def _rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        with one_line_errors("query"):
            cursor = self.connection.execute(sql)
            while rows := cursor.fetchmany(ROWS_PER_FETCH):
                yield from rows


@contextmanager
def prepared(tables_dir: str, sql: str, *, version: int | None = None, at: datetime | None = None) -> Iterator[Query]:
    """Resolves, opens and checks; nothing is read before rows are asked for."""
    with engine() as connection:
        statement, kind = _statement(sql)
        resolver = Resolver(tables_dir, at)
        named = _named(connection, statement, kind, resolver)
        if version is not None and len(named) > 1:
            names = ", ".join(sorted(each.name for each in named))
            raise OperatorError(
                f'--version: the query reads {names}; write "{named[0].name}@v{version}" in the SQL instead'
            )
        snapshots = []
        for each in named:
            snapshot = _open(resolver, each, version, at)
            if snapshot is not None:
                attach(connection, each.view, snapshot)
                snapshots.append(snapshot)
        if version is not None and not snapshots:
            raise OperatorError("--version: the query reads no table")
        with one_line_errors("query"):
            if kind == "EXPLAIN":
                columns, types = ["plan", "text"], ["VARCHAR", "VARCHAR"]
            else:
                relation = connection.sql(f"from ({statement}\n)")
                columns, types = relation.columns, [str(each) for each in relation.types]
        yield Query(
            connection=connection,
            sql=statement,
            explain=kind == "EXPLAIN",
            columns=tuple(columns),
            types=tuple(types),
            snapshots=tuple(snapshots),
        )


def _open(resolver: Resolver, named: Named, version: int | None, at: datetime | None) -> Snapshot | None:
    try:
        place = resolver.resolve(named.name)
    except OperatorError:
        if named.required:
            raise
        return None
    if named.version is not None:
        return open_snapshot(place.path, name=place.name, version=named.version)
    return open_snapshot(place.path, name=place.name, version=version, at=at if version is None else None)


def _statement(sql: str) -> tuple[str, str]:
    """The one statement of the SQL, without the semicolon, and its kind."""
    import duckdb

    with one_line_errors("query"):
        try:
            statements = duckdb.extract_statements(sql)
        except duckdb.ParserException:
            with_at = _with_at_quoted(sql)
            if with_at == sql:
                raise
            statements = duckdb.extract_statements(with_at)
    if len(statements) != 1:
        raise OperatorError(f"a query is one statement, this has {len(statements)}; run them one by one")
    kind = statements[0].type.name
    if kind not in _READING:
        raise OperatorError(f"{kind.lower()}: a query only reads; write with the pipeline, or with any Delta writer")
    return statements[0].query.strip().rstrip(";"), kind


def _with_at_quoted(sql: str) -> str:
    """`at` is the usual name of an event's time, and a keyword of DuckDB's: taken for the column where that parses."""
    import duckdb

    data = sql.encode()  # DuckDB counts bytes
    starts = [
        start
        for start, kind in duckdb.tokenize(sql)
        if kind == duckdb.token_type.keyword and _AT_COLUMN.match(data, start) is not None
    ]
    for start in reversed(starts):
        data = data[:start] + b'"' + data[start : start + 2] + b'"' + data[start + 2 :]
    return data.decode()


def _named(connection: "DuckDBPyConnection", sql: str, kind: str, resolver: Resolver) -> list[Named]:
    """The tables that a statement names, by DuckDB's own parser where that tells, else by its words."""
    tree: Any = {"error": True}
    if kind == "SELECT":
        # All of it, since DuckDB takes no other work while a result is half read.
        ((text,),) = connection.execute("select json_serialize_sql(?)", [sql]).fetchall()
        tree = json.loads(text)
    found: dict[str, Named] = {}
    if tree["error"]:
        known = {place.name.casefold(): place.name for place in resolver.places()}
        for word in re.findall(r'"(?:[^"]|"")+"|[\w.@-]+', sql):
            name = word.strip('"').replace('""', '"')
            base = _AT_VERSION.fullmatch(name)
            if (base[1] if base else name).casefold() in known:
                _add(found, "", name, known, required=True)
        return list(found.values())
    tables: list[tuple[str, str]] = []
    expressions: set[str] = set()
    _walk(tree, tables, expressions)
    known = {place.name.casefold(): place.name for place in resolver.places()} if tables else {}
    for schema, name in tables:
        file_like = not is_delta(name) and ("/" in name or "." in name)
        required = name.casefold() not in expressions and not file_like and schema in ("", QUARANTINE)
        if schema in ("", QUARANTINE):
            _add(found, schema, name, known, required=required)
    for each in found.values():
        if each.view.startswith(quoted(QUARANTINE)):
            connection.execute(f"create schema if not exists {quoted(QUARANTINE)}")
    return list(found.values())


def _add(found: dict[str, Named], schema: str, name: str, known: dict[str, str], *, required: bool) -> None:
    view = f"{quoted(schema)}.{quoted(name)}" if schema else quoted(name)
    match = _AT_VERSION.fullmatch(name)
    base, version = (match[1], int(match[2])) if match else (name, None)
    full = f"{schema}/{base}" if schema else base
    # SQL does not mind capitals, a file system does.
    found[view.casefold()] = Named(name=known.get(full.casefold(), full), view=view, version=version, required=required)


def _walk(node: Any, tables: list[tuple[str, str]], expressions: set[str]) -> None:
    if isinstance(node, dict):
        if node.get("type") == "BASE_TABLE":
            tables.append((node.get("schema_name") or "", node["table_name"]))
        for entry in (node.get("cte_map") or {}).get("map", ()):
            expressions.add(entry["key"].casefold())
        for value in node.values():
            _walk(value, tables, expressions)
    elif isinstance(node, list):
        for value in node:
            _walk(value, tables, expressions)


def _limit(rows_max: int | None) -> str:
    return "" if rows_max is None else f" limit {int(rows_max)}"


def _strict_json(row: str) -> str:
    """JSON has no word for what is not a number; null says it."""
    if "NaN" in row or "Infinity" in row:
        return json.dumps(json.loads(row, parse_constant=lambda _: None), ensure_ascii=False)
    return row
