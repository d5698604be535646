"""NEXMark, queries 0 to 22, as one pipeline: an auction house with persons, auctions and bids.

    python examples/nexmark/events.py --events 10000      # sends the events, and makes the side input of query 13
    headrace pipeline check examples/nexmark/nexmark.py
    headrace pipeline run examples/nexmark/nexmark.py --once
    headrace table query "select * from q4 order by category"

Each query is in the form that suits it: appended rows, rows merged by a key, an aggregate that is kept up to date, or
a table that is computed again from whole tables (`@hr.materialized`). Whichever it is, its rows follow from the log
alone: not from where batches ended, and not from restarts.

Three queries differ from NEXMark's own: query 10 writes a partitioned table rather than files; the windows of query 12
are of the time at which a record was appended to the log, which a replay finds again, rather than of the processing
time; queries 5 and 7 give a window as soon as it has rows, and not only when it is over.
"""

from pyspark.sql import Window
from pyspark.sql import functions as F

import headrace as hr

PERSON = "id long, name string, email string, credit_card string, city string, state string, date_time timestamp"
AUCTION = (
    "id long, item string, description string, initial_bid long, reserve long, date_time timestamp, expires timestamp, "
    "seller long, category long"
)
BID = "auction long, bidder long, price long, channel string, url string, date_time timestamp, extra string"
LOCAL_STATES = ("OR", "ID", "CA")
DOLLARS_TO_EUROS = 0.908

persons = hr.topic("nexmark-persons", schema=PERSON)
auctions = hr.topic("nexmark-auctions", schema=AUCTION)
bids = hr.topic("nexmark-bids", schema=BID)
side_input = hr.static("nexmark_side_input")  # a table of another pipeline: key long, value string


@hr.table
def all_bids(bids):
    """Every bid, for the queries that look at all of them again."""
    return bids


@hr.table
def valid_bids(auctions, bids):
    """Bids beside their auction, if they were made while it was open. Whichever comes first waits for the other."""
    columns = ("auction", "bidder", "price", "channel", "url", "extra")
    of_auction = bids.select(*columns, F.col("date_time").alias("bid_at"))
    return auctions.join(
        of_auction, (auctions.id == of_auction.auction) & F.expr("bid_at between date_time and expires")
    )


@hr.table
def q0(bids):
    """Pass through."""
    return bids.select("auction", "bidder", "price", "date_time", "extra")


@hr.table
def q1(bids):
    """Currency conversion."""
    return bids.select("auction", "bidder", (F.col("price") * DOLLARS_TO_EUROS).alias("price"), "date_time")


@hr.table
def q2(bids):
    """Bids on certain auctions."""
    return bids.where("auction % 123 = 0").select("auction", "price")


@hr.table
def q3(auctions, persons):
    """Who sells in a category in three states?"""
    items = auctions.where("category = 10").select("seller", F.col("id").alias("auction"))
    sellers = persons.where(F.col("state").isin(*LOCAL_STATES)).select("id", "name", "city", "state")
    return sellers.join(items, sellers.id == items.seller).select("name", "city", "state", "auction")


@hr.table(key=["id", "category"])
def best_prices(valid_bids):
    """The highest valid bid of each auction so far."""
    return valid_bids.groupBy("id", "category").agg(F.max("price").alias("price"))


@hr.table(key="category")
def q4(best_prices):
    """The average closing price of a category. A price that rises counts once."""
    return best_prices.groupBy("category").agg(F.avg("price").alias("price"))


@hr.table(key=["auction", "window_start"])
def bid_counts(bids):
    """Bids per auction in windows of ten seconds that begin every two."""
    counts = bids.groupBy("auction", F.window("date_time", "10 seconds", "2 seconds")).agg(F.count("*").alias("bids"))
    return counts.select("auction", F.col("window.start").alias("window_start"), "bids")


@hr.materialized
def q5(bid_counts):
    """Hot items: the auctions with the most bids in each window."""
    most = Window.partitionBy("window_start").orderBy(F.desc("bids"))
    return bid_counts.withColumn("place", F.rank().over(most)).where("place = 1").drop("place")


@hr.table(key="id", order_by=["price", "earliness", "bidder"], leave_out="earliness")
def q9(valid_bids):
    """Winning bids: the highest of each auction and, of several, the first."""
    columns = ("id", "item", "seller", "category", "expires", "auction", "bidder", "price", "bid_at", "extra")
    return valid_bids.select(*columns, (-F.unix_micros("bid_at")).alias("earliness"))


@hr.materialized
def q6(q9):
    """The average price of the last ten auctions of each seller."""
    last = Window.partitionBy("seller").orderBy(F.desc("expires"), F.desc("id"))
    closed = q9.withColumn("n", F.row_number().over(last)).where("n <= 10")
    return closed.groupBy("seller").agg(F.avg("price").alias("price"))


@hr.materialized
def q7(all_bids):
    """The highest bids of every ten seconds."""
    rows = all_bids.withColumn("window_start", F.window("date_time", "10 seconds").start)
    highest = Window.partitionBy("window_start").orderBy(F.desc("price"))
    best = rows.withColumn("place", F.rank().over(highest)).where("place = 1")
    return best.select("auction", "bidder", "price", "date_time", "window_start")


