"""Versions of a pipeline: made, cut over, rolled back, discarded; and the paths that readers follow."""

from __future__ import annotations

import errno
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.core.clock import ManualClock
from headrace.core.errors import OperatorError
from headrace.tables.catalog import PipelineCatalog, pipelines
from headrace.tables.links import LinkDisk
from headrace.tables.versions import time_of_ms


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shop(tmp_path: Path, clock: ManualClock) -> PipelineCatalog:
    return PipelineCatalog.open(tmp_path, "shop", clock=clock)


def fill(catalog: PipelineCatalog, number: int, table: str, text: str) -> None:
    path = Path(catalog.layout.table_dir(number, table))
    (path / "_delta_log").mkdir(parents=True)
    (path / "content").write_text(text)


def seen(tables: Path, table: str) -> str:
    return (tables / table / "content").read_text()


def reopened(catalog: PipelineCatalog) -> PipelineCatalog:
    again = PipelineCatalog.open(catalog.layout.tables_dir, catalog.pipeline)
    assert again.versions == catalog.versions
    assert again.intervals == catalog.intervals
    return again


def test_opening_the_catalog_of_a_pipeline_that_never_ran_writes_nothing(tmp_path: Path) -> None:
    catalog = PipelineCatalog.open(tmp_path / "none", "shop")
    assert catalog.versions == ()
    assert catalog.live is None
    assert not (tmp_path / "none").exists()


def test_the_first_version_is_live_at_once(shop: PipelineCatalog, tmp_path: Path, clock: ManualClock) -> None:
    version = shop.create_first("print(1)\n", ["revenue", "orders"], note="first")
    assert (version.number, version.state, version.tables) == (1, "live", ("orders", "revenue"))
    assert version.created_at == time_of_ms(clock.now_ms())
    assert Path(shop.layout.code_file(1)).read_text() == "print(1)\n"
    assert os.readlink(tmp_path / "orders") == ".headrace/shop/live/orders"
    assert os.readlink(shop.layout.live_link) == "v1"
    fill(shop, 1, "orders", "one")
    assert seen(tmp_path, "orders") == "one"
    reopened(shop)


def test_a_second_first_version_is_refused(shop: PipelineCatalog) -> None:
    shop.create_first("", ["orders"])
    with pytest.raises(OperatorError, match="version 1 is live already; replay"):
        shop.create_first("", ["orders"])


def test_a_version_is_built_beside_the_live_one(shop: PipelineCatalog, tmp_path: Path) -> None:
    shop.create_first("a", ["orders"])
    fill(shop, 1, "orders", "one")
    version = shop.begin_version("b", ["orders", "clicks"], note="with clicks")
    assert (version.number, version.state, version.note) == (2, "building", "with clicks")
    assert version.code_sha256 != shop.version(1).code_sha256
    assert os.listdir(shop.layout.version_dir(2)) == ["pipeline.py"]
    assert not os.path.lexists(tmp_path / "clicks")
    assert seen(tmp_path, "orders") == "one"
    reopened(shop)


def test_a_version_needs_a_live_one_to_be_compared_with(shop: PipelineCatalog) -> None:
    with pytest.raises(OperatorError, match="nothing is live yet"):
        shop.begin_version("b", ["orders"])


def test_a_cut_over_moves_all_tables_and_records_the_time(
    shop: PipelineCatalog, tmp_path: Path, clock: ManualClock
) -> None:
    shop.create_first("a", ["orders", "old"])
    shop.begin_version("b", ["orders", "clicks"])
    for number in (1, 2):
        fill(shop, number, "orders", f"orders {number}")
    fill(shop, 2, "clicks", "clicks 2")
    clock.advance(60_000)
    version = shop.cut_over(2)
    assert (version.state, version.before) == ("live", 1)
    assert shop.version(1).state == "retired"
    assert seen(tmp_path, "orders") == "orders 2"
    assert seen(tmp_path, "clicks") == "clicks 2"
    assert not os.path.lexists(tmp_path / "old")  # the live version has no such table
    first, second = shop.intervals
    assert first.until == second.since == time_of_ms(clock.now_ms())
    assert second.until is None
    history = shop.history
    assert history.live_at(second.since - timedelta(milliseconds=1)) == shop.version(1)
    assert history.live_at(second.since) == shop.version(2)
    assert history.live_at(first.since - timedelta(milliseconds=1)) is None
    reopened(shop)


