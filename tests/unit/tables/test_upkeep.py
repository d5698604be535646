"""Restore, vacuum and optimize: what a table is afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from delta_tables import add_action, field, write, write_log, write_parquet

from headrace.core.errors import OperatorError
from headrace.tables.describing import count_rows
from headrace.tables.reading import open_snapshot
from headrace.tables.upkeep import configured_retention_hours, optimize, restore, vacuum


@pytest.fixture
def path(tmp_path: Path) -> str:
    for number in range(4):
        write(tmp_path / "t", f"select {number} i, {number} j")
    write(tmp_path / "t", "select 9 i, 9 j", mode="overwrite")
    return str(tmp_path / "t")


def rows(path: str) -> int:
    return count_rows(open_snapshot(path))


def data_files(path: str) -> int:
    return len(list(Path(path).glob("*.parquet")))


def test_restoring_is_a_new_version_with_the_old_content(path: str) -> None:
    restore(path, "t", 3)
    assert (open_snapshot(path).version, rows(path)) == (5, 4)
    assert count_rows(open_snapshot(path, version=4)) == 1


@pytest.mark.parametrize(("version", "said"), [(4, "version 4 is the current one"), (9, r"outside \[0, 4\]")])
def test_a_version_that_cannot_be_restored_is_refused(path: str, version: int, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        restore(path, "t", version)
    assert open_snapshot(path).version == 4


def test_restoring_what_was_vacuumed_is_refused_and_changes_nothing(path: str) -> None:
    vacuum(path, "t", retention_hours=0, dry_run=False)
    version = open_snapshot(path).version
    with pytest.raises(OperatorError, match=r"t: files of that version were vacuumed .*take a later version"):
        restore(path, "t", 3)
    assert (open_snapshot(path).version, rows(path)) == (version, 1)


def test_a_vacuum_keeps_what_the_retention_says(path: str) -> None:
    assert vacuum(path, "t", retention_hours=None, dry_run=False).files == ()
    assert vacuum(path, "t", retention_hours=0.5, dry_run=False).files == ()
    assert data_files(path) == 5


def test_a_dry_run_names_the_files_and_removes_none(path: str) -> None:
    found = vacuum(path, "t", retention_hours=0, dry_run=True)
    assert (len(found.files), data_files(path)) == (4, 5)
    assert len(vacuum(path, "t", retention_hours=0, dry_run=False).files) == 4
    assert (data_files(path), rows(path)) == (1, 1)


@pytest.mark.parametrize(
    ("text", "hours"),
    [("interval 2 days", 48), ("interval 1 week", 168), ("interval 30 minutes", 0.5), ("nonsense", 168)],
)
def test_the_tables_own_retention_counts(tmp_path: Path, text: str, hours: float) -> None:
    write(tmp_path / "t", "select 1 i")
    table = open_snapshot(str(tmp_path / "t")).table

    class Metadata:
        configuration = {"delta.deletedFileRetentionDuration": text}  # noqa: RUF012

    class Table:
        def metadata(self) -> type[Metadata]:
            return Metadata

    assert configured_retention_hours(table) == 168
    assert configured_retention_hours(Table()) == hours  # type: ignore[arg-type]


def test_optimizing_leaves_fewer_files_and_the_same_rows(path: str) -> None:
    restore(path, "t", 3)
    assert optimize(path, "t")["numFilesRemoved"] == 4
    assert (rows(path), len(open_snapshot(path).table.file_uris())) == (4, 1)
    assert optimize(path, "t")["numFilesRemoved"] == 0
    assert optimize(path, "t", zorder=["i"])["numFilesAdded"] == 1


def test_what_deltalake_cannot_do_is_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_parquet(path / "a.parquet", "select 1::integer i")
    features = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
    write_log(
        path,
        fields=[field("i", "integer")],
        adds=[add_action(path, "a.parquet", 1)],
        protocol={"minReaderVersion": 3, "minWriterVersion": 7, **features},
    )
    with pytest.raises(OperatorError, match=r"t: deltalake cannot do that .*TypeWidening.*nothing was changed.*Spark"):
        optimize(str(path), "t")


def test_an_order_by_what_is_no_column_is_refused(path: str) -> None:
    with pytest.raises(OperatorError, match="t: no column x to order by; it has i, j"):
        optimize(path, "t", zorder=["x"])