@hr.table(key=["id", "window_start"])
def q8(persons, auctions):
    """Who opened an auction within the ten seconds in which they came?"""
    came = persons.select("id", "name", F.window("date_time", "10 seconds").start.alias("window_start"))
    opened = auctions.select("seller", F.window("date_time", "10 seconds").start.alias("opened"))
    return came.join(opened, (came.id == opened.seller) & (came.window_start == opened.opened)).drop("seller", "opened")


@hr.table(partition_by="day")
def q10(bids):
    """Every bid, partitioned by its day."""
    return bids.select("auction", "bidder", "price", "date_time", "extra", F.to_date("date_time").alias("day"),
                       F.date_format("date_time", "HH:mm").alias("minute"))  # fmt: skip


@hr.table
def q11(bids):
    """Bids of each bidder per session, which ends ten seconds after its last bid. It is written when it is over."""
    session = F.session_window("date_time", "10 seconds")
    counts = bids.withWatermark("date_time", "4 seconds").groupBy("bidder", session).agg(F.count("*").alias("bids"))
    return counts.select("bidder", "bids", F.col("session_window.start").alias("began"),
                         F.col("session_window.end").alias("ended"))  # fmt: skip


@hr.table(key=["bidder", "window_start"])
def q12(bids):
    """Bids of each bidder in every ten seconds of log time."""
    counts = bids.groupBy("bidder", F.window("_timestamp", "10 seconds")).agg(F.count("*").alias("bids"))
    return counts.select("bidder", F.col("window.start").alias("window_start"), "bids")


@hr.table
def q13(bids, side_input):
    """Bids with a column of a small table."""
    rows = bids.select("auction", "bidder", "price", "date_time", (F.col("auction") % 100).alias("key"))
    return rows.join(side_input, "key").drop("key")


@hr.table
def q14(bids):
    """Calculated columns."""
    hour = F.hour("date_time")
    kind = F.when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    letters = F.expr("length(extra) - length(replace(extra, 'c', ''))")
    price = F.col("price") * DOLLARS_TO_EUROS
    rows = bids.select("auction", "bidder", price.alias("price"), kind.alias("kind"), "date_time", "extra",
                       letters.alias("c_counts"))  # fmt: skip
    return rows.where("price > 1000000 and price < 50000000")


def ranked(column=None):
    """Counts of all bids and of three ranges of price: of rows or, of a column, of its different values."""
    ranges = {"": F.lit(True), "_rank1": F.col("price") < 10_000, "_rank2": F.col("price").between(10_000, 999_999),
              "_rank3": F.col("price") >= 1_000_000}  # fmt: skip
    if column is None:
        return [F.count_if(condition).alias(f"bids{name}") for name, condition in ranges.items()]
    return [F.count_distinct(F.when(given, F.col(column))).alias(f"{column}s{name}") for name, given in ranges.items()]


@hr.materialized
def q15(all_bids):
    """Statistics of each day."""
    return all_bids.groupBy(F.to_date("date_time").alias("day")).agg(*ranked(), *ranked("bidder"), *ranked("auction"))


@hr.materialized
def q16(all_bids):
    """Statistics of each channel and day."""
    groups = all_bids.groupBy("channel", F.to_date("date_time").alias("day"))
    return groups.agg(F.max(F.date_format("date_time", "HH:mm")).alias("minute"), *ranked(), *ranked("bidder"),
                      *ranked("auction"))  # fmt: skip


@hr.table(key=["auction", "day"])
def q17(bids):
    """Statistics of each auction and day."""
    prices = [F.min("price").alias("min_price"), F.max("price").alias("max_price"), F.avg("price").alias("avg_price"),
              F.sum("price").alias("sum_price")]  # fmt: skip
    return bids.groupBy("auction", F.to_date("date_time").alias("day")).agg(*ranked(), *prices)


@hr.table(key=["bidder", "auction"], order_by="date_time")
def q18(bids):
    """The last bid of each bidder on each auction. Bids of one time: the last in the log."""
    return bids


@hr.materialized
def q19(all_bids):
    """The ten highest bids of each auction."""
    highest = Window.partitionBy("auction").orderBy(F.desc("price"), "date_time", "bidder")
    return all_bids.withColumn("place", F.row_number().over(highest)).where("place <= 10")


@hr.table
def q20(valid_bids):
    """Bids with their auction, of one category."""
    return valid_bids.where("category = 10").drop("description")


@hr.table
def q21(bids):
    """The id of a bid's channel."""
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    given = F.lower("channel")
    found = F.nullif(F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2), F.lit(""))
    for name, number in known.items():
        found = F.when(given == name, number).otherwise(found)
    return bids.select("auction", "bidder", "price", "channel", found.alias("channel_id")).where(
        "channel_id is not null"
    )


@hr.table
def q22(bids):
    """Parts of a URL."""
    parts = F.split("url", "/")
    return bids.select("auction", "bidder", "price", "channel",
                       *[parts[index + 2].alias(f"dir{index}") for index in (1, 2, 3)])  # fmt: skip
