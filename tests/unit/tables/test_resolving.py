"""From names to directories, now and at a time."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from delta_tables import write
from shop import make_shop, replayed

import headrace
from headrace.core.errors import OperatorError
from headrace.tables.resolving import Resolver, resolve


def test_a_name_leads_to_the_live_version_and_at_a_time_to_the_one_live_then(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    cut_at = replayed(shop)
    assert resolve(tmp_path, "clean_orders") == shop.layout.table_dir(2, "clean_orders")
    assert resolve(tmp_path, "clean_orders", cut_at) == shop.layout.table_dir(2, "clean_orders")
    before = cut_at - timedelta(milliseconds=1)
    assert resolve(tmp_path, "clean_orders", before) == shop.layout.table_dir(1, "clean_orders")
    assert os.path.realpath(tmp_path / "clean_orders") == resolve(tmp_path, "clean_orders")


def test_a_time_before_the_first_version_is_refused(tmp_path: Path) -> None:
    make_shop(tmp_path)
    with pytest.raises(OperatorError, match=r"nothing was live at 2000-01-01T00:00:00.000Z; pipeline shop began at"):
        resolve(tmp_path, "clean_orders", datetime(2000, 1, 1, tzinfo=UTC))


def test_a_time_of_a_discarded_version_is_refused(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    cut_at = replayed(shop)
    shop.discard(1)
    with pytest.raises(OperatorError, match="version 1 of pipeline shop, live at that time, was discarded"):
        resolve(tmp_path, "clean_orders", cut_at - timedelta(milliseconds=1))


def test_a_table_that_the_live_version_dropped_is_still_there_at_its_time(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    shop.cut_over(shop.begin_version("# two", ["clean_orders"]).number)
    write(shop.layout.table_dir(2, "clean_orders"), "select 1 i")
    before = shop.intervals[-1].since - timedelta(milliseconds=1)
    assert resolve(tmp_path, "revenue", before) == shop.layout.table_dir(1, "revenue")
    with pytest.raises(OperatorError, match="version 2 of pipeline shop has no such table; it has clean_orders"):
        resolve(tmp_path, "revenue")


def test_one_resolver_stays_on_one_version_while_a_cut_over_happens(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    resolver = Resolver(tmp_path)
    first = resolver.resolve("clean_orders")
    replayed(shop)
    assert (first.version, resolver.resolve("revenue").version) == (1, 1)
    assert Resolver(tmp_path).resolve("revenue").version == 2


def test_a_table_that_was_declared_but_not_written_says_so(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    shop.declare(1, tables=["clean_orders", "revenue", "later"])
    with pytest.raises(OperatorError, match="later: version 1 of pipeline shop has not written it yet"):
        resolve(tmp_path, "later")


def test_plain_delta_directories_work_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "tables" / "mine", "select 1 i")
    write(tmp_path / "elsewhere", "select 1 i")
    (tmp_path / "tables" / "linked").symlink_to(tmp_path / "elsewhere")
    assert resolve(tmp_path / "tables", "mine") == str(tmp_path / "tables" / "mine")
    assert resolve(tmp_path / "tables", "linked") == str(tmp_path / "elsewhere")
    assert resolve(tmp_path / "tables", str(tmp_path / "elsewhere")) == str(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    assert resolve("tables", "./elsewhere") == str(tmp_path / "elsewhere")
    with pytest.raises(OperatorError, match="nowhere: not a Delta table; give the path of a directory"):
        resolve("tables", "./nowhere")


def test_a_quarantine_has_a_name_of_its_own(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    for name in ("_quarantine/clean_orders", "_quarantine.clean_orders"):
        assert resolve(tmp_path, name) == shop.layout.quarantine_dir(1, "clean_orders")
    with pytest.raises(OperatorError, match="_quarantine/nothing: no such table"):
        resolve(tmp_path, "_quarantine/nothing")


def test_all_tables_are_listed(tmp_path: Path) -> None:
    make_shop(tmp_path)
    write(tmp_path / "plain", "select 1 i")
    (tmp_path / "no table").mkdir()
    places = Resolver(tmp_path).places()
    assert [(each.name, each.kind, each.pipeline, each.version) for each in places] == [
        ("clean_orders", "pipeline", "shop", 1),
        ("plain", "plain", None, None),
        ("revenue", "pipeline", "shop", 1),
        ("_quarantine/clean_orders", "quarantine", "shop", 1),
    ]


def test_an_unknown_name_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    make_shop(tmp_path)
    with pytest.raises(OperatorError, match=r"clean_order: no such table in .*; did you mean clean_orders?"):
        resolve(tmp_path, "clean_order")
    with pytest.raises(OperatorError, match=r"zzz: no such table in .*; there are: clean_orders, revenue"):
        resolve(tmp_path, "zzz")
    with pytest.raises(OperatorError, match=r"none: no such directory; give --tables DIR or set HEADRACE_TABLES"):
        resolve(tmp_path / "none", "zzz")


def test_python_users_get_the_path_from_headrace_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = make_shop(tmp_path)
    expected = shop.layout.table_dir(1, "clean_orders")
    assert headrace.table_path("clean_orders", tables=tmp_path) == expected
    monkeypatch.setenv("HEADRACE_TABLES", str(tmp_path))
    assert headrace.table_path("clean_orders") == expected
