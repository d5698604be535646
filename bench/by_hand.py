"""What the jobs by hand share: a Spark session and a topic, in plain PySpark. Nothing here imports Headrace."""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

CORRUPT = "_corrupt_record"


def session(jars: str, driver_memory: str) -> SparkSession:
    cores = str(len(os.sched_getaffinity(0)))
    return (
        SparkSession.builder.master("local[*]")
        .appName("by hand")
        .config("spark.jars", jars)
        .config("spark.driver.memory", driver_memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "WARN")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.databricks.delta.snapshotPartitions", cores)
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )


def records(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The topic's records from the first on, as they are in the log."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def parsed(records: DataFrame, schema: str) -> DataFrame:
    """The records with a column `row`, whose CORRUPT field is set where the value is not JSON of the schema."""
    options = {"columnNameOfCorruptRecord": CORRUPT}
    return records.withColumn("row", F.from_json(F.col("value").cast("string"), f"{schema}, {CORRUPT} string", options))
