"""What the training run runs (see `training`): one step of each common kind."""

from pyspark.sql import functions as F

from headrace.streaming import declare as hr

hr.pipeline("training")

events = hr.topic("events", schema="id string, name string, amount double, at timestamp")


@hr.table(partition_by="day", expect={"positive": hr.quarantine("amount > 0"), "small": hr.warn("amount < 50")})
def appended(events):  # type: ignore[no-untyped-def]
    return events.withColumn("day", F.to_date("at"))


@hr.table(key="id")
def merged(events):  # type: ignore[no-untyped-def]
    return events


@hr.table(key=["name", "minute"])
def counted(appended):  # type: ignore[no-untyped-def]
    minute = F.window("at", "1 minute").start.alias("minute")
    late = appended.withWatermark("at", "1 hour")
    return late.groupBy("name", minute).agg(F.sum("amount").alias("amount"), F.count("*").alias("rows"))


@hr.to_topic("large", key="name")
def large(appended):  # type: ignore[no-untyped-def]
    return appended.where("amount > 40")