def test_a_roll_back_is_one_call_and_goes_back_further_when_called_again(shop: PipelineCatalog, tmp_path: Path) -> None:
    shop.create_first("a", ["orders", "old"])
    fill(shop, 1, "old", "kept")
    for _ in range(2):
        shop.cut_over(shop.begin_version("b", ["orders"]).number)
    assert shop.roll_back().number == 2
    assert shop.roll_back().number == 1
    assert seen(tmp_path, "old") == "kept"
    with pytest.raises(OperatorError, match="no version was live before"):
        shop.roll_back()
    assert [each.state for each in shop.versions] == ["live", "retired", "retired"]
    assert [each.version for each in shop.intervals] == [1, 2, 3, 2, 1]
    assert shop.cut_over(3).before == 1  # what was rolled back can be cut over again
    assert shop.roll_back().number == 1
    reopened(shop)


def test_a_roll_back_skips_what_was_discarded(shop: PipelineCatalog) -> None:
    shop.create_first("a", ["orders"])
    for _ in range(2):
        shop.cut_over(shop.begin_version("b", ["orders"]).number)
    shop.discard(2)
    assert shop.roll_back().number == 1


def test_discarding_removes_the_directory_but_never_the_live_one(shop: PipelineCatalog) -> None:
    shop.create_first("a", ["orders"])
    shop.begin_version("b", ["orders"])
    fill(shop, 2, "orders", "gone")
    with pytest.raises(OperatorError, match="version 1 is live; roll back or cut over first"):
        shop.discard(1)
    assert shop.discard(2).state == "discarded"
    assert sorted(os.listdir(shop.layout.root)) == ["catalog.json", "live", "v1"]
    with pytest.raises(OperatorError, match="version 2 was discarded"):
        shop.cut_over(2)
    assert shop.begin_version("c", ["orders"]).number == 3  # a number is never used again
    reopened(shop)


def test_an_unknown_version_is_refused_with_those_there_are(shop: PipelineCatalog) -> None:
    shop.create_first("a", ["orders"])
    with pytest.raises(OperatorError, match="no version 7; there are: 1"):
        shop.cut_over(7)


def test_a_plain_directory_in_the_way_is_refused_before_anything_is_made(shop: PipelineCatalog, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    with pytest.raises(OperatorError, match="not a link of Headrace's; move it away, or rename table orders"):
        shop.create_first("a", ["orders"])
    assert shop.versions == ()


def test_a_foreign_link_in_the_way_is_refused(shop: PipelineCatalog, tmp_path: Path) -> None:
    (tmp_path / "orders").symlink_to("/elsewhere")
    with pytest.raises(OperatorError, match="a link to /elsewhere, not ours"):
        shop.create_first("a", ["orders"])


def test_a_table_name_belongs_to_one_pipeline(shop: PipelineCatalog, tmp_path: Path) -> None:
    shop.create_first("a", ["orders"])
    other = PipelineCatalog.open(tmp_path, "other")
    with pytest.raises(OperatorError, match="table orders: belongs to pipeline shop; rename it"):
        other.create_first("b", ["orders"])
    other.create_first("b", ["clicks"])
    assert pipelines(tmp_path) == ("other", "shop")
    # A retired version may come back, so its names stay taken; a discarded one's do not.
    shop.cut_over(shop.begin_version("b", ["sales"]).number)
    with pytest.raises(OperatorError, match="belongs to pipeline shop"):
        other.begin_version("b", ["orders"])
    shop.discard(1)
    assert other.begin_version("b", ["orders"]).tables == ("orders",)


@pytest.mark.parametrize("name", ["", "_x", ".x", "a/b", "1a", "a b", "x" * 201, "live/../x"])
def test_a_name_that_is_no_table_name_is_refused(shop: PipelineCatalog, name: str) -> None:
    with pytest.raises(OperatorError, match="not a name for a table"):
        shop.create_first("a", [name])


@pytest.mark.parametrize("name", ["", "..", ".lock", "a/b", "_x"])
def test_a_name_that_is_no_pipeline_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OperatorError, match="not a name for a pipeline"):
        PipelineCatalog.open(tmp_path, name)


