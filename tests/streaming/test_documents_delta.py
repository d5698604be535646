"""Document 002, «Delta Lake Step by Step»: the samples as they stand, but for paths and the data they run on."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DIAMONDS = 'carat,cut,price\n0.23,"Ideal",326\n0.21,"Premium",326\n0.29,"Very Good",334\n'
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
JANUARY = "date >= '2017-01-01' AND date <= '2017-01-31'"


@pytest.fixture
def df(spark: SparkSession, tmp_path: Path) -> DataFrame:
    file = tmp_path / "diamonds.csv"
    file.write_text(DIAMONDS)
    return spark.read.csv(str(file), header="true", inferSchema="true")


def events(spark: SparkSession, *rows: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame([(date.fromisoformat(day), number) for day, number in rows], "date date, number int")


def rows(spark: SparkSession, path: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(path).collect())


def test_a_csv_file_is_written_as_a_table_and_appended_to(spark: SparkSession, df: DataFrame, tmp_path: Path) -> None:
    path = f"{tmp_path}/diamonds"
    df.write.format("delta").save(path)
    once = [(0.21, "Premium", 326), (0.23, "Ideal", 326), (0.29, "Very Good", 334)]
    assert rows(spark, path) == once
    df.write.format("delta").mode("append").save(path)
    assert rows(spark, path) == sorted(once * 2)


def test_a_table_is_read_by_path_and_by_sql(spark: SparkSession, df: DataFrame, tmp_path: Path) -> None:
    path = f"{tmp_path}/delta-table"
    df.write.format("delta").save(path)
    read = spark.read.format("delta").load(path)
    asked = spark.sql(f"SELECT * FROM delta.`{path}`")
    assert read.columns == asked.columns == ["carat", "cut", "price"]
    assert sorted(read.collect()) == sorted(asked.collect())
    assert asked.count() == 3


def test_a_table_is_partitioned_and_one_month_of_it_replaced(spark: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/events"
    df = events(spark, ("2016-12-31", 1), ("2017-01-01", 2), ("2017-01-31", 3), ("2017-02-01", 4))
    df.write.format("delta").partitionBy("date").save(path)
    assert {"date=2016-12-31", "date=2017-01-01", "date=2017-01-31", "date=2017-02-01"} < set(os.listdir(path))
    data = events(spark, ("2017-01-15", 5))
    data.write.format("delta").mode("overwrite").option("replaceWhere", JANUARY).save(path)
    assert rows(spark, path) == [(date(2016, 12, 31), 1), (date(2017, 1, 15), 5), (date(2017, 2, 1), 4)]


def test_overwriting_changes_the_schema_only_when_it_is_told_to(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    path = f"{tmp_path}/events"
    spark.range(2).write.format("delta").save(path)
    other = spark.createDataFrame([("a",)], "name string")
    with pytest.raises(AnalysisException, match="schema mismatch"):
        other.write.format("delta").mode("overwrite").save(path)
    assert rows(spark, path) == [(0,), (1,)]
    other.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
    assert rows(spark, path) == [("a",)]


def test_a_column_is_added_by_an_append_only_when_it_is_told_to(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    path = f"{tmp_path}/events"
    spark.range(1).write.format("delta").save(path)
    df = spark.createDataFrame([(1, "new")], "id long, name string")
    with pytest.raises(AnalysisException, match="schema mismatch"):
        df.write.format("delta").mode("append").save(path)
    df.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    assert spark.read.format("delta").load(path).orderBy("id").collect() == [(0, None), (1, "new")]


def test_older_versions_are_read_by_number_and_by_time(spark: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/events"
    for version in range(3):
        spark.range(version, version + 1).write.format("delta").mode("append").save(path)
        # The time of a version is that of its file in the log: noon of three days ago, of two, of yesterday.
        noon = (TODAY + timedelta(days=version - 3, hours=12)).timestamp()
        os.utime(f"{path}/_delta_log/{version:020}.json", (noon, noon))
    for version in range(3):
        df2 = spark.read.format("delta").option("versionAsOf", version).load(path)
        assert sorted(df2.collect()) == [(number,) for number in range(version + 1)]
    three, two, one = (str((TODAY - timedelta(days=days)).date()) for days in (3, 2, 1))
    for timestamp_string, count in ((f"{three} 12:00:00", 1), (one, 2), (f"{two}T18:00:00.000Z", 2)):
        df1 = spark.read.format("delta").option("timestampAsOf", timestamp_string).load(path)
        assert df1.count() == count, timestamp_string
