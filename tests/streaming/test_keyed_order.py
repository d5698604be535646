"""A keyed table is what one pass over the log leaves, wherever batches end, whatever comes twice or late."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from changes import BEGAN_AT, Change, life, one_pass, parts, placed, put_together, redelivered, split, versions
from pipeline_runs import Bench

from headrace.streaming import delete_markers
from headrace.streaming.declarations import TableOutput
from headrace.streaming.delete_markers import DeleteMarkers
from headrace.streaming.delta_writes import Stamp, create_table
from headrace.streaming.durations import duration
from headrace.streaming.keyed.history import HistoryTable, history_schema
from headrace.streaming.keyed.merge import KeyedTable
from headrace.streaming.keyed.order import PARTITIONS_MARK, SEVERAL_MARK, order_field, order_of
from headrace.streaming.keyed.partial import PartialTable, orders_field
from headrace.tables.compare import compare
from headrace.tables.reading import open_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORED = ["id", "lsn", "name"]
VALUES = "id int, lsn bigint, op string, name string"
PLACED = f"{VALUES}, _topic string, _partition int, _offset bigint, _timestamp timestamp"


class Table:
    """A keyed table and its batches, without a pipeline around them."""

    def __init__(
        self, spark: SparkSession, directory: Path, output: TableOutput, schema: str, stored: list[str] = STORED
    ) -> None:
        self.spark = spark
        self.stored = stored
        self.schema = schema
        self.path = str(directory / "table")
        self.deletes = str(directory / "deletes")
        self._output = output
        empty = spark.createDataFrame([], schema)
        order = order_of(output, empty.columns, by_state=False)
        assert order is not None
        self._order = order
        whole = empty.select(*stored).schema
        if output.history:
            whole = history_schema(whole, empty.schema["lsn"].dataType)
        partial = orders_field(order, output, whole, empty.schema)
        whole = whole.add(order_field(order, empty.schema))
        if output.nulls == "unchanged":
            whole = whole.add(partial)
        create_table(spark, self.path, whole, output, change_feed=False)
        self.batch = 0
        self.restart()

    def restart(self) -> None:
        self.markers = DeleteMarkers(self.deletes, self._output, self._order)
        partial = PartialTable if self._output.nulls == "unchanged" else KeyedTable
        kind = HistoryTable if self._output.history else partial
        self.keyed = kind(self._output, self.path, self.markers, self._order, alone=True)

    def write(self, rows: list[tuple[Any, ...]], *, again: bool = False) -> None:
        """With `again` the batch runs twice, as after a crash whose batch was written to the end."""
        frame = self.spark.createDataFrame(rows, self.schema)
        for _ in range(2 if again else 1):
            stamp = Stamp(pipeline="p", version=1, node="table", batch=self.batch, sources=())
            self.keyed.write(frame, self.stored, stamp)
            self.restart()
        self.batch += 1

    def rows(self) -> dict[int, str | None]:
        found = self.read(self.path).select("id", "name").collect()
        assert len({row.id for row in found}) == len(found)
        return {row.id: row.name for row in found}

    def read(self, path: str) -> DataFrame:
        return self.spark.read.format("delta").load(path)


@pytest.mark.parametrize(("order_by", "schema"), [(("lsn",), PLACED), (("lsn",), VALUES), ((), PLACED)])
def test_any_split_of_a_log_gives_what_one_pass_gives(
    spark: SparkSession, tmp_path: Path, order_by: tuple[str, ...], schema: str
) -> None:
    seed = 12 + len(schema) + len(order_by)
    log = redelivered(life(seed, 60, 9), seed)
    table = Table(spark, tmp_path, TableOutput(key=("id",), order_by=order_by, delete="op = 'd'"), schema)
    width = len(schema.split(", "))
    done: list[Change] = []
    # A batch costs seconds: the kind with most to it gets most of them.
    for number, batch in enumerate(split(log, seed, 3 if order_by and schema == PLACED else 2)):
        rows = [row[:width] for row in placed(log)][len(done) : len(done) + len(batch)]
        table.write(rows, again=number == 1)
        done += batch
        assert table.rows() == one_pass(done, by_lsn=bool(order_by)), f"seed {seed}, after {len(done)} changes"


def test_every_version_of_a_row_is_kept_with_its_bounds(spark: SparkSession, tmp_path: Path) -> None:
    schema, seed = VALUES, len(VALUES)
    log = redelivered(life(seed, 40, 5), seed)
    table = Table(spark, tmp_path, TableOutput(key=("id",), order_by=("lsn",), delete="op = 'd'", history=True), schema)
    done = 0
    for number, batch in enumerate(split(log, seed, 3)):
        rows = [row[: len(schema.split(", "))] for row in placed(log)][done : done + len(batch)]
        table.write(rows, again=number == 1)
        done += len(batch)
        found = table.read(table.path).select("id", "name", "valid_from", "valid_to", "is_current").collect()
        assert len(found) == len(set(found))
        assert set(map(tuple, found)) == versions(log[:done]), f"seed {seed}, after {done} changes"
        if number == 1:  # what the markers say is forgotten; the ends of versions are not
            shutil.rmtree(table.deletes)
            table.restart()


def test_a_null_leaves_a_column_as_it_was_in_whatever_order_changes_come(spark: SparkSession, tmp_path: Path) -> None:
    output = TableOutput(key=("id",), order_by=("lsn",), delete="op = 'd'", nulls="unchanged")
    schema = "id int, lsn bigint, op string, name string, age int"
    table = Table(spark, tmp_path, output, schema, ["id", "name", "age"])
    seed = 7
    log, done = parts(seed, 60, 6), 0
    for number, batch in enumerate(split(log, seed, 2)):
        table.write(batch, again=number == 1)
        done += len(batch)
        found = {row.id: (row.name, row.age) for row in table.read(table.path).collect()}
        assert found == put_together(log[:done]), f"seed {seed}, after {done} changes"


def test_a_change_that_removes_all_takes_only_what_is_older(spark: SparkSession, tmp_path: Path) -> None:
    output = TableOutput(key=("id",), order_by=("lsn",), delete="op = 'd'", truncate="op = 't'")
    table = Table(spark, tmp_path, output, VALUES)
    table.write([(1, 1, "c", "a"), (2, 5, "c", "b"), (None, 3, "t", None)])
    assert table.rows() == {2: "b"}
    table.write([(3, 2, "c", "stale"), (4, 4, "c", "c"), (2, 2, "u", "stale")])
    assert table.rows() == {2: "b", 4: "c"}
    table.write([(None, 5, "t", None), (5, 6, "c", "d"), (2, 4, "d", None)], again=True)
    assert table.rows() == {5: "d"}
    table.write([(2, 5, "u", "stale"), (4, 6, "c", "again")])
    assert table.rows() == {4: "again", 5: "d"}


def test_a_crash_between_markers_and_table_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, tmp_path, TableOutput(key=("id",), order_by=("lsn",), delete="op = 'd'"), VALUES)
    table.write([(1, 5, "c", "a"), (2, 5, "c", "b")])
    apply = KeyedTable._merge
    with pytest.MonkeyPatch.context() as patch:

        def dies(*_: object, **__: object) -> None:
            patch.setattr(KeyedTable, "_merge", apply)
            raise OSError("killed")

        patch.setattr(KeyedTable, "_merge", dies)
        batch = [(1, 6, "d", None), (2, 4, "d", None), (3, 4, "u", "old"), (3, 5, "d", None)]
        with pytest.raises(OSError, match="killed"):
            table.write(batch)
        assert table.rows() == {1: "a", 2: "b"}
        table.restart()
        table.write(batch)
    assert table.rows() == {2: "b"}
    table.write([(1, 5, "u", "stale"), (3, 4, "u", "stale"), (1, 7, "c", "again")])
    assert table.rows() == {1: "again", 2: "b"}


def test_what_nothing_tells_apart_stops_the_node_in_one_batch_and_over_two(spark: SparkSession, tmp_path: Path) -> None:
    one, other = (1, 5, "u", "a"), (1, 5, "u", "b")
    order = TableOutput(key=("id",), order_by=("lsn",))
    cases = [
        (order, VALUES, one, other, SEVERAL_MARK),
        (TableOutput(key=("id",)), VALUES, one, (1, 6, "u", "b"), SEVERAL_MARK),
        (TableOutput(key=("id",)), PLACED, (*one, "t", 0, 7, None), (*one, "t", 1, 3, None), PARTITIONS_MARK),
        # Several rows of one record, as an explode or a join makes them.
        *[
            (output, PLACED, (*one, "t", 0, 7, None), (*other, "t", 0, 7, None), SEVERAL_MARK)
            for output in (
                TableOutput(key=("id",)),
                order,
                TableOutput(key=("id",), order_by=("lsn",), history=True),
                TableOutput(key=("id",), order_by=("lsn",), nulls="unchanged"),
            )
        ],
    ]
    for number, (output, schema, first, second, says) in enumerate(cases):
        together = Table(spark, tmp_path / f"{number}-together", output, schema)
        with pytest.raises(Exception, match=says):
            together.write([first, second])
        apart = Table(spark, tmp_path / f"{number}-apart", output, schema)
        apart.write([first])
        with pytest.raises(Exception, match=says):
            apart.write([second])
        assert apart.rows() == {1: "a"}


def test_markers_are_forgotten_by_the_time_of_their_own_partition(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_markers, "REWRITE_EVERY_BATCHES", 1)
    output = TableOutput(key=("id",), order_by=("lsn",), delete="op = 'd'", forget_deletes_after=duration("5 hours"))
    table = Table(spark, tmp_path, output, PLACED)
    log = [Change(id=number, lsn=100 + number, op="d", name=None) for number in range(25)]
    rows = [(*row[:5], row[0] % 2, *row[6:]) for row in placed(log)]
    rows[1] = (*rows[1][:5], 7, *rows[1][6:])  # alone in its partition: nothing there says that time has passed
    table.write(rows[:20])
    table.write([rows[20]])
    left = {row.id for row in table.read(table.deletes).select("id").collect()}
    # Partition 0 had reached hour 18, partition 1 hour 19.
    assert left == {1, *range(8, 20, 2), *range(9, 20, 2), 20}


FORGETTING: list[dict[str, Any]] = [{}, {"nulls": "unchanged"}, {"history": True}]


@pytest.mark.parametrize("kind", FORGETTING, ids=["rows", "parts", "history"])
def test_a_removal_is_forgotten_by_the_times_of_row_and_removal_in_one_batch_and_in_many(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any]
) -> None:
    """Also if an older row is in time and one that is older still is not; and if markers are rewritten or not."""

    def change(key: int, lsn: int, op: str, hour: int, offset: int) -> tuple[Any, ...]:
        name = None if op == "d" else f"{key}@{lsn}"
        return key, lsn, op, name, "t", 0, offset, BEGAN_AT + timedelta(hours=hour)

    log = [
        change(1, 10, "d", 0, 0),
        change(2, 10, "d", 0, 1),
        change(3, 10, "d", 0, 2),
        change(4, 10, "d", 0, 3),
        change(2, 5, "u", 4, 4),  # held against the removal
        change(4, 5, "u", 5, 5),  # held
        change(1, 5, "u", 6, 6),  # too late for it: as if new
        change(4, 3, "u", 6, 7),  # as if new, though less than what was held
        change(3, 4, "d", 8, 8),  # an old removal, which is of interest again,
        change(3, 3, "u", 9, 9),  # for this one,
        change(3, 7, "u", 10, 10),  # and not for this one, for which the first one is too old
        change(9, 1, "d", 19, 11),
        change(9, 2, "d", 20, 12),
        change(1, 4, "u", 21, 13),
    ]
    truth = {1: "1@5", 3: "3@7", 4: "4@3"} if not kind.get("history") else {}
    output = TableOutput(
        key=("id",), order_by=("lsn",), delete="op = 'd'", forget_deletes_after=duration("5 hours"), **kind
    )
    for size, rewrites in ((len(log), 16), (5, 1)):
        monkeypatch.setattr(delete_markers, "REWRITE_EVERY_BATCHES", rewrites)
        table = Table(spark, tmp_path / f"{size}", output, PLACED, ["id", "name"])
        for begin in range(0, len(log), size):
            table.write(log[begin : begin + size], again=begin == size)
        found = table.read(table.path)
        if kind.get("history"):  # versions end at removals, which are never forgotten
            found = found.where("is_current")
        assert {row.id: row.name for row in found.collect()} == truth, (size, rewrites)


def test_a_replayed_log_equals_the_live_table_and_no_reader_sees_what_was_removed(bench: Bench) -> None:
    """A connector that delivers the first quarter again after a restart; one change has no order."""
    code = """
        changes = hr.topic("ordered", schema="id int, lsn long, op string, name string", max_offsets_per_trigger={})

        @hr.table(key="id", order_by="lsn", delete="op = 'd'")
        def people(changes):
            return changes
        """
    log = life(3, 200, 30)
    path = bench.file(code.format(80))
    bench.send("ordered", [change.record() for change in log[:120]])
    bench.once(path)
    lost = {"id": 1, "lsn": None, "op": "u", "name": "when?"}
    bench.send("ordered", [change.record() for change in [*log[120:], *log[:50]]] + [lost])
    bench.once(path)
    truth = one_pass(log)
    assert {row.id: row.name for row in bench.rows("people", "id", "name")} == truth
    assert [(row.reason.split(" (")[0], row.row) for row in bench.quarantine("people")] == [
        ("order is known", '{"id":1,"op":"u","name":"when?"}')
    ]
    replayed = bench.replay_once(bench.file(code.format(1_000)))
    live, again = (bench.version_path("people", version) for version in (1, replayed.version))
    found = compare(live, again, ["id"])
    assert found.equal, found
    assert found.columns == ("id", "lsn", "op", "name")
    # A reader that knows nothing of Headrace sees one more column, and no removed row.
    plain = open_snapshot(bench.version_path("people")).table
    assert sorted(plain.to_pyarrow_table()["id"].to_pylist()) == sorted(truth)


def test_a_table_from_before_its_order_was_kept_gets_it_with_the_next_run(bench: Bench) -> None:
    path = bench.file("""
        older = hr.topic("older", schema="id int, lsn long, name string")

        @hr.table(key="id", order_by="lsn")
        def older_table(older):
            return older
        """)
    bench.one_partition("older")
    bench.send("older", [{"id": 1, "lsn": 5, "name": "a"}, {"id": 2, "lsn": 5, "name": "b"}])
    bench.once(path)
    where = bench.version_path("older_table")
    kept = bench.spark.read.format("delta").load(where).drop("_headrace_order")
    kept.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(where)
    bench.send("older", [{"id": 1, "lsn": 3, "name": "first of a new order"}, {"id": 1, "lsn": 2, "name": "late"}])
    bench.once(path)
    bench.send("older", [{"id": 1, "lsn": 1, "name": "later"}])
    bench.once(path)
    assert {row.id: row.name for row in bench.rows("older_table")} == {1: "first of a new order", 2: "b"}