def test_a_version_can_declare_another_table_and_new_code(shop: PipelineCatalog, tmp_path: Path) -> None:
    old = shop.create_first("a", ["orders"])
    new = shop.declare(1, tables=["orders", "clicks"], code="b")
    assert new.tables == ("clicks", "orders")
    assert new.code_sha256 != old.code_sha256
    assert os.readlink(tmp_path / "clicks") == ".headrace/shop/live/clicks"
    assert Path(shop.layout.code_file(1)).read_text() == "b"
    reopened(shop)


def test_an_open_catalog_sees_what_others_changed_when_it_looks_again(shop: PipelineCatalog, tmp_path: Path) -> None:
    reader = PipelineCatalog.open(tmp_path, "shop")
    shop.create_first("a", ["orders"])
    assert reader.live is None
    reader.refresh()
    assert reader.live is not None


def test_a_broken_catalog_says_what_to_do(shop: PipelineCatalog) -> None:
    shop.create_first("a", ["orders"])
    Path(shop.layout.catalog_file).write_text('{"format": 1')
    with pytest.raises(OperatorError, match=r"catalog\.json: not a catalog .*put back a good copy, or remove it"):
        PipelineCatalog.open(shop.layout.tables_dir, "shop")


def test_a_newer_format_is_refused(shop: PipelineCatalog) -> None:
    shop.create_first("a", ["orders"])
    path = Path(shop.layout.catalog_file)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(OperatorError, match="format is 99, this Headrace knows 1"):
        PipelineCatalog.open(shop.layout.tables_dir, "shop")


def test_a_lost_catalog_is_made_again_from_the_directories(shop: PipelineCatalog, tmp_path: Path) -> None:
    shop.create_first("a", ["orders"])
    shop.begin_version("b", ["orders"])
    for number in (1, 2):
        fill(shop, number, "orders", str(number))
    shop.cut_over(2)
    os.unlink(shop.layout.catalog_file)
    again = PipelineCatalog.open(tmp_path, "shop")
    assert [(each.number, each.state, each.tables) for each in again.versions] == [
        (1, "retired", ("orders",)),
        (2, "live", ("orders",)),
    ]
    assert again.intervals[-1].since == shop.intervals[-1].since
    assert seen(tmp_path, "orders") == "2"


def test_links_that_somebody_removed_are_made_again(shop: PipelineCatalog, tmp_path: Path) -> None:
    shop.create_first("a", ["orders"])
    os.unlink(shop.layout.live_link)
    os.unlink(tmp_path / "orders")
    again = PipelineCatalog.open(tmp_path, "shop")
    assert os.readlink(again.layout.live_link) == "v1"
    assert os.readlink(tmp_path / "orders") == ".headrace/shop/live/orders"
    assert again.intervals == shop.intervals


def test_what_stands_in_the_way_later_is_a_warning_not_a_failure(shop: PipelineCatalog, tmp_path: Path) -> None:
    shop.create_first("a", ["orders"])
    os.unlink(tmp_path / "orders")
    (tmp_path / "orders").mkdir()
    again = PipelineCatalog.open(tmp_path, "shop")
    assert again.live is not None
    assert "orders: something that is not a link in the way" in again.warnings[0]


def test_a_missing_directory_of_the_live_version_is_a_warning_each_time(shop: PipelineCatalog, tmp_path: Path) -> None:
    shop.create_first("a", ["orders"])
    os.rename(shop.layout.version_dir(1), tmp_path / "elsewhere")
    for _ in range(2):
        assert "v1: missing; put it back" in PipelineCatalog.open(tmp_path, "shop").warnings[0]
    os.rename(tmp_path / "elsewhere", shop.layout.version_dir(1))
    assert PipelineCatalog.open(tmp_path, "shop").warnings == ()


def test_the_whole_directory_can_be_moved(shop: PipelineCatalog, tmp_path: Path) -> None:
    inner = tmp_path / "a"
    catalog = PipelineCatalog.open(inner, "shop")
    catalog.create_first("a", ["orders"])
    fill(catalog, 1, "orders", "one")
    inner.rename(tmp_path / "b")
    assert seen(tmp_path / "b", "orders") == "one"
    assert PipelineCatalog.open(tmp_path / "b", "shop").live is not None


def test_a_clock_that_goes_back_makes_no_interval_that_ends_before_it_begins(
    shop: PipelineCatalog, clock: ManualClock
) -> None:
    shop.create_first("a", ["orders"])
    shop.begin_version("b", ["orders"])
    clock.advance(-3_600_000)
    shop.cut_over(2)
    assert all(each.until is None or each.since <= each.until for each in shop.intervals)


