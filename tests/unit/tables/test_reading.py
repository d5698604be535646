"""A table at a version or a time, as DuckDB sees it: the same rows whichever way they are read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from delta_tables import add_action, field, write, write_log, write_parquet, write_with_deletions

from headrace.core.errors import OperatorError
from headrace.tables import reading
from headrace.tables.describing import count_rows, size_of
from headrace.tables.engine import engine
from headrace.tables.reading import attach, open_snapshot

ODD_VALUES = ["a b", "a/b", "a:b", "a%b", "a%20b", "a=b", "ü", "a[1]*", "a?b", "a'b", " x ", "1", "a+b", "a&b#c", "{}"]


def rows(path: Path, **options: Any) -> list[tuple[Any, ...]]:
    with engine() as connection:
        attach(connection, "t", open_snapshot(str(path), **options))
        return connection.execute("select columns(*)::varchar from t order by all").fetchall()


def is_direct(path: Path) -> bool:
    """Whether DuckDB reads the files itself."""
    return reading._parquet_select(open_snapshot(str(path))) is not None


def streamed(path: Path) -> list[tuple[Any, ...]]:
    """The same by deltalake's own reader."""
    with engine() as connection:
        connection.register("s", open_snapshot(str(path)).table.scan())
        return connection.execute("select columns(*)::varchar from s order by all").fetchall()


def test_every_type_comes_out_as_deltalake_reads_it(tmp_path: Path) -> None:
    write(
        tmp_path / "t",
        "select 1::tinyint a, 2::smallint b, 3::integer c, 4::bigint d, 1.5::float e, 2.5::double f, true g, "
        "'x' h, 'ab'::blob i, date '2026-01-02' j, timestamptz '2026-01-02 03:04:05.678901+00' k, "
        "timestamp '2026-01-02 03:04:05' l, 1.25::decimal(9,2) m, [1,2] n, {'p': 1, 'q w': [{'r': 'x'}]} o, "
        "map {'k': 1} p union all by name select null::integer c",
    )
    assert is_direct(tmp_path / "t")
    assert rows(tmp_path / "t") == streamed(tmp_path / "t")


@pytest.mark.parametrize("kind", ["string", "integer", "date", "boolean"])
def test_partitions_are_read_with_their_types(tmp_path: Path, kind: str) -> None:
    value = {
        "string": "'v' || i",
        "integer": "(i - 1)::integer",
        "date": "date '2026-01-01' + i::integer",
        "boolean": "i = 1",
    }[kind]
    write(tmp_path / "t", f"select i, {value} p from range(3) t(i) union all select 9, null", partition_by=["p"])
    assert is_direct(tmp_path / "t")
    assert rows(tmp_path / "t") == streamed(tmp_path / "t")
    with engine() as connection:
        attach(connection, "t", open_snapshot(str(tmp_path / "t")))
        found = connection.execute("select typeof(p) from t").fetchone()
    assert found == ({"string": "VARCHAR"}.get(kind, kind.upper()),)


def test_partition_values_with_odd_characters_are_read_right(tmp_path: Path) -> None:
    values = ", ".join(f"({i}, '{value.replace(chr(39), chr(39) * 2)}')" for i, value in enumerate(ODD_VALUES))
    write(tmp_path / "t", f"select * from (values {values}) t(i, p)", partition_by=["p"])
    assert rows(tmp_path / "t") == sorted((str(i), value) for i, value in enumerate(ODD_VALUES))


