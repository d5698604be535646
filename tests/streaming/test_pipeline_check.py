"""Analysis before any job: schemas, modes, and every error with the line of the user's code."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_runs import Bench

from headrace.core.errors import OperatorError
from headrace.streaming.check import Checked, check
from headrace.streaming.kafka import Kafka
from headrace.streaming.launching import open_pipeline
from headrace.streaming.reading import table_path
from headrace.streaming.schemas import Schemas

TOPIC = 'orders = hr.topic("check-orders", schema="id int, amount double, at timestamp")\n'


def checked(bench: Bench, code: str) -> Checked:
    """Nothing listens at that address: a check that asked a broker would fail."""
    _, graph = open_pipeline(bench.file(code))
    schemas = Schemas(None, Kafka("127.0.0.1:1"), keep=False)
    return check(bench.spark, graph, parser=schemas.parser, path_of=lambda table: table_path(bench.tables, table))


def test_schemas_and_modes_are_known_without_a_job_a_broker_or_a_table(bench: Bench) -> None:
    jobs = bench.spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    found = checked(bench, TOPIC + """
@hr.table(expect={"positive": hr.warn("amount > 0")})
def clean(orders):
    return orders.withColumn("day", F.to_date("at"))

@hr.table(key="day")
def totals(clean):
    return clean.groupBy("day").agg(F.sum("amount").alias("amount"))

@hr.materialized
def audit(totals):
    return totals.orderBy("day").limit(3)

@hr.to_topic("check-out", key="day")
def out(changes=hr.stream("totals", change_feed=True)):
    return changes

@hr.to_topic("check-fast", latency="realtime")
def fast(orders):
    return orders
""")  # fmt: skip
    nodes = {node.name: node for node in found.nodes}
    assert nodes["clean"].schema.simpleString() == "struct<id:int,amount:double,at:timestamp,day:date>"
    assert nodes["totals"].schema.simpleString() == "struct<day:date,amount:double>"
    assert {name: node.mode for name, node in nodes.items()} == {
        "clean": "append", "totals": "update", "audit": "append", "out": "update", "fast": "update",
    }  # fmt: skip
    assert nodes["clean"].reads == ("topic check-orders",)
    assert nodes["audit"].reads == ("all of table totals",)
    assert nodes["out"].reads == ("changes of table totals",)
    assert "at least once" in nodes["fast"].writes
    assert bench.spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs


KEYED = "@hr.table(key='id')\ndef k(orders):\n    return orders\n"
PROCESSOR = """from pyspark.sql.streaming import StatefulProcessor
class Each(StatefulProcessor):
    def init(self, handle):
        pass
    def handleInputRows(self, key, rows, timers):
        yield from rows
    def close(self):
        pass
def state(orders, mode):
    rows = orders.select('id', 'at').groupBy('id')
    return rows.transformWithState(Each(), 'id int, at timestamp', mode, 'None')