def half_cut_over(shop: PipelineCatalog) -> None:
    """Version 2 is live by its link, and the catalog does not know yet."""
    shop.create_first("a", ["orders"])
    shop.begin_version("b", ["orders"])
    shop._swap_live(2, 1_700_000_900_000)


def test_where_nothing_may_be_written_the_state_is_mended_in_memory(shop: PipelineCatalog, tmp_path: Path) -> None:
    class ReadOnlyDisk(LinkDisk):
        def make_directory(self, path: str) -> None:
            raise OSError(errno.EROFS, "read-only file system", path)

    half_cut_over(shop)
    written = Path(shop.layout.catalog_file).read_bytes()
    found = PipelineCatalog.open(tmp_path, "shop", disk=ReadOnlyDisk())
    assert found.live is not None
    assert (found.live.number, found.intervals[-1].since) == (2, time_of_ms(1_700_000_900_000))
    assert Path(shop.layout.catalog_file).read_bytes() == written
    with pytest.raises(OSError, match="read-only"):
        found.roll_back()


def test_a_reader_does_not_wait_for_a_change_that_somebody_else_makes(shop: PipelineCatalog, tmp_path: Path) -> None:
    half_cut_over(shop)
    with LinkDisk().locked(shop.layout.lock_file):
        found = PipelineCatalog.open(tmp_path, "shop")
    assert found.live is not None
    assert found.live.number == 2


def test_a_change_that_waits_too_long_for_another_says_so(
    shop: PipelineCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create_first("a", ["orders"])
    monkeypatch.setattr(shop, "_lock_wait_seconds_max", 0.05)
    with (
        LinkDisk().locked(shop.layout.lock_file),
        pytest.raises(OperatorError, match=r"\.lock: locked by another process for 0 s; let its cut-over end"),
    ):
        shop.begin_version("b", ["orders"])


def test_a_version_takes_over_nodes_of_another_and_keeps_it_from_being_discarded(
    shop: PipelineCatalog, tmp_path: Path
) -> None:
    shop.create_first("a", ["orders", "revenue"])
    fill(shop, 1, "orders", "orders 1")
    fill(shop, 1, "revenue", "revenue 1")
    files = {"_schemas/orders.ddl": b"id int\n"}
    made = shop.begin_version("b", ["orders", "revenue"], taken={"orders": 1, "alerts": 1}, files=files)
    fill(shop, 2, "revenue", "revenue 2")
    assert (made.owner("orders"), made.owner("alerts"), made.owner("revenue")) == (1, 1, 2)
    # Links for all that belongs to a node, also for what is not there yet; one that is no table has no table.
    assert os.readlink(shop.layout.checkpoint_dir(2, "alerts")) == "../../v1/_checkpoints/alerts"
    assert os.readlink(shop.layout.expectations_file(2, "orders")) == "../../v1/_expectations/orders.jsonl"
    assert not os.path.lexists(shop.layout.table_dir(2, "alerts"))
    assert Path(shop.layout.version_dir(2), "_schemas", "orders.ddl").read_bytes() == b"id int\n"
    shop.cut_over(2)
    assert (seen(tmp_path, "orders"), seen(tmp_path, "revenue")) == ("orders 1", "revenue 2")
    assert json.loads(Path(shop.layout.catalog_file).read_bytes())["format"] == 2
    with pytest.raises(OperatorError, match="version 1 holds alerts, orders, which version 2 has taken over; discard"):
        reopened(shop).discard(1)
    # A catalog that was lost knows it again from the links.
    os.unlink(shop.layout.catalog_file)
    found = PipelineCatalog.open(tmp_path, "shop")
    assert found.version(2).taken == {"orders": 1, "alerts": 1}
    found.cut_over(1)
    found.discard(2)
    assert seen(tmp_path, "orders") == "orders 1"
    found.begin_version("c", ["orders"], taken={"orders": 1})
    found.discard(3)
    assert json.loads(Path(shop.layout.catalog_file).read_bytes())["format"] == 2


def test_a_version_takes_nothing_over_from_one_that_is_gone(shop: PipelineCatalog) -> None:
    shop.create_first("a", ["orders"])
    shop.begin_version("b", ["orders"])
    shop.discard(2)
    with pytest.raises(OperatorError, match="version 2 was discarded"):
        shop.begin_version("c", ["orders"], taken={"orders": 2})
    assert [version.number for version in shop.versions] == [1, 2]