def test_a_partition_of_a_type_that_paths_do_not_tell_goes_through_deltalake(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1 i, timestamptz '2026-01-02 03:04:05+00' p", partition_by=["p"])
    assert not is_direct(tmp_path / "t")
    assert rows(tmp_path / "t") == [("1", "2026-01-02 03:04:05+00")]


def test_a_partition_value_that_only_the_log_knows_is_believed(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t" / "plain.parquet", "select 1 i")
    write_parquet(tmp_path / "t" / "p=wrong" / "b.parquet", "select 2 i")
    write_log(
        tmp_path / "t",
        fields=[field("i", "integer"), field("p", "string")],
        partitions=["p"],
        adds=[
            add_action(tmp_path / "t", "plain.parquet", 1, {"p": "one"}),
            add_action(tmp_path / "t", "p=wrong/b.parquet", 1, {"p": "two"}),
        ],
    )
    assert rows(tmp_path / "t") == [("1", "one"), ("2", "two")]


def test_paths_as_spark_writes_them_are_read_directly(tmp_path: Path) -> None:
    """Spark leaves a space in a directory's name and percent-encodes it in the log."""
    write_parquet(tmp_path / "t" / "p=a b" / "x.parquet", "select 1 i")
    write_parquet(tmp_path / "t" / "p=c%3Ad" / "y.parquet", "select 2 i")
    write_log(
        tmp_path / "t",
        fields=[field("i", "integer"), field("p", "string")],
        partitions=["p"],
        adds=[
            add_action(tmp_path / "t", "p=a%20b/x.parquet", 1, {"p": "a b"}),
            add_action(tmp_path / "t", "p=c%253Ad/y.parquet", 1, {"p": "c:d"}),
        ],
    )
    assert is_direct(tmp_path / "t")
    assert rows(tmp_path / "t") == [("1", "a b"), ("2", "c:d")]


def test_a_column_that_came_later_is_null_in_older_files(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1 i")
    write(tmp_path / "t", "select 2 i, 'x' s", schema_mode="merge")
    assert rows(tmp_path / "t") == [("1", None), ("2", "x")]
    assert rows(tmp_path / "t", version=0) == [("1",)]


def test_deleted_rows_do_not_come_back(tmp_path: Path) -> None:
    write_with_deletions(tmp_path / "t", rows=5, deleted=[1, 3])
    assert not is_direct(tmp_path / "t")
    assert rows(tmp_path / "t") == [("0",), ("2",), ("4",)]
    assert count_rows(open_snapshot(str(tmp_path / "t"))) == 3


def test_a_table_that_may_have_deletion_vectors_but_has_none_is_read_directly(tmp_path: Path) -> None:
    write_with_deletions(tmp_path / "t", rows=1, deleted=[])
    assert is_direct(tmp_path / "t")
    assert rows(tmp_path / "t") == [("0",)]


def test_a_widened_type_is_read_from_old_and_new_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_parquet(path / "old.parquet", "select 1::integer i")
    write_parquet(path / "new.parquet", "select 5000000000::bigint i")
    features = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
    write_log(
        path,
        fields=[field("i", "long")],
        adds=[add_action(path, name, 1) for name in ("old.parquet", "new.parquet")],
        protocol={"minReaderVersion": 3, "minWriterVersion": 7, **features},
    )
    assert rows(path) == [("1",), ("5000000000",)]


def test_renamed_columns_are_found_by_their_physical_names(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_parquet(path / "a.parquet", 'select 7::integer as "col-1"')
    mapping = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    write_log(
        path,
        fields=[field("amount", "integer", **mapping)],
        adds=[add_action(path, "a.parquet", 1)],
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"},
    )
    assert rows(path) == [("7",)]


def test_a_feature_that_deltalake_cannot_read_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_parquet(path / "a.parquet", "select 1::integer i")
    features = {"readerFeatures": ["timeMachine"], "writerFeatures": ["timeMachine"]}
    write_log(
        path,
        fields=[field("i", "integer")],
        adds=[add_action(path, "a.parquet", 1)],
        protocol={"minReaderVersion": 3, "minWriterVersion": 7, **features},
    )
    said = "orders: it needs what deltalake cannot read .*timeMachine.*with Spark"
    with pytest.raises(OperatorError, match=said) as error:
        rows(path, name="orders")
    assert "\n" not in str(error.value)


def test_rows_are_counted_from_the_data_where_the_log_has_no_counts(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_parquet(path / "a.parquet", "select i::integer i from range(5) t(i)")
    write_log(path, fields=[field("i", "integer")], adds=[add_action(path, "a.parquet", None)])
    assert size_of(open_snapshot(str(path))).rows is None
    assert count_rows(open_snapshot(str(path))) == 5


def test_an_empty_table_has_its_columns_and_no_rows(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1::integer i, 'x' s limit 0")
    assert rows(tmp_path / "t") == []
    with engine() as connection:
        attach(connection, "t", open_snapshot(str(tmp_path / "t")))
        assert [row[:2] for row in connection.execute("describe t").fetchall()] == [("i", "INTEGER"), ("s", "VARCHAR")]


@pytest.mark.parametrize("name", ["t*", "t?", "a b", "a#b", "ü", "t{a}", 'a"b', "a'b", "x=y"])
def test_a_directory_with_an_odd_name_is_read(tmp_path: Path, name: str) -> None:
    write(tmp_path / "ta", "select 2 i, 'p' p", partition_by=["p"])
    write(tmp_path / name, "select 1 i, 'q r' p", partition_by=["p"])
    assert rows(tmp_path / name) == [("1", "q r")]


def test_a_directory_that_deltalake_cannot_open_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "t[a]" / "_delta_log").mkdir(parents=True)
    with pytest.raises(OperatorError, match=r"deltalake opens no path with \[ \] in it; rename the directory"):
        open_snapshot(str(tmp_path / "t[a]"))


def test_a_version_outside_the_log_names_the_bounds(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1 i")
    with pytest.raises(OperatorError, match=r"t: version 7 is outside \[0, 0\]; see: headrace table history t"):
        open_snapshot(str(tmp_path / "t"), name="t", version=7)


def test_a_vacuumed_version_says_so(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1 i")
    write(tmp_path / "t", "select 2 i", mode="overwrite")
    old = open_snapshot(str(tmp_path / "t"), version=0).table.file_uris()[0]
    Path(old).unlink()
    with pytest.raises(OperatorError, match=r"t: version 0 needs part-.*, which is gone .*vacuum.*later version"):
        rows(tmp_path / "t", name="t", version=0)
    assert rows(tmp_path / "t") == [("2",)]


def test_a_version_whose_commit_was_cleaned_up_says_where_the_log_begins(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for number in range(3):
        write(path, f"select {number} i")
    open_snapshot(str(path)).table.create_checkpoint()
    (path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(OperatorError, match="t: version 0 is no longer in the log; it begins at 1"):
        open_snapshot(str(path), name="t", version=0)
    assert len(rows(path)) == 3


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="not a Delta table; give the path of a directory with a _delta_log"):
        open_snapshot(str(tmp_path / "none"))


def test_a_time_gives_the_version_of_then(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, "select 1 i")
    between = datetime.now(UTC)
    while datetime.now(UTC).timestamp() * 1000 < between.timestamp() * 1000 + 2:
        pass
    write(path, "select 2 i")
    assert open_snapshot(str(path), at=between).version == 0
    assert open_snapshot(str(path), at=datetime.now(UTC)).version == 1
    with pytest.raises(OperatorError, match=r"t: nothing at 2000-01-01T00:00:00.000Z; its log begins at .*, version 0"):
        open_snapshot(str(path), name="t", at=datetime(2000, 1, 1, tzinfo=UTC))
