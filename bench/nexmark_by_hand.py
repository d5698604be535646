"""NEXMark's queries as a careful engineer writes them by hand: no Headrace in them but the session.

python nexmark_by_hand.py QUERY BOOTSTRAP DIRECTORY BIDS_PER_BATCH
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from headrace.streaming.session import running

BID = "auction long, bidder long, price long, channel string, url string, date_time timestamp, extra string"


def bids_of(spark: Any, bootstrap: str, per_batch: int) -> DataFrame:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", "nexmark-bids").option("startingOffsets", "earliest")
    raw = source.option("maxOffsetsPerTrigger", per_batch).load()
    parsed = F.from_json(F.col("value").cast("string"), BID).alias("row")
    return raw.select(parsed, "partition", "offset").select("row.*", "partition", "offset")


def q1(bids: DataFrame) -> DataFrame:
    return bids.select("auction", "bidder", (F.col("price") * 0.908).alias("price"), "date_time")


def q10(bids: DataFrame) -> DataFrame:
    days = (F.to_date("date_time").alias("day"), F.date_format("date_time", "HH:mm").alias("minute"))
    return bids.select("auction", "bidder", "price", "date_time", "extra", *days)


def q11(bids: DataFrame) -> DataFrame:
    session = F.session_window("date_time", "10 seconds")
    counts = bids.withWatermark("date_time", "4 seconds").groupBy("bidder", session).agg(F.count("*").alias("bids"))
    bounds = (F.col("session_window.start").alias("began"), F.col("session_window.end").alias("ended"))
    return counts.select("bidder", "bids", *bounds)


def q17(bids: DataFrame) -> DataFrame:
    price = F.col("price")
    ranges = {"": F.lit(True), "_rank1": price < 10_000, "_rank2": price.between(10_000, 999_999),
              "_rank3": price >= 1_000_000}  # fmt: skip
    counts = [F.count_if(given).alias(f"bids{name}") for name, given in ranges.items()]
    prices = [F.min("price").alias("min_price"), F.max("price").alias("max_price"), F.avg("price").alias("avg_price"),
              F.sum("price").alias("sum_price")]  # fmt: skip
    return bids.groupBy("auction", F.to_date("date_time").alias("day")).agg(*counts, *prices)


def q18(bids: DataFrame) -> DataFrame:
    return bids


def q22(bids: DataFrame) -> DataFrame:
    parts = F.split("url", "/")
    dirs = [parts[index + 2].alias(f"dir{index}") for index in (1, 2, 3)]
    return bids.select("auction", "bidder", "price", "channel", *dirs)


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {each.__name__: each for each in (q1, q10, q11, q17, q18, q22)}
KEYS = {"q17": ("auction", "day"), "q18": ("bidder", "auction")}


def merging(query: str, path: str) -> Callable[[DataFrame, int], None]:
    """What is written by key; a batch that is run again is refused by its transaction id."""
    from delta.tables import DeltaTable

    same = " and ".join(f"t.{name} = s.{name}" for name in KEYS[query])

    def write(rows: DataFrame, batch: int) -> None:
        spark = rows.sparkSession
        if query == "q18":
            last = Window.partitionBy(*KEYS[query]).orderBy(F.desc("date_time"), F.desc("partition"), F.desc("offset"))
            rows = rows.withColumn("n", F.row_number().over(last)).where("n = 1").drop("n")
        if not DeltaTable.isDeltaTable(spark, path):
            rows.write.format("delta").option("txnAppId", query).option("txnVersion", batch).save(path)
            return
        spark.conf.set("spark.databricks.delta.write.txnAppId", query)
        spark.conf.set("spark.databricks.delta.write.txnVersion", str(batch))
        merge = DeltaTable.forPath(spark, path).alias("t").merge(rows.alias("s"), same)
        if query == "q18":
            order = "struct({0}.date_time, {0}.partition, {0}.offset)"
            merge = merge.whenMatchedUpdateAll(f"{order.format('s')} > {order.format('t')}")
        else:
            merge = merge.whenMatchedUpdateAll()
        merge.whenNotMatchedInsertAll().execute()

    return write


def main(query: str, bootstrap: str, directory: str, per_batch: int) -> None:
    with running() as spark:
        rows = QUERIES[query](bids_of(spark, bootstrap, per_batch))
        sink = rows.writeStream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
        if query in KEYS:
            started = sink.outputMode("update").foreachBatch(merging(query, f"{directory}/table")).start()
        elif query == "q10":
            started = sink.format("delta").partitionBy("day").start(f"{directory}/table")
        else:
            started = sink.format("delta").start(f"{directory}/table")
        while started.isActive:
            time.sleep(0.1)
        if (failure := started.exception()) is not None:
            raise failure


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
