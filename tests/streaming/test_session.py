"""The shared session is what the settings say, and Delta and the state store are in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_delta_tables_are_written_and_read_by_path_and_by_sql(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "numbers")
    spark.range(10).write.format("delta").save(path)
    assert spark.read.format("delta").load(path).count() == 10
    assert spark.sql(f"select sum(id) as total from delta.`{path}`").first() == (45,)


def test_workers_run_this_python(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_state_is_kept_in_rocksdb_and_shuffles_have_as_many_partitions_as_cores(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.streaming.stateStore.providerClass").endswith("RocksDBStateStoreProvider")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_the_driver_listens_on_loopback_only(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"


def test_nothing_is_left_in_the_working_directory(spark: SparkSession) -> None:
    spark.sql("create or replace temp view nothing_left as select 1 as one")
    assert spark.sql("select one from nothing_left").first() == (1,)
    spark.catalog.dropTempView("nothing_left")
    assert not {"spark-warehouse", "metastore_db", "derby.log", "artifacts"} & set(os.listdir())
