"""Document 000: the log as the source of Structured Streaming, and one path for live and historical data (Kappa)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from waits import WAIT_S_MAX

import headrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamReader


def produce(broker: headrace.Broker, topic: str, *orders: tuple[str, int]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for customer, amount in orders:
        producer.produce(topic, key=customer, value=json.dumps({"customer": customer, "amount": amount}))
    assert producer.flush(WAIT_S_MAX) == 0


def from_topic(
    reader: DataStreamReader | DataFrameReader, broker: headrace.Broker, topic: str
) -> DataStreamReader | DataFrameReader:
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )


def amounts(records: DataFrame) -> DataFrame:
    """The one code for live and historical data."""
    from pyspark.sql import functions as F

    orders = records.select(F.from_json(F.col("value").cast("string"), "customer string, amount long").alias("order"))
    return orders.groupBy("order.customer").agg(F.sum("order.amount").alias("amount"))


def test_records_arrive_with_key_headers_partition_offset_and_time(
    spark: SparkSession, broker: headrace.Broker
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(3):
        producer.produce("columns", f"v{number}", f"k{number}", headers={"trace": str(number)}, timestamp=1000 + number)
    assert producer.flush(WAIT_S_MAX) == 0
    read = from_topic(spark.read, broker, "columns").option("includeHeaders", "true").load().orderBy("offset")
    rows = read.selectExpr("string(key)", "string(value)", "partition", "offset", "unix_millis(timestamp)", "headers")
    assert [tuple(row)[:5] for row in rows.collect()] == [(f"k{n}", f"v{n}", 0, n, 1000 + n) for n in range(3)]
    assert [(header.key, bytes(header.value)) for header in rows.collect()[2].headers] == [("trace", b"2")]


def test_a_stream_follows_the_log_and_goes_on_after_a_stop(
    spark: SparkSession, broker: headrace.Broker, tmp_path: Path
) -> None:
    def start():  # type: ignore[no-untyped-def]
        return (
            from_topic(spark.readStream, broker, "followed")
            .load()
            .selectExpr("get_json_object(string(value), '$.amount') as amount", "offset")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .start(f"{tmp_path}/table")
        )

    def read() -> list[tuple[str, int]]:
        return sorted(tuple(row) for row in spark.read.format("delta").load(f"{tmp_path}/table").collect())

    produce(broker, "followed", ("ann", 1), ("bob", 2))
    query = start()
    query.processAllAvailable()
    assert read() == [("1", 0), ("2", 1)]
    produce(broker, "followed", ("ann", 3))
    query.processAllAvailable()
    query.stop()
    produce(broker, "followed", ("bob", 4))
    query = start()
    query.processAllAvailable()
    query.stop()
    assert read() == [("1", 0), ("2", 1), ("3", 2), ("4", 3)]


def test_one_code_gives_the_same_live_and_replayed_from_the_log(
    spark: SparkSession, broker: headrace.Broker, tmp_path: Path
) -> None:
    produce(broker, "kappa", ("ann", 1), ("bob", 2))
    live = (
        amounts(from_topic(spark.readStream, broker, "kappa").load())
        .writeStream.format("memory")
        .queryName("kappa_live")
        .outputMode("complete")
        .option("checkpointLocation", f"{tmp_path}/checkpoint")
        .start()
    )
    live.processAllAvailable()
    produce(broker, "kappa", ("ann", 10), ("cid", 5))
    live.processAllAvailable()
    live.stop()
    replayed = amounts(from_topic(spark.read, broker, "kappa").load())
    assert sorted(replayed.collect()) == [("ann", 11), ("bob", 2), ("cid", 5)]
    assert sorted(spark.table("kappa_live").collect()) == sorted(replayed.collect())
    spark.catalog.dropTempView("kappa_live")


def test_rows_are_written_to_a_topic(spark: SparkSession, broker: headrace.Broker) -> None:
    rows = spark.createDataFrame([("k1", "v1"), ("k2", "v2")], "key string, value string")
    rows.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers).option(
        "topic", "written"
    ).save()
    read = from_topic(spark.read, broker, "written").load().selectExpr("string(key)", "string(value)")
    assert sorted(tuple(row) for row in read.collect()) == [("k1", "v1"), ("k2", "v2")]


def test_avro_is_decoded_and_what_is_none_becomes_null(spark: SparkSession) -> None:
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro, to_avro

    schema = '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}'
    good = spark.range(2).select(to_avro(F.struct("id"), schema).alias("value"))
    bad = spark.createDataFrame([(bytearray(b"\xff" * 12),)], "value binary")
    read = good.union(bad).select(from_avro("value", schema, {"mode": "PERMISSIVE"}).alias("order"))
    assert sorted((row.id for row in read.select("order.id").collect()), key=str) == [0, 1, None]
