"""The pipeline of shop.py after a change: revenue without the tax, and large orders begin at 800.

headrace pipeline replay examples/shop/shop_changed.py
"""

from pyspark.sql import functions as F

import headrace as hr

hr.pipeline("shop")

TAX = 0.19

orders = hr.topic("orders", schema="order_id string, customer string, amount double, at timestamp")
payments = hr.topic("payments", schema="order_id string, paid double, at timestamp")
clicks = hr.topic("clicks", schema="customer string, page string, at timestamp")


@hr.table(
    partition_by="day",
    expect={
        "amount is positive": hr.quarantine("amount > 0"),
        "has a customer": hr.drop("customer is not null"),
        "is not a fortune": hr.warn("amount < 900"),
    },
)
def clean_orders(orders):
    return orders.withColumn("day", F.to_date("at"))


@hr.table(key=["customer", "minute"])
def revenue(clean_orders):
    """What each customer spent in each minute; a late order corrects the minute that it belongs to."""
    minute = F.window("at", "1 minute").start.alias("minute")
    late = clean_orders.withWatermark("at", "1 hour")
    return late.groupBy("customer", minute).agg(
        F.round(F.sum(F.col("amount") / (1 + TAX)), 2).alias("amount"), F.count("*").alias("orders")
    )


@hr.table(key="order_id")
def paid_orders(payments):
    """The last payment of each order."""
    return payments


@hr.table(key=["page", "minute"])
def page_views(clicks):
    minute = F.window("at", "1 minute").start.alias("minute")
    return clicks.withWatermark("at", "1 hour").groupBy("page", minute).agg(F.count("*").alias("views"))


@hr.to_topic("big-orders", key="customer")
def big_orders(clean_orders):
    return clean_orders.where("amount > 800")
