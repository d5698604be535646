"""SQL over tables: which are opened, at which version, and what comes out."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from delta_tables import write, write_with_deletions
from shop import fill_version, make_shop, replayed

from headrace.core.errors import OperatorError
from headrace.tables import query as query_module
from headrace.tables.query import prepared
from headrace.tables.reading import open_snapshot


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables")
    make_shop(path)
    write(path / "Plain", "select 1 i, timestamptz '2026-01-02 03:04:05+00' as \"at\", 'nan'::double x, [1, 2] l")
    write(path / "Plain", "select 2 i", mode="overwrite", schema_mode="overwrite")
    return path


def answer(
    tables: Path, sql: str, *, version: int | None = None, at: datetime | None = None
) -> list[tuple[str | None, ...]]:
    with prepared(str(tables), sql, version=version, at=at) as ready:
        return list(ready.texts())


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select count(*) from clean_orders", [("30",)]),
        ("from clean_orders select sum(amount) where day = '2026-01-02'", [("225.0",)]),
        ("select count(*) from CLEAN_ORDERS", [("30",)]),
        ("select count(*) from clean_orders a join clean_orders b using (order_id)", [("30",)]),
        ("select count(*) from clean_orders, revenue", [("60",)]),
        ("with clean_orders as (from clean_orders limit 3) select count(*) from clean_orders", [("3",)]),
        ("with x as (select 1 as n) select n from x", [("1",)]),
        ("with recursive x(n) as (select 1 union all select n + 1 from x where n < 4) select max(n) from x", [("4",)]),
        ('select count(*) from "clean_orders@v0"', [("10",)]),
        ('select (select count(*) from clean_orders) - (select count(*) from "clean_orders@v1")', [("10",)]),
        ('select reason from _quarantine.clean_orders where "partition" = 1', [("amount is positive",)]),
        ("select i from plain;", [("2",)]),
        ("select count(*) from clean_orders -- a comment", [("30",)]),
        ("select 1 + 1", [("2",)]),
        (
            "pivot (select customer, day from clean_orders) on day using count(*) order by customer limit 1",
            [("c0", "5", "5")],
        ),
        ("select * from clean_orders where exists (from revenue r where r.amount > order_id) limit 1", None),
    ],
)
def test_a_query_answers(tables: Path, sql: str, expected: list[tuple[str, ...]] | None) -> None:
    found = answer(tables, sql)
    assert found == expected if expected is not None else len(found) == 1


def test_only_the_tables_that_the_sql_names_are_opened(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def recording(path: str, **options: object) -> object:
        opened.append(Path(path).name)
        return open_snapshot(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(query_module, "open_snapshot", recording)
    answer(tables, "select count(*) from revenue where customer in (select customer from clean_orders)")
    assert sorted(opened) == ["clean_orders", "revenue"]


def test_a_column_called_at_needs_no_quotes(tables: Path) -> None:
    with prepared(str(tables), "select at, max(at) from \"Plain@v0\" where at > '2000-01-01' group by at") as ready:
        assert list(ready.texts()) == [("2026-01-02 03:04:05+00", "2026-01-02 03:04:05+00")]
    sql = "select ä.at at time zone 'UTC' as t, 'at' as s from \"Plain@v0\" as ä order by at -- at"
    assert answer(tables, sql) == [("2026-01-02 03:04:05", "at")]


def test_json_has_iso_times_and_no_words_that_json_does_not_know(tables: Path) -> None:
    with prepared(str(tables), 'from "Plain@v0"') as ready:
        (row,) = map(json.loads, ready.json_rows())
    assert row == {"i": 1, "at": "2026-01-02T03:04:05.000000Z", "x": None, "l": [1, 2]}


def test_a_version_applies_to_the_one_table_of_the_query(tables: Path) -> None:
    assert answer(tables, "select count(*) from clean_orders", version=1) == [("20",)]
    with pytest.raises(
        OperatorError, match=r'the query reads clean_orders, revenue; write "\w+@v1" in the SQL instead'
    ):
        answer(tables, "from clean_orders, revenue", version=1)
    with pytest.raises(OperatorError, match="--version: the query reads no table"):
        answer(tables, "select 1", version=1)


def test_before_a_cut_over_the_old_version_answers(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    cut_at = replayed(shop)
    sql = "select max(amount) from clean_orders"
    assert answer(tmp_path, sql) == [("58.0",)]
    assert answer(tmp_path, sql, at=cut_at) == [("58.0",)]
    assert answer(tmp_path, sql, at=cut_at - timedelta(milliseconds=1)) == [("29.0",)]


def test_a_cut_over_in_the_middle_of_a_query_changes_nothing_for_it(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    with prepared(
        str(tmp_path), "select (select max(amount) from clean_orders), (select max(amount) from revenue)"
    ) as ready:
        replayed(shop)
        assert list(ready.texts()) == [("29.0", "1.0")]


def test_no_query_mixes_versions_while_others_cut_over(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    fill_version(shop, shop.begin_version("# two\n", ["clean_orders", "revenue"]).number, 2)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            shop.cut_over(2)
            shop.cut_over(1)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        sql = "select (select max(amount) from clean_orders) / 29, (select max(amount) from revenue)"
        for _ in range(25):
            ((orders, revenue),) = answer(tmp_path, sql)
            assert orders == revenue
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("from clean_order", "clean_order: no such table in .*; did you mean clean_orders?"),
        ("selec 1", 'query: Parser Error: syntax error at or near "selec"'),
        ("select nothing from revenue", 'query: Binder Error: Referenced column "nothing" not found'),
        ("select 1; select 2", "a query is one statement, this has 2"),
        ("", "a query is one statement, this has 0"),
        ("drop table revenue", "drop: a query only reads"),
        ("insert into revenue values ('x', 1)", "insert: a query only reads"),
        ("copy revenue to 'x.csv'", "copy: a query only reads"),
        ("install httpfs", "a query only reads"),
        ('from "clean_orders@v9"', r"clean_orders: version 9 is outside \[0, 2\]"),
        ("select amount / 'x' from revenue", "query: Conversion Error"),
        ("from missing.orders", "query: Catalog Error"),
    ],
)
def test_what_cannot_be_answered_is_one_line(tables: Path, sql: str, said: str) -> None:
    with pytest.raises(OperatorError, match=said) as error:
        answer(tables, sql)
    assert "\n" not in str(error.value)


def test_explain_shows_a_plan(tables: Path) -> None:
    ((_, plan),) = answer(tables, "explain select count(*) from revenue")
    assert plan is not None
    assert "Parquet" in plan or "PARQUET" in plan


def test_a_table_that_is_streamed_can_be_named_twice(tables: Path, tmp_path: Path) -> None:
    """Deletion vectors go through deltalake's stream, which can be read only once."""
    write_with_deletions(tmp_path / "t", rows=5, deleted=[1, 3])
    assert answer(tmp_path, "select count(*), sum(a.i) from t a join t b using (i)") == [("3", "6")]


def test_another_delta_directory_can_be_named_by_its_path(tables: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", "select 42 i")
    assert answer(tables, f"select i from '{tmp_path / 'other'}'") == [("42",)]


def test_python_variables_are_not_tables(tables: Path) -> None:
    rows = [1, 2]
    with pytest.raises(OperatorError, match="rows: no such table"):
        answer(tables, f"from {'rows'}")
    assert rows
