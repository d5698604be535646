"""NEXMark's queries as a careful engineer writes them by hand: no Headrace in them but the session.

python nexmark_by_hand.py QUERIES BOOTSTRAP DIRECTORY EVENTS_PER_BATCH

They run one after the other in one session; each has a directory, and gets a file `done` there at its end.

A query that is several steps in examples/nexmark is the same steps here, one after the other: streams that append or
merge, and at the end what is computed from whole tables, once. Every write carries its batch's transaction, since a
job that may write a batch twice is not the same job.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from headrace.streaming.session import running

SCHEMAS = {
    "persons": "id long, name string, email string, credit_card string, city string, state string, date_time timestamp",
    "auctions": "id long, item string, description string, initial_bid long, reserve long, date_time timestamp, "
    "expires timestamp, seller long, category long",
    "bids": "auction long, bidder long, price long, channel string, url string, date_time timestamp, extra string",
}
SHARES = {"persons": 1 / 50, "auctions": 3 / 50, "bids": 46 / 50}
PLACES = ("partition", "offset")  # kept by q18, to tell which of two rows is the last
TEN_S = "10 seconds"


class Job:
    """A query's topics, its tables by name under `directory`, and the steps that write them."""

    def __init__(self, spark: Any, bootstrap: str, directory: str, per_batch: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._directory = directory
        self._per_batch = per_batch

    def topic(self, name: str, *more: str) -> DataFrame:
        source = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
        source = source.option("subscribe", f"nexmark-{name}").option("startingOffsets", "earliest")
        raw = source.option("maxOffsetsPerTrigger", max(1, round(SHARES[name] * self._per_batch))).load()
        parsed = F.from_json(F.col("value").cast("string"), SCHEMAS[name]).alias("row")
        return raw.select(parsed, *more).select("row.*", *more)

    def path(self, table: str) -> str:
        return f"{self._directory}/tables/{table}"

    def stream(self, table: str) -> DataFrame:
        return self._spark.readStream.format("delta").load(self.path(table))  # type: ignore[no-any-return]

    def table(self, table: str) -> DataFrame:
        return self._spark.read.format("delta").load(self.path(table))  # type: ignore[no-any-return]

    def append(self, table: str, rows: DataFrame, *, partition_by: tuple[str, ...] = ()) -> None:
        writer = self._writer(table, rows).format("delta").partitionBy(*partition_by)
        _finished(writer.start(self.path(table)))

    def replace(self, table: str, rows: DataFrame) -> None:
        rows.write.format("delta").mode("overwrite").save(self.path(table))

    def merge(
        self,
        table: str,
        rows: DataFrame,
        key: tuple[str, ...],
        *,
        newer: str | None = None,
        last: "Callable[[DataFrame], DataFrame] | None" = None,
    ) -> None:
        """Without `last` an aggregate gives one row per key of a batch, else it leaves one; `newer` says when `s`
        replaces `t`."""
        from delta.tables import DeltaTable

        path, same = self.path(table), " and ".join(f"t.{name} = s.{name}" for name in key)

        def write(batch: DataFrame, number: int) -> None:
            spark, batch = batch.sparkSession, batch if last is None else last(batch)
            if not DeltaTable.isDeltaTable(spark, path):
                batch.write.format("delta").option("txnAppId", table).option("txnVersion", number).save(path)
                return
            spark.conf.set("spark.databricks.delta.write.txnAppId", table)
            spark.conf.set("spark.databricks.delta.write.txnVersion", str(number))
            merging = DeltaTable.forPath(spark, path).alias("t").merge(batch.alias("s"), same)
            merging.whenMatchedUpdateAll(newer).whenNotMatchedInsertAll().execute()

        writer = self._writer(table, rows).outputMode("update" if last is None else "append")
        _finished(writer.foreachBatch(write).start())

    def _writer(self, table: str, rows: DataFrame) -> Any:
        writer = rows.writeStream.option("checkpointLocation", f"{self._directory}/checkpoints/{table}")
        return writer.trigger(availableNow=True)


def _finished(query: Any) -> None:
    while query.isActive:
        time.sleep(0.05)  # not awaitTermination: a signal would wait with it
    if (failure := query.exception()) is not None:
        raise failure


def first_of(key: tuple[str, ...], *order: Column) -> "Callable[[DataFrame], DataFrame]":
    """The first row of each key in an order."""
    place = Window.partitionBy(*key).orderBy(*order)
    return lambda batch: batch.withColumn("n", F.row_number().over(place)).where("n = 1").drop("n")


def ranked(column: str | None = None) -> list[Column]:
    price = F.col("price")
    ranges = {"": F.lit(True), "_rank1": price < 10_000, "_rank2": price.between(10_000, 999_999),
              "_rank3": price >= 1_000_000}  # fmt: skip
    if column is None:
        return [F.count_if(given).alias(f"bids{name}") for name, given in ranges.items()]
    return [F.count_distinct(F.when(given, F.col(column))).alias(f"{column}s{name}") for name, given in ranges.items()]


def valid_bids(job: Job) -> None:
    columns = ("auction", "bidder", "price", "channel", "url", "extra", F.col("date_time").alias("bid_at"))
    auctions, bids = job.topic("auctions"), job.topic("bids").select(*columns)
    open_then = (auctions.id == bids.auction) & F.expr("bid_at between date_time and expires")
    job.append("valid_bids", auctions.join(bids, open_then))


def all_bids(job: Job) -> DataFrame:
    job.append("all_bids", job.topic("bids"))
    return job.table("all_bids")


def q0(job: Job) -> None:
    job.append("q0", job.topic("bids").select("auction", "bidder", "price", "date_time", "extra"))


def q1(job: Job) -> None:
    price = (F.col("price") * 0.908).alias("price")
    job.append("q1", job.topic("bids").select("auction", "bidder", price, "date_time"))


def q2(job: Job) -> None:
    job.append("q2", job.topic("bids").where("auction % 123 = 0").select("auction", "price"))


def q3(job: Job) -> None:
    items = job.topic("auctions").where("category = 10").select("seller", F.col("id").alias("auction"))
    sellers = job.topic("persons").where("state in ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    joined = sellers.join(items, sellers.id == items.seller)
    job.append("q3", joined.select("name", "city", "state", "auction"))


def q4(job: Job) -> None:
    valid_bids(job)
    best = job.stream("valid_bids").groupBy("id", "category").agg(F.max("price").alias("price"))
    job.merge("best_prices", best, ("id", "category"))
    job.replace("q4", job.table("best_prices").groupBy("category").agg(F.avg("price").alias("price")))


def q5(job: Job) -> None:
    windows = job.topic("bids").groupBy("auction", F.window("date_time", TEN_S, "2 seconds"))
    counts = windows.agg(F.count("*").alias("bids"))
    counts = counts.select("auction", F.col("window.start").alias("window_start"), "bids")
    job.merge("bid_counts", counts, ("auction", "window_start"))
    most = Window.partitionBy("window_start").orderBy(F.desc("bids"))
    job.replace("q5", job.table("bid_counts").withColumn("n", F.rank().over(most)).where("n = 1").drop("n"))


def q6(job: Job) -> None:
    q9(job)
    last = Window.partitionBy("seller").orderBy(F.desc("expires"), F.desc("id"))
    closed = job.table("q9").withColumn("n", F.row_number().over(last)).where("n <= 10")
    job.replace("q6", closed.groupBy("seller").agg(F.avg("price").alias("price")))


def q7(job: Job) -> None:
    rows = all_bids(job).withColumn("window_start", F.window("date_time", TEN_S).start)
    highest = Window.partitionBy("window_start").orderBy(F.desc("price"))
    best = rows.withColumn("n", F.rank().over(highest)).where("n = 1")
    job.replace("q7", best.select("auction", "bidder", "price", "date_time", "window_start"))


def q8(job: Job) -> None:
    came = job.topic("persons").select("id", "name", F.window("date_time", TEN_S).start.alias("window_start"))
    opened = job.topic("auctions").select("seller", F.window("date_time", TEN_S).start.alias("opened"))
    joined = came.join(opened, (came.id == opened.seller) & (came.window_start == opened.opened))
    key = ("id", "window_start")
    job.merge("q8", joined.drop("seller", "opened"), key, last=lambda batch: batch.dropDuplicates(list(key)))


def q9(job: Job) -> None:
    valid_bids(job)
    columns = ("id", "item", "seller", "category", "expires", "auction", "bidder", "price", "bid_at", "extra")
    rows = job.stream("valid_bids").select(*columns)
    best = first_of(("id",), F.desc("price"), F.asc("bid_at"), F.desc("bidder"))
    newer = "struct(s.price, -unix_micros(s.bid_at), s.bidder) > struct(t.price, -unix_micros(t.bid_at), t.bidder)"
    job.merge("q9", rows, ("id",), newer=newer, last=best)


def q10(job: Job) -> None:
    days = (F.to_date("date_time").alias("day"), F.date_format("date_time", "HH:mm").alias("minute"))
    rows = job.topic("bids").select("auction", "bidder", "price", "date_time", "extra", *days)
    job.append("q10", rows, partition_by=("day",))


def q11(job: Job) -> None:
    timed, session = job.topic("bids").withWatermark("date_time", "4 seconds"), F.session_window("date_time", TEN_S)
    counts = timed.groupBy("bidder", session).agg(F.count("*").alias("bids"))
    bounds = (F.col("session_window.start").alias("began"), F.col("session_window.end").alias("ended"))
    job.append("q11", counts.select("bidder", "bids", *bounds))


def q12(job: Job) -> None:
    windows = job.topic("bids", "timestamp").groupBy("bidder", F.window("timestamp", TEN_S))
    counts = windows.agg(F.count("*").alias("bids")).select(
        "bidder", F.col("window.start").alias("window_start"), "bids"
    )
    job.merge("q12", counts, ("bidder", "window_start"))


def q13(job: Job) -> None:
    columns = ("auction", "bidder", "price", "date_time", (F.col("auction") % 100).alias("key"))
    job.append("q13", job.topic("bids").select(*columns).join(job.table("nexmark_side_input"), "key").drop("key"))


def q14(job: Job) -> None:
    hour = F.hour("date_time")
    kind = F.when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    letters = F.expr("length(extra) - length(replace(extra, 'c', ''))").alias("c_counts")
    price = (F.col("price") * 0.908).alias("price")
    rows = job.topic("bids").select("auction", "bidder", price, kind.alias("kind"), "date_time", "extra", letters)
    job.append("q14", rows.where("price > 1000000 and price < 50000000"))


def q15(job: Job) -> None:
    days = all_bids(job).groupBy(F.to_date("date_time").alias("day"))
    job.replace("q15", days.agg(*ranked(), *ranked("bidder"), *ranked("auction")))


def q16(job: Job) -> None:
    groups = all_bids(job).groupBy("channel", F.to_date("date_time").alias("day"))
    minute = F.max(F.date_format("date_time", "HH:mm")).alias("minute")
    job.replace("q16", groups.agg(minute, *ranked(), *ranked("bidder"), *ranked("auction")))


def q17(job: Job) -> None:
    prices = [F.min("price").alias("min_price"), F.max("price").alias("max_price"), F.avg("price").alias("avg_price"),
              F.sum("price").alias("sum_price")]  # fmt: skip
    groups = job.topic("bids").groupBy("auction", F.to_date("date_time").alias("day"))
    job.merge("q17", groups.agg(*ranked(), *prices), ("auction", "day"))


def q18(job: Job) -> None:
    key = ("bidder", "auction")
    last = first_of(key, *[F.desc(name) for name in ("date_time", *PLACES)])
    order = "struct({0}.date_time, {0}.partition, {0}.offset)"
    job.merge("q18", job.topic("bids", *PLACES), key, newer=f"{order.format('s')} > {order.format('t')}", last=last)


def q19(job: Job) -> None:
    highest = Window.partitionBy("auction").orderBy(F.desc("price"), "date_time", "bidder")
    job.replace("q19", all_bids(job).withColumn("place", F.row_number().over(highest)).where("place <= 10"))


def q20(job: Job) -> None:
    valid_bids(job)
    job.append("q20", job.stream("valid_bids").where("category = 10").drop("description"))


def q21(job: Job) -> None:
    given = F.lower("channel")
    found = F.nullif(F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2), F.lit(""))
    for number, name in enumerate(("apple", "google", "facebook", "baidu")):
        found = F.when(given == name, str(number)).otherwise(found)
    rows = job.topic("bids").select("auction", "bidder", "price", "channel", found.alias("channel_id"))
    job.append("q21", rows.where("channel_id is not null"))


def q22(job: Job) -> None:
    parts = F.split("url", "/")
    dirs = [parts[index + 2].alias(f"dir{index}") for index in (1, 2, 3)]
    job.append("q22", job.topic("bids").select("auction", "bidder", "price", "channel", *dirs))


QUERIES: dict[str, Callable[[Job], None]] = {
    each.__name__: each
    for each in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21,
                 q22)
}  # fmt: skip


def main(queries: str, bootstrap: str, directory: str, per_batch: int) -> None:
    with running() as spark:
        for number, query in enumerate(queries.split(",")):
            home = Path(directory) / f"{number}-{query}"
            QUERIES[query](Job(spark, bootstrap, str(home), per_batch))
            (home / "done").touch()


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
