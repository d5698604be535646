"""The pipeline of examples/shop/shop.py as a careful engineer writes it in plain PySpark; ends when it has caught up.

    python shop_by_hand.py JARS DRIVER_MEMORY BOOTSTRAP DIRECTORY BIG_ORDERS_TOPIC

The three queries that read topics run at the same time, then the two that read the table of the first. A batch that
is run again changes nothing: appends carry a transaction id, and merges go by key.
"""

import sys
from collections.abc import Callable

from by_hand import CORRUPT, parsed, records, session
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

ORDERS = "order_id string, customer string, amount double, at timestamp"
PAYMENTS = "order_id string, paid double, at timestamp"
CLICKS = "customer string, page string, at timestamp"
REVENUE = "customer string, minute timestamp, amount double, orders long"
PAGE_VIEWS = "page string, minute timestamp, views long"


class Shop:
    def __init__(self, spark: SparkSession, bootstrap: str, directory: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._directory = directory

    def clean_orders(self) -> StreamingQuery:
        orders = parsed(records(self._spark, self._bootstrap, "orders"), ORDERS)

        def write(batch: DataFrame, number: int) -> None:
            batch.persist()  # two writes, one pass over the topic
            bad = F.col(f"row.{CORRUPT}").isNotNull() | ~F.coalesce(F.col("row.amount") > 0, F.lit(False))
            clean = batch.where(~bad).select("row.*").drop(CORRUPT).where("customer is not null")
            _append(clean.withColumn("day", F.to_date("at")), self._table("clean_orders"), number, "day")
            reason = F.when(F.col(f"row.{CORRUPT}").isNotNull(), "not JSON of an order").otherwise("amount > 0")
            place = ["topic", "partition", "offset", "timestamp", "key", "value"]
            rejected = batch.where(bad).select(reason.alias("reason"), *place)
            _append(rejected, self._table("rejected_orders"), number)
            batch.unpersist()

        return self._start("clean_orders", orders, write)

    def paid_orders(self) -> StreamingQuery:
        """The last payment of each order."""
        payments = parsed(records(self._spark, self._bootstrap, "payments"), PAYMENTS)
        whole = payments.where(f"row.{CORRUPT} is null").select("row.*", "timestamp", "partition", "offset")
        self._create("paid_orders", PAYMENTS)

        def write(batch: DataFrame, number: int) -> None:
            last = F.max_by(F.struct("order_id", "paid", "at"), F.struct("timestamp", "partition", "offset"))
            rows = batch.groupBy(F.col("order_id").alias("id")).agg(last.alias("row")).select("row.*")
            self._merge(rows, "paid_orders", "order_id")

        return self._start("paid_orders", whole.drop(CORRUPT), write)

    def page_views(self) -> StreamingQuery:
        clicks = parsed(records(self._spark, self._bootstrap, "clicks"), CLICKS)
        whole = clicks.where(f"row.{CORRUPT} is null").select("row.*")
        minute = F.window("at", "1 minute").start.alias("minute")
        views = whole.withWatermark("at", "1 hour").groupBy("page", minute).agg(F.count("*").alias("views"))
        self._create("page_views", PAGE_VIEWS)
        return self._start("page_views", views, lambda batch, _: self._merge(batch, "page_views", "page", "minute"))

    def revenue(self) -> StreamingQuery:
        clean_orders = self._spark.readStream.format("delta").load(self._table("clean_orders"))
        minute = F.window("at", "1 minute").start.alias("minute")
        spent = (
            clean_orders.withWatermark("at", "1 hour")
            .groupBy("customer", minute)
            .agg(F.sum("amount").alias("amount"), F.count("*").alias("orders"))
        )
        self._create("revenue", REVENUE)
        return self._start("revenue", spent, lambda batch, _: self._merge(batch, "revenue", "customer", "minute"))

    def big_orders(self, topic: str) -> StreamingQuery:
        big = self._spark.readStream.format("delta").load(self._table("clean_orders")).where("amount > 500")
        value = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
        return (
            big.select(F.col("customer").alias("key"), value.alias("value"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", self._checkpoint("big_orders"))
            .trigger(availableNow=True)
            .start()
        )

    def _start(self, name: str, rows: DataFrame, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
        return (
            rows.writeStream.foreachBatch(write)
            .outputMode("update")
            .option("checkpointLocation", self._checkpoint(name))
            .trigger(availableNow=True)
            .start()
        )

    def _merge(self, rows: DataFrame, name: str, *key: str) -> None:
        same = " and ".join(f"t.{column} = s.{column}" for column in key)
        table = DeltaTable.forPath(rows.sparkSession, self._table(name)).alias("t")
        table.merge(rows.alias("s"), same).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    def _create(self, name: str, schema: str) -> None:
        columns = StructType.fromDDL(schema)
        DeltaTable.createIfNotExists(self._spark).location(self._table(name)).addColumns(columns).execute()

    def _table(self, name: str) -> str:
        return f"{self._directory}/tables/{name}"

    def _checkpoint(self, name: str) -> str:
        return f"{self._directory}/checkpoints/{name}"


def _append(rows: DataFrame, path: str, batch: int, *partition_by: str) -> None:
    writer = rows.write.format("delta").mode("append").option("txnAppId", path).option("txnVersion", batch)
    writer.partitionBy(*partition_by).save(path)


def main(jars: str, driver_memory: str, bootstrap: str, directory: str, big_orders_topic: str) -> None:
    spark = session(jars, driver_memory)
    shop = Shop(spark, bootstrap, directory)
    for query in (shop.clean_orders(), shop.paid_orders(), shop.page_views()):
        query.awaitTermination()
    for query in (shop.revenue(), shop.big_orders(big_orders_topic)):
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
