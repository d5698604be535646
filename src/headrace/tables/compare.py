"""Two tables side by side: which rows are only in one, and, with a key, which differ.

Every row is counted on both sides in one aggregation; rows that are there equally often on both sides are the same.
What is left over is small when the tables are alike, and only that is looked at by key. Rows may be doubled, and keys
may be null or doubled: they are counted, never multiplied. Large tables are read several times, for a share of the
keys each time, so that the memory has a bound whatever their size.

Where one table stands between two versions of the other (`positions`), an earlier version of that other is given, too:
a row, or with a key whatever has its key, that changed between the two versions is lag and no difference. A key may
have changed and changed back: a keyed table keeps with each row which record made it, and that tells. Where a table
keeps no such thing, and for a key that came and went, a difference may be lag that cannot be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.core.errors import OperatorError
from headrace.tables.describing import size_of
from headrace.tables.engine import engine, literal, one_line_errors, quoted
from headrace.tables.hidden import ORDER
from headrace.tables.reading import Snapshot, attach, open_snapshot

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SAMPLES_MAX = 10
MEMORY_MB_MAX = 1024
# What a row takes in the aggregation, beside what it takes in its Parquet file: from measurements, on the safe side.
_UNPACKING = 4
_ROW_BYTES = 96

Kind = Literal["only_a", "only_b", "differing"]
Row = dict[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A row that is not on both sides alike; every value as text. `changed` names the columns that differ."""

    kind: Kind
    a: Row | None = None
    b: Row | None = None
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many rows, and some of them. Columns that only one side has are named, and not compared."""

    only_a: int
    only_b: int
    differing: int
    same: int
    lag: int = 0  # rows that one side has not reached yet, or a key whose row changed meanwhile: not told apart
    samples: tuple[Sample, ...] = ()
    columns: tuple[str, ...] = ()
    columns_only_a: tuple[str, ...] = ()
    columns_only_b: tuple[str, ...] = ()
    version_a: int | None = None
    version_b: int | None = None
    doubtful: bool = False  # a key that changed and changed back between two versions may be among the differing rows

    @property
    def equal(self) -> bool:
        return not (self.only_a or self.only_b or self.differing or self.columns_only_a or self.columns_only_b)


def compare(
    path_a: str,
    path_b: str,
    key: Sequence[str] = (),
    *,
    name: str | None = None,
    version_a: int | None = None,
    version_b: int | None = None,
    before: tuple[Literal["a", "b"], int] | None = None,
    tolerance: float = 0.0,
    ignore: Sequence[str] = (),
    samples_max: int = SAMPLES_MAX,
    memory_mb_max: int = MEMORY_MB_MAX,
) -> Comparison:
    """Compares two Delta directories, or two versions of one.

    `tolerance` is relative: with a key, rows whose floating-point columns differ by no more than that are the same,
    since a sum that was added up in another order differs in its last digits. `name` is what errors call the tables.
    `before` is an earlier version of one side: what changed since then there is lag.
    """
    a = open_snapshot(path_a, name=name, version=version_a)
    b = open_snapshot(path_b, name=name, version=version_b)
    earlier = open_snapshot(path_a if before[0] == "a" else path_b, name=name, version=before[1]) if before else None
    with engine(f"{memory_mb_max}MB") as connection, one_line_errors("compare"):
        connection.execute("set preserve_insertion_order = false")
        attach(connection, "side_a", a)
        attach(connection, "side_b", b)
        if earlier is not None:
            attach(connection, "side_before", earlier)
        moving = before[0] if before is not None else None
        told = earlier is not None and _attach_orders(connection, key, a if moving == "a" else b, earlier)
        sides = _Sides(connection, a, b, key=key, ignore=ignore, tolerance=tolerance, moving=moving, told=told)
        parts = parts_needed([a, b, *([earlier] if earlier is not None else [])], memory_mb_max)
        counts = [0, 0, 0, 0, 0, 0]
        samples: dict[Kind, list[Sample]] = {"differing": [], "only_a": [], "only_b": []}
        for part in range(parts):
            counts = [total + count for total, count in zip(counts, sides.count(part, parts), strict=True)]
            for kind, found in samples.items():
                found += sides.samples(kind, samples_max - len(found))
        left_a, left_b, lag, lag_a, paired, near = counts
        # A row that is not in the moving table may have come and gone between its two versions.
        gone = (left_b if moving == "a" else left_a) - paired
        return Comparison(
            only_a=left_a - paired,
            only_b=left_b - paired,
            differing=paired - near,
            same=sides.rows_a() - left_a - lag_a + near,
            lag=lag,
            samples=tuple(sample for found in samples.values() for sample in found),
            columns=tuple(sides.columns),
            columns_only_a=sides.columns_only_a,
            columns_only_b=sides.columns_only_b,
            version_a=a.version,
            version_b=b.version,
            doubtful=earlier is not None and bool(key) and (not told or gone > 0),
        )


def _attach_orders(connection: "DuckDBPyConnection", key: Sequence[str], now: Snapshot, before: Snapshot) -> bool:
    """Which record made the row of each key, in both versions; False where the table does not keep that."""
    columns = list(dict.fromkeys([*key, ORDER]))
    if not key or any(
        not {ORDER, *key} <= {each.name for each in side.table.schema().fields} for side in (now, before)
    ):
        return False
    attach(connection, "orders_now", now, columns=columns)
    attach(connection, "orders_before", before, columns=columns)
    return True


def parts_needed(sides: Sequence[Snapshot], memory_mb_max: int) -> int:
    """How many shares to read the tables in, so that one share takes about half of the memory."""
    sizes = [size_of(side) for side in sides]
    bytes_needed = sum(size.bytes * _UNPACKING + (size.rows or 0) * _ROW_BYTES for size in sizes)
    return max(1, -(-bytes_needed // (memory_mb_max * 500_000)))


class _Sides:
    """The two tables in DuckDB, and what is left over of one share of them at a time."""

    def __init__(
        self,
        connection: "DuckDBPyConnection",
        a: Snapshot,
        b: Snapshot,
        *,
        key: Sequence[str],
        ignore: Sequence[str],
        tolerance: float,
        moving: Literal["a", "b"] | None,
        told: bool,
    ) -> None:
        """`told`: `orders_now` and `orders_before` say which record made each row of the moving side."""
        self._connection = connection
        self._told = told
        self._moving = moving
        self._types = [self._described("side_a"), self._described("side_b")]
        in_a, in_b = self._types
        self.columns = [name for name in in_a if name in in_b and name not in ignore]
        self.columns_only_a = tuple(name for name in in_a if name not in in_b and name not in ignore)
        self.columns_only_b = tuple(name for name in in_b if name not in in_a and name not in ignore)
        self._key = list(dict.fromkeys(key))
        self._tolerance = tolerance
        for name in self._key:
            if name not in self.columns:
                shared = ", ".join(self.columns) or "none"
                raise OperatorError(f"key {name}: not a compared column of both tables; these are: {shared}")
        if not self.columns:
            raise OperatorError(f"{a.name} and {b.name}: no column in common, so nothing to compare")
        names = _names(self.columns)
        earlier = ""
        if moving is not None:
            there = self._described("side_before")
            of_then = ", ".join(quoted(each) if each in there else f"null as {quoted(each)}" for each in self.columns)
            earlier = f" union all by name (select {of_then}, 'before' as side from side_before)"
        connection.execute(
            f"create temp view all_sides as (select {names}, 'a' as side from side_a) "
            f"union all by name (select {names}, 'b' as side from side_b){earlier}"
        )

    def _described(self, view: str) -> dict[str, str]:
        return {row[0]: row[1] for row in self._connection.execute(f"describe {view}").fetchall()}

    def rows_a(self) -> int:
        return self._numbers("select count(*) from side_a")[0]

    def count(self, part: int, parts: int) -> list[int]:
        """Rows left over on either side, those that are lag (in all, and of the first side), how many of the left-over
        ones pair up by key, how many of those are within tolerance."""
        columns = _names(self.columns)
        share = f"where hash({_names(self._key or self.columns)}) % {parts} = {part}" if parts > 1 else ""
        moved = f" or n_{self._moving} <> n_before" if self._moving is not None else ""
        self._connection.execute(
            f"create or replace temp table counted as select * from (select {columns}, "
            "count(*) filter (side = 'a') as n_a, count(*) filter (side = 'b') as n_b, "
            "count(*) filter (side = 'before') as n_before "
            f"from all_sides {share} group by {columns}) where n_a <> n_b{moved}"
        )
        if self._told:
            self._find_rewritten(share)
        left_a, left_b = "greatest(n_a - n_b, 0)", "greatest(n_b - n_a, 0)"
        lag = self._lag(left_a, left_b)
        self._connection.execute(
            f"create or replace temp table leftover as select {columns}, {left_a} - lag_a as left_a, "
            f"{left_b} - lag_b as left_b from ({lag}) where {left_a} > lag_a or {left_b} > lag_b"
        )
        left = self._numbers("select coalesce(sum(left_a), 0), coalesce(sum(left_b), 0) from leftover")
        left += self._lag_counts(lag) if self._moving is not None else [0, 0]
        return left + self._pair() if self._key else [*left, 0, 0]

    def _lag(self, left_a: str, left_b: str) -> str:
        """`counted` with how many of the left-over rows are lag."""
        if self._moving is None:
            return "select *, 0 as lag_a, 0 as lag_b from counted"
        mine = f"n_{self._moving}"
        if self._key:
            changed = f"bool_or({mine} <> n_before) over (partition by {_names(self._key)})"
            if self._told:
                changed += f" or exists (from rewritten r where {self._same_key('r', 'counted')})"
            inner = f"select *, {changed} as changed from counted"
            return (
                f"select *, case when changed then {left_a} else 0 end as lag_a, "
                f"case when changed then {left_b} else 0 end as lag_b from ({inner})"
            )
        came, went = f"greatest({mine} - n_before, 0)", f"greatest(n_before - {mine}, 0)"
        in_a, in_b = (came, went) if self._moving == "a" else (went, came)
        return f"select *, least({left_a}, {in_a}) as lag_a, least({left_b}, {in_b}) as lag_b from counted"

    def _find_rewritten(self, share: str) -> None:
        """The keys whose row another record made than before, also where it says the same."""
        order = f"{_names(self._key)}, {quoted(ORDER)}"
        now, before = (f"(select {order} from {view} {share})" for view in ("orders_now", "orders_before"))
        self._connection.execute(
            f"create or replace temp table rewritten as select distinct {_names(self._key)} from "
            f"(({now} except all {before}) union all ({before} except all {now}))"
        )

    def _lag_counts(self, lag: str) -> list[int]:
        """A row that one key has on both sides is one."""
        if not self._key:
            return self._numbers(f"select coalesce(sum(lag_a + lag_b), 0), coalesce(sum(lag_a), 0) from ({lag})")
        return self._numbers(
            "select coalesce(sum(greatest(a, b)), 0), coalesce(sum(a), 0) from (select sum(lag_a) as a, "
            f"sum(lag_b) as b from ({lag}) group by {_names(self._key)})"
        )

    def _pair(self) -> list[int]:
        """Left-over rows of both sides with one key are rows that differ."""
        self._connection.execute(
            f"create or replace temp table keyed as select {_names(self._key)}, sum(left_a)::bigint as left_a, "
            f"sum(left_b)::bigint as left_b from leftover group by {_names(self._key)}"
        )
        # Side by side only where it is clear which row became which.
        shown = ", ".join(
            f"a.{quoted(name)} as {quoted('a ' + name)}, b.{quoted(name)} as {quoted('b ' + name)}"
            for name in self.columns
        )
        changed = ", ".join(
            f"case when {self._differs(name)} then {literal(name)} end"
            for name in self.columns
            if name not in self._key
        )
        self._connection.execute(
            f"create or replace temp view pairs as select {shown}, "
            f"[x for x in [{changed or 'null'}] if x is not null] as changed from leftover a "
            f"join leftover b on {self._same_key('a', 'b')} join keyed k on {self._same_key('k', 'a')} "
            "where a.left_a > 0 and b.left_b > 0 and k.left_a = 1 and k.left_b = 1"
        )
        paired = self._numbers("select coalesce(sum(least(left_a, left_b)), 0) from keyed")
        if self._tolerance <= 0:
            return [*paired, 0]
        return paired + self._numbers("select count(*) from pairs where len(changed) = 0")

    def _same_key(self, left: str, right: str) -> str:
        return " and ".join(f"{left}.{quoted(name)} is not distinct from {right}.{quoted(name)}" for name in self._key)

    def _differs(self, name: str) -> str:
        column = quoted(name)
        plain = f"a.{column} is distinct from b.{column}"
        if self._tolerance <= 0 or not all(kinds[name] in ("DOUBLE", "FLOAT") for kinds in self._types):
            return plain
        bound = f"{self._tolerance!r} * greatest(abs(a.{column}), abs(b.{column}))"
        return f"({plain} and coalesce(not abs(a.{column} - b.{column}) <= {bound}, true))"

    def samples(self, kind: Kind, count_max: int) -> list[Sample]:
        """Some rows of the share that was counted last."""
        if count_max <= 0 or (kind == "differing" and not self._key):
            return []
        if kind == "differing":
            return self._differing(count_max)
        side, other = ("a", "b") if kind == "only_a" else ("b", "a")
        columns = ", ".join(f"l.{quoted(name)}::varchar" for name in self.columns)
        order = ", ".join(f"l.{quoted(name)}" for name in self._key or self.columns)
        sql = f"select {columns} from leftover l"
        if self._key:
            sql += f" join keyed k on {self._same_key('k', 'l')} and k.left_{side} > k.left_{other}"
        rows = self._rows(f"{sql} where l.left_{side} > 0 order by {order} limit {count_max}")
        found = [dict(zip(self.columns, row, strict=True)) for row in rows]
        return [Sample(kind=kind, a=row) if side == "a" else Sample(kind=kind, b=row) for row in found]

    def _differing(self, count_max: int) -> list[Sample]:
        texts = ", ".join(f"{quoted(f'{side} {name}')}::varchar" for side in "ab" for name in self.columns)
        order = ", ".join(quoted("a " + name) for name in self._key)
        rows = self._rows(
            f"select {texts}, changed from pairs where len(changed) > 0 order by {order} limit {count_max}"
        )
        width = len(self.columns)
        return [
            Sample(
                kind="differing",
                a=dict(zip(self.columns, values[:width], strict=True)),
                b=dict(zip(self.columns, values[width:], strict=True)),
                changed=tuple(changed),
            )
            for *values, changed in rows
        ]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def _numbers(self, sql: str) -> list[int]:
        return [int(value) for value in self._rows(sql)[0]]


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))