"""
WRONG: list[tuple[str, str, str]] = [
    ("@hr.table\ndef t(orders):\n    x = 1\n    return orders.select('nothing')", "6", "nothing"),
    ("@hr.table\ndef t(orders):\n    return orders.filter(F.col('amount') > undefined)", "5", "NameError"),
    ("@hr.table\ndef t(orders):\n    pass", "4", "returns NoneType, not a DataFrame; is a return missing?"),
    ("@hr.table(key='nr')\ndef t(orders):\n    return orders", "3", "key names 'nr', which it does not return"),
    ("@hr.table(partition_by='dya')\ndef t(orders):\n    return orders.selectExpr('1 day')", "3", "did you mean 'day'"),
    ("@hr.table(expect={'x': hr.warn('b > 0')})\ndef t(orders):\n    return orders", "3", "expectation 'x': 'b > 0'"),
    ("@hr.table(expect={'x': hr.warn('amount >')})\ndef t(orders):\n    return orders", "3", "Syntax error"),
    ("@hr.table\ndef t(orders):\n    return orders.groupBy('id').count()", "3", "add key= to merge rows"),
    ("@hr.table\ndef t(orders):\n    return orders.select('id', F.lit(1).alias('id'))", "3", "two columns named 'id'"),
    ("@hr.table\ndef t(orders):\n    return orders.withColumn('n', F.lit(None))", "3", "'n' has no type"),
    ("@hr.table\ndef t(orders):\n    return orders.sparkSession.range(1)", "3", "does not stream"),
    ("s = hr.static('none')\n@hr.table\ndef t(orders, s):\n    return orders.join(s, 'id')", "3", "hr.static('none')"),
    ("@hr.table(key='id')\ndef k(orders):\n    return orders\n@hr.table\ndef t(k):\n    return k", "6",
     "t: reads k, whose rows are merged by id; as a stream a changed row would count twice"),
    ("@hr.table(mode='complete')\ndef k(orders):\n    return orders.groupBy('id').count()\n"
     "@hr.to_topic('x')\ndef t(k):\n    return k", "6", "which each batch rewrites; as a stream"),
    ("@hr.table(key='id')\ndef t(orders):\n    return orders.groupBy('id', F.to_date('at').alias('day')).count()", "3",
     "which key= does not hold, so that a key has several rows"),
    ("@hr.table(key='id')\ndef t(orders):\n    return orders.groupBy('id').count().where('count < 5')", "3",
     "remove such rows with delete=\"not (count < CAST(5 AS BIGINT))\", or keep the rows of the state in a table"),
    ("@hr.table(key='id')\ndef t(orders):\n    n = orders.groupBy('id').count()\n"
     "    return n.withColumn('x', F.explode(F.array('count', 'id')))", "3", "has a generate above an aggregate"),
    ("@hr.table(key=['id', 'best'])\ndef t(orders):\n    return orders.groupBy('id').agg(F.max('at').alias('best'))",
     "3", "its key holds 'best', the result of an aggregate, which changes"),
    ("@hr.table(key='d')\ndef t(orders):\n    n = orders.groupBy('at').count()\n"
     "    return n.select(F.to_date('at').alias('d'), 'count')", "3", "groups by at, which key= does not hold"),
    ("@hr.table(key='id', delete='amount < 0')\ndef t(orders):\n    return orders.select('id', 'amount')", "3",
     "delete= needs to know whether a row came before or after"),
    ("@hr.table(mode='update')\ndef t(orders):\n    return orders.groupBy('id').count()", "3",
     "mode='update' appends a row again each time that an aggregate or custom state updates it"),
    ("@hr.table\ndef t(orders):\n    return orders.limit(3)", "3", "limits a stream, so that which rows it takes"),
    ("@hr.table(key='id', order_by='m')\ndef t(orders):\n    return orders.groupBy('id').agg(F.max('at').alias('m'))",
     "3", "order_by='m' on rows that an aggregate or custom state updates: how many rows of a key there are to choose"),
    ("def f(k, rows, state):\n    yield next(rows)\n@hr.table(key='id', order_by='at')\ndef t(orders):\n"
     "    rows = orders.select('id', 'at').groupBy('id')\n"
     "    return rows.applyInPandasWithState(f, 'id int, at timestamp', 'n int', 'update', 'NoTimeout')", "5",
     "order_by='at' on rows that an aggregate or custom state updates"),
    (PROCESSOR + "@hr.table(key='id', order_by='at')\ndef t(orders):\n    return state(orders, 'Update')\n", "14",
     "order_by='at' on rows that an aggregate or custom state updates"),
    ("@hr.table(key='id', expect={'few': hr.drop('count < 5')})\ndef t(orders):\n"
     "    return orders.groupBy('id').count()", "3",
     "expectation 'few' takes rows out that an aggregate or custom state updates"),
    ("@hr.table\ndef a(orders):\n    return orders\n@hr.table(late='quarantine')\ndef t(a):\n"
     "    return a.withWatermark('at', '1 hour').groupBy(F.window('at', '1 hour')).count()", "6",
     "late='quarantine': Spark does not show which rows it dropped, and only the records of a single topic can be"),
    ("@hr.table(late='quarantine')\ndef t(orders):\n    return orders.withWatermark('at', '1 hour')", "3",
     "late='quarantine': nothing in it drops late rows; group by, or drop duplicates by, the column of withWatermark"),
    ("@hr.table(late='quarantine')\ndef t(orders):\n    rows = orders.withWatermark('at', '1 hour')\n"
     "    return rows.dropDuplicates(['id', 'at']).groupBy(F.window('at', '1 hour')).count()", "3",
     "which of its operators dropped a row cannot be told (Aggregate, Deduplicate)"),
    ("@hr.to_topic('x', value='nr')\ndef t(orders):\n    return orders", "3", "value names 'nr'"),
]  # fmt: skip


UNMAINTAINABLE = {
    "k.limit(3)": "it uses globallimit",
    "k.groupBy('id').count().where('count > 1')": "it filters, joins or groups what was grouped before",
    "k.join(k.groupBy('id').count(), 'id')": "it reads a table twice",
    "k.union(k)": "it reads a table twice",
    "k.groupBy('amount').agg(F.max('id').alias('id'))": "its key holds 'id', the result of an aggregate",
    "k.withColumn('r', F.rand())": "it would not give the same rows again",
    "k.dropDuplicates(['amount'])": "it uses deduplicate, which keeps any one of several rows",
    "k.cube('id').count()": "groups by spark_grouping_id, which key= does not hold",
    "k.where(F.col('at') < F.current_timestamp())": "it uses the time of the batch",
    "k.groupBy('id', 'amount').count()": "groups by amount, which key= does not hold",
}
WRONG += [
    (f"{KEYED}@hr.table(key='id')\ndef t(k):\n    return {code}", "6", f"up to date from the changes: {why}")
    for code, why in UNMAINTAINABLE.items()
]


CHANGES = 'c = hr.changes("check-changes", "id int, name string", key="id")\n'
WRONG.append(
    (CHANGES + "@hr.table\ndef t(c):\n    return c.where('id > 0')", "4",
     "filters the changes of 'check-changes', so that a row which no longer passes would stay as it was; filter in a")
)  # fmt: skip
WRONG.append(
    (
        f"{KEYED}{KEYED.replace('def k', 'def other')}@hr.table(key='id')\ndef t(k, other):\n"
        "    return k.join(k.select('id'), 'id')", "9", "it does not use every table that it reads",
    )
)  # fmt: skip
TWO = f"{KEYED}{KEYED.replace('def k', 'def other')}@hr.table(key='id')\ndef t(k, other):\n    return "
OUTER = {
    "k.join(other.select(F.col('id').alias('nr')), F.col('id') == F.col('nr'), 'right')":
        "its key holds columns that a right outer join may leave null",
    "k.join(other.select('id', F.col('amount').alias('b')), 'id', 'left').where('b is null')":
        "it filters or joins what a left outer join gives",
    "k.join(other.select('id'), 'id', 'full')": "it has a full outer join",
    "k.join(other, 'id', 'anti')": "it has a left anti join",
}  # fmt: skip
WRONG += [(TWO + code, "9", f"up to date from the changes: {why}") for code, why in OUTER.items()]
MAINTAINED = {
    "k.join(other.select('id', F.col('amount').alias('b')), 'id', 'left')",
    "k.select('id', 'amount').join(other.select('id'), 'id', 'right')",
    "k.join(other, 'id', 'left').groupBy('id').agg(F.count(other.at).alias('n'))",
    "k.join(other.select('id'), 'id').select('id').dropDuplicates()",
    "k.join(other.select('id'), 'id').select('id').distinct()",
    "k.join(other.select('id'), 'id').groupBy('id', F.window('at', '10 minutes', '5 minutes')).count()"
    ".select('id', F.col('window.start').alias('begin'), 'count')",
}
RIGHT = {
    "id": "orders.groupBy(F.col('id').alias('nr')).count().withColumnRenamed('nr', 'id')",
    "day": "orders.groupBy(F.to_date('at').alias('day')).agg(F.sum('amount').alias('amount'))",
    "begin": "orders.groupBy(F.window('at', '1 hour')).count().select(F.col('window.start').alias('begin'), 'count')",
    "end": "orders.groupBy(F.window('at', '1 hour')).count().select('window.end', 'count')",
}


def test_rows_that_custom_state_gives_once_are_ordered_whichever_batch_they_come_in(bench: Bench) -> None:
    given = "orders.groupBy('id').applyInPandasWithState(f, 'id int, at timestamp', 'n int', 'append', 'NoTimeout')"
    code = PROCESSOR + "def f(k, rows, state):\n    yield next(rows)\n"
    for name, state in {"t": given, "u": "state(orders, 'Append')"}.items():
        code += f"@hr.table(key='id', order_by='at')\ndef {name}(orders):\n    return {state}\n"
    nodes = checked(bench, TOPIC + code).nodes
    assert [(found.mode, found.order and found.order.by) for found in nodes] == [("append", ("at",))] * 2
    hidden = [[column.name for column in found.hidden] for found in nodes]
    assert hidden == [["_headrace_order"]] * 2  # which merges only what is newer


def test_a_key_may_be_what_is_grouped_by_under_any_name_and_the_start_of_a_window(bench: Bench) -> None:
    whole = CHANGES + "@hr.table\ndef t(c):\n    return c.withColumn('name', F.upper('name'))\n"
    assert checked(bench, whole).schema("t").names == ["id", "name"]
    code = "".join(f"@hr.table(key={key!r})\ndef t_{key}(orders):\n    return {made}\n" for key, made in RIGHT.items())
    # Of groups under their key a batch has one per key, which nothing needs to look for.
    assert [(node.mode, node.grouped) for node in checked(bench, TOPIC + code).nodes] == [("update", True)] * len(RIGHT)
    several = PROCESSOR + "@hr.table(key='id')\ndef t(orders):\n    return state(orders, 'Update')\n"
    assert [node.grouped for node in checked(bench, TOPIC + KEYED + several).nodes] == [False, False]


def test_what_follows_from_the_changes_is_kept_up_to_date(bench: Bench) -> None:
    for code in MAINTAINED:
        two = TWO.replace("key='id')\ndef t", "key=['id', 'begin'])\ndef t") if "begin" in code else TWO
        node = checked(bench, TOPIC + two + code + "\n").node("t")
        assert (node.maintained, node.grouped) == (True, "groupBy" in code), code


@pytest.mark.parametrize(("code", "line", "says"), WRONG)
def test_errors_name_the_line_of_the_user_s_code(bench: Bench, code: str, line: str, says: str) -> None:
    with pytest.raises(OperatorError) as caught:
        checked(bench, TOPIC + code + "\n")
    message = str(caught.value)
    assert says in message
    place, _, _ = message.partition(": ")
    number = int(place.rpartition(":")[2])
    assert place.rpartition(":")[0].endswith("shop.py")
    # Two lines of imports come first in the file, and a decorator may be the line of its function.
    assert number - 2 in (int(line) - 2, int(line) - 1, int(line)), message


def test_a_schema_that_must_be_inferred_needs_the_broker_and_says_so(bench: Bench) -> None:
    with pytest.raises(OperatorError, match=r"has no schema, and none could be inferred: .* no answer"):
        _short(bench)


def _short(bench: Bench) -> Any:
    import headrace.streaming.kafka as kafka

    before = kafka.ASK_S_MAX
    kafka.ASK_S_MAX = 0.3
    try:
        return checked(bench, 'raw = hr.topic("check-raw")\n@hr.table\ndef t(raw):\n    return raw\n')
    finally:
        kafka.ASK_S_MAX = before


def test_what_is_left_to_the_user_s_code_is_noted(bench: Bench) -> None:
    nodes = {
        "now": "orders.withColumn('seen', F.current_timestamp())",
        "chance": "orders.withColumn('r', F.rand())",
        "once": "orders.dropDuplicates(['id'])",
        "plain": "orders.where('amount > 0')",
    }
    code = "".join(f"@hr.table\ndef {name}(orders):\n    return {made}\n" for name, made in nodes.items())
    code += "@hr.to_topic('check-counts')\ndef counts(orders):\n    return orders.groupBy('id').count()\n"
    notes = {node.name: node.notes for node in checked(bench, TOPIC + code).nodes}
    says = {"now": "time of the batch", "chance": "may differ in a replay", "once": "keeps any one of several",
            "counts": "a record for each update"}  # fmt: skip
    assert notes.pop("plain") == ()
    assert {name: any(says[name] in note for note in found) for name, found in notes.items()} == dict.fromkeys(
        says, True
    )
