"""The first batch of a keyed table is appended, since nothing can match there; it leaves what a merge would leave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from headrace.streaming.declarations import TableOutput
from headrace.streaming.delete_markers import DeleteMarkers
from headrace.streaming.delta_writes import Stamp, create_table, is_new
from headrace.streaming.keyed.merge import KeyedTable
from headrace.streaming.keyed.order import order_field, order_of

if TYPE_CHECKING:
    from pipeline_runs import Bench
    from pyspark.sql import SparkSession

ROWS = [(1, "new", 1), (1, "paid", 3), (1, "late", 2), (2, "new", 1), (2, "gone", 5), (3, "gone", 1), (3, "new", 2)]


def test_it_leaves_what_a_merge_would(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(ROWS, "id long, state string, at long")
    output = TableOutput(key=("id",), order_by=("at",), delete="state = 'gone'")
    order = order_of(output, frame.columns, by_state=False)
    assert order is not None
    found = []
    for name in ("merged", "appended"):
        path = str(tmp_path / name)
        whole = StructType([*frame.schema.fields, order_field(order, frame.schema)])
        create_table(spark, path, whole, output, change_feed=False)
        assert is_new(spark, path)
        markers = DeleteMarkers(f"{path}-deletes", output, order)
        table = KeyedTable(output, path, markers, order, alone=name == "appended")
        table.write(frame, frame.columns, Stamp(pipeline="shop", version=1, node="orders", batch=0, sources=()))
        assert not is_new(spark, path)
        found.append(sorted(tuple(row) for row in spark.read.format("delta").load(path).collect()))
    assert found[0] == found[1]
    assert [row[:3] for row in found[0]] == [(1, "paid", 3), (3, "new", 2)]


def test_the_batches_after_it_are_merged(bench: Bench) -> None:
    file = bench.file("""
        first_batch = hr.topic("first-batch", schema="id long, state string")

        @hr.table(key="id")
        def states(first_batch):
            return first_batch
    """)
    bench.one_partition("first-batch")
    bench.send("first-batch", [{"id": 1, "state": "new"}, {"id": 2, "state": "new"}, {"id": 1, "state": "paid"}])
    bench.once(file)
    assert bench.rows("states") == [(1, "paid"), (2, "new")]
    bench.send("first-batch", [{"id": 2, "state": "sent"}, {"id": 3, "state": "new"}])
    bench.once(file)
    assert bench.rows("states") == [(1, "paid"), (2, "sent"), (3, "new")]
    operations = bench.spark.sql(f"describe history delta.`{bench.tables}/states`").select("operation").collect()
    assert [row[0] for row in operations] == ["MERGE", "WRITE", "CREATE TABLE"]
