"""Document 001: reduce and reduceByKey, and a CSV file that is read."""

from __future__ import annotations

from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_reduce_pulls_everything_into_one_value(spark: SparkSession) -> None:
    rdd = spark.sparkContext.parallelize([1, 2, 3, 4])
    assert rdd.reduce(add) == 10


def test_reduce_by_key_leaves_one_value_a_key_and_stays_an_rdd(spark: SparkSession) -> None:
    pairedrdd = spark.sparkContext.parallelize([(1, 2), (2, 3), (2, 4), (1, 2)])
    reduced = pairedrdd.reduceByKey(add)
    assert sorted(reduced.collect()) == [(1, 4), (2, 7)]
    assert sorted(reduced.mapValues(lambda value: value * 10).collect()) == [(1, 40), (2, 70)]


def test_a_csv_file_is_read_with_its_header_and_types(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "newdata.csv"
    file.write_text('id,name,amount\n1,"a, b",2.5\n2,,\n')
    df = spark.read.csv(str(file), header=True, inferSchema=True)
    assert df.dtypes == [("id", "int"), ("name", "string"), ("amount", "double")]
    assert [tuple(row) for row in df.orderBy("id").collect()] == [(1, "a, b", 2.5), (2, None, None)]
