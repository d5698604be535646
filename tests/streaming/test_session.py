"""The shared session is what the settings say, and Delta and the state store are in it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from headrace.core.errors import OperatorError
from headrace.streaming.jars import ready_jars
from headrace.streaming.java import find_java
from headrace.streaming.quick_start import QuickStarts
from headrace.streaming.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_second_session_in_the_same_process_is_refused(spark: SparkSession) -> None:
    with pytest.raises(OperatorError, match="a session runs in this process already"):
        session()
    assert spark.range(2).count() == 2


def test_workers_run_this_python(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_workers_are_forked_with_what_they_need_imported_and_no_threads(spark: SparkSession) -> None:
    def parent(_: int) -> tuple[str, int]:
        with open(f"/proc/{os.getppid()}/cmdline") as file:
            return file.read(), len(os.listdir(f"/proc/{os.getppid()}/task"))

    [(command, threads)] = spark.sparkContext.parallelize([0], 1).map(parent).collect()
    assert "headrace.streaming.worker_daemon" in command
    assert threads == 1


def test_state_is_kept_in_rocksdb(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.streaming.stateStore.providerClass").endswith("RocksDBStateStoreProvider")


def test_the_driver_listens_on_loopback_only(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"


def test_nothing_is_left_in_the_working_directory(spark: SparkSession) -> None:
    spark.sql("create or replace temp view nothing_left as select 1 as one")
    assert spark.sql("select one from nothing_left").first() == (1,)
    spark.catalog.dropTempView("nothing_left")
    assert not {"spark-warehouse", "metastore_db", "derby.log", "artifacts"} & set(os.listdir())


def test_the_jvm_maps_the_class_archive_that_was_prepared(spark: SparkSession) -> None:
    java = find_java()
    quick = QuickStarts(java, ready_jars(lambda: java)).found()
    assert quick is not None, "`make install` prepares it"
    process = spark.sparkContext._gateway.proc  # type: ignore[attr-defined]
    with open(f"/proc/{process.pid}/maps", encoding="utf-8") as maps:
        assert quick.archive in maps.read()
