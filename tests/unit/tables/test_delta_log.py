"""Commits read from the log, and followed down to the offsets of topics."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta
from pathlib import Path

import pytest
from delta_tables import add_action, deletion_vector, write, write_with_deletions
from hypothesis import given
from hypothesis import strategies as st
from shop import made, make_shop, topic

from headrace.core.errors import OperatorError
from headrace.tables.delta_log import DeltaLog
from headrace.tables.history import OffsetTrail, joined
from headrace.tables.provenance import Provenance, TableSource, TopicSource, decode


def commit_file(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020d}.json"


def test_a_commit_says_what_made_it(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    log = DeltaLog(shop.layout.table_dir(1, "clean_orders"))
    assert (log.first, log.last) == (0, 2)
    newest = log.commits(1)[0]
    assert (newest.version, newest.operation, newest.rows_added, newest.rows_removed) == (2, "WRITE", 10, 0)
    assert newest.provenance == made("clean_orders", 1, 2, topic("orders", p0=(20, 26), p1=(20, 24)))
    assert [commit.version for commit in log.commits()] == [2, 1, 0]


def test_rows_that_were_replaced_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "t", "select i from range(5) t(i)")
    write(tmp_path / "t", "select i from range(3) t(i)", mode="overwrite")
    assert DeltaLog(str(tmp_path / "t")).commit(1).rows_added == 3


def test_a_commit_of_spark_is_read(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1 i")
    info = {
        "timestamp": 1_700_000_000_500,
        "operation": "STREAMING UPDATE",
        "operationMetrics": {"numOutputRows": "7", "numRemovedFiles": "0"},
        "userMetadata": made("n", 1, 4).encode(),
        "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
    }
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    actions = [{"commitInfo": info}, {"txn": {"appId": "a", "version": 4}}, {"add": add}]
    commit_file(tmp_path / "t", 1).write_text("\n".join(map(json.dumps, actions)) + "\n\n")
    commit = DeltaLog(str(tmp_path / "t")).commit(1)
    assert (commit.rows_added, commit.at.timestamp(), commit.engine) == (7, 1_700_000_000.5, info["engineInfo"])
    assert commit.provenance is not None
    assert commit.provenance.batch == 4


def test_a_deletion_vector_removes_only_what_it_marks(tmp_path: Path) -> None:
    write_with_deletions(tmp_path / "t", rows=5, deleted=[1])
    add = add_action(tmp_path / "t", "a.parquet", 5)
    old, new = ({**add, "deletionVector": deletion_vector(rows)} for rows in ([1], [1, 2, 4]))
    actions = [{"commitInfo": {"timestamp": 1, "operation": "DELETE"}}, {"remove": old}, {"add": new}]
    commit_file(tmp_path / "t", 1).write_text("\n".join(map(json.dumps, actions)))
    commit = DeltaLog(str(tmp_path / "t")).commit(1)
    assert (commit.rows_added, commit.rows_removed) == (0, 2)


def test_files_that_were_only_rewritten_add_no_rows(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    for number in range(3):
        write(tmp_path / "t", f"select {number} i")
    DeltaTable(str(tmp_path / "t")).optimize.compact()
    commit = DeltaLog(str(tmp_path / "t")).commit(3)
    assert (commit.operation, commit.rows_added, commit.rows_removed) == ("OPTIMIZE", 0, 0)


def test_a_time_is_looked_up_in_a_few_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_directory = tmp_path / "t" / "_delta_log"
    log_directory.mkdir(parents=True)
    for version in range(1000):
        info = {"commitInfo": {"timestamp": 1_700_000_000_000 + version * 1000, "operation": "WRITE"}}
        commit_file(tmp_path / "t", version).write_text(json.dumps(info))
    log = DeltaLog(str(tmp_path / "t"), "t")
    start = log.commit(0).at
    reads = []
    commit = DeltaLog.commit
    monkeypatch.setattr(DeltaLog, "commit", lambda self, version: reads.append(version) or commit(self, version))
    assert log.version_at(start) == 0
    assert log.version_at(start + timedelta(seconds=417, milliseconds=1)) == 417
    assert log.version_at(start + timedelta(days=1)) == 999
    assert len(reads) < 40
    with pytest.raises(
        OperatorError, match=r"t: nothing at 2023-11-14T22:13:19.999Z; its log begins at 2023-11-14T22:13:20"
    ):
        log.version_at(start - timedelta(milliseconds=1))


def test_a_commit_that_is_gone_or_broken_is_one_line(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1 i")
    write(tmp_path / "t", "select 2 i")
    commit_file(tmp_path / "t", 0).unlink()
    log = DeltaLog(str(tmp_path / "t"), "t")
    with pytest.raises(OperatorError, match="t: commit 0 is no longer in the log; it begins at 1"):
        log.commit(0)
    commit_file(tmp_path / "t", 1).write_text("{")
    with pytest.raises(OperatorError, match="not a commit of a Delta table"):
        log.commit(1)
    with pytest.raises(OperatorError, match="not a Delta table"):
        DeltaLog(str(tmp_path / "none"))


def test_offsets_are_followed_through_a_table_down_to_the_topic(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    trail = OffsetTrail(lambda table: DeltaLog(shop.layout.table_dir(1, table), table))
    newest, oldest = DeltaLog(shop.layout.table_dir(1, "revenue")).commits()
    # Offsets 16 to 20 of partition 0 are in no batch: the two ranges stay apart.
    assert trail.offsets(newest).topics == {"orders": {0: ((10, 16), (20, 26)), 1: ((10, 14), (20, 24))}}
    assert trail.offsets(oldest).topics == {"orders": {0: ((0, 6),), 1: ((0, 4),)}}
    assert trail.offsets(newest).gaps == ()


def test_what_an_upstream_log_no_longer_holds_is_said(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    commit_file(Path(shop.layout.table_dir(1, "clean_orders")), 1).unlink()
    commit_file(Path(shop.layout.table_dir(1, "clean_orders")), 0).unlink()
    trail = OffsetTrail(lambda table: DeltaLog(shop.layout.table_dir(1, table), table))
    found = trail.offsets(DeltaLog(shop.layout.table_dir(1, "revenue")).commit(1))
    assert found.topics == {"orders": {0: ((20, 26),), 1: ((20, 24),)}}
    assert found.gaps == ("clean_orders: its log begins at version 2",)


def test_a_missing_upstream_table_and_a_circle_are_said(tmp_path: Path) -> None:
    write(tmp_path / "a", "select 1 i", made_by=made("a", 1, 0, TableSource(table="b", versions=(0, 0))))
    write(tmp_path / "b", "select 1 i", made_by=made("b", 1, 0, TableSource(table="a", versions=(0, 0))))
    write(tmp_path / "c", "select 1 i", made_by=made("c", 1, 0, TableSource(table="gone", versions=(0, 0))))
    trail = OffsetTrail(lambda table: DeltaLog(str(tmp_path / table), table))
    assert trail.offsets(DeltaLog(str(tmp_path / "a")).commit(0)).gaps == ("b is made from itself",)
    assert "not a Delta table" in trail.offsets(DeltaLog(str(tmp_path / "c")).commit(0)).gaps[0]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8))
def test_joined_ranges_hold_the_same_offsets(ranges: list[tuple[int, int]]) -> None:
    result = joined(ranges)
    assert {n for a, b in result for n in range(a, b)} == {n for a, b in ranges for n in range(a, b)}
    assert all(a < b for a, b in result)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(result))


SOURCES = st.one_of(
    st.builds(
        TopicSource,
        topic=st.text(min_size=1),
        ranges=st.dictionaries(st.integers(0, 99), st.tuples(st.integers(0), st.integers(0)), max_size=3),
    ),
    st.builds(TableSource, table=st.text(min_size=1), versions=st.tuples(st.integers(0), st.integers(0))),
)
PROVENANCES = st.builds(
    Provenance,
    pipeline=st.text(),
    version=st.integers(1),
    node=st.text(),
    batch=st.integers(0),
    sources=st.lists(SOURCES, max_size=3).map(tuple),
)


@given(PROVENANCES)
def test_provenance_is_read_back_as_it_was_written(provenance: Provenance) -> None:
    assert decode(provenance.encode()) == provenance


def test_provenance_has_the_form_that_is_written_down() -> None:
    text = made(
        "clean_orders", 1, 12, topic("orders", p1=(90, 180), p0=(100, 250)), TableSource(table="t", versions=(3, 5))
    )
    assert json.loads(text.encode()) == {
        "headrace": {
            "pipeline": "shop",
            "version": 1,
            "node": "clean_orders",
            "batch": 12,
            "sources": [
                {"topic": "orders", "ranges": {"0": [100, 250], "1": [90, 180]}},
                {"table": "t", "versions": [3, 5]},
            ],
        }
    }


@pytest.mark.parametrize(
    "text", [None, 5, "", "free text", "[]", "{}", '{"headrace": 1}', '{"headrace": {"pipeline": "x"}}']
)
def test_metadata_of_others_is_not_ours(text: object) -> None:
    assert decode(text) is None
