"""Each of Spark's internals on a real session, held against the public API that answers where it is missing."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.streaming.declarations import TableOutput
from headrace.streaming.delta_append import DeltaAppender
from headrace.streaming.delta_writes import CHANGE_FEED, Stamp, append, create_table
from headrace.streaming.spark_internals import classes, delta, jvm, plan, query
from headrace.streaming.spark_internals.classes import MissingError
from headrace.streaming.spark_internals.table import CHECKED, INTERNALS
from headrace.tables.provenance import TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALYST, DELTA = "org.apache.spark.sql.catalyst.", "org.apache.spark.sql.delta."


class Lacking:
    """A JVM, or a package of it, without the classes whose names begin so."""

    def __init__(self, real: Any, hidden: tuple[str, ...], path: str = "") -> None:
        self._real, self._hidden, self._path = real, hidden, path

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaPackage

        path = f"{self._path}.{name}" if self._path else name
        if path.startswith(self._hidden):
            return self._real.x.no_such_class  # what py4j makes of a name that it does not know
        found = getattr(self._real, name)
        return Lacking(found, self._hidden, path) if isinstance(found, JavaPackage) else found


@contextmanager
def lacking(spark: SparkSession, *hidden: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark, "_jvm", Lacking(spark._jvm, hidden))  # type: ignore[attr-defined]
        yield


def both(spark: SparkSession, ask: Callable[[], Any], *hidden: str) -> tuple[Any, Any]:
    """What is answered with the classes, and without them."""
    first = ask()
    for name in hidden:
        classes.java_class(spark, name)  # it is there to be hidden
    with lacking(spark, *hidden):
        for name in hidden:
            with pytest.raises(MissingError):
                classes.java_class(spark, name)
        return first, ask()


def test_the_installed_versions_are_in_the_table() -> None:
    for package in {each.package for each in INTERNALS}:
        assert version(package) in CHECKED[package], f"run this file with it, then add it to CHECKED[{package!r}]"


def test_every_internal_is_called_in_this_file() -> None:
    code = Path(__file__).read_text()
    assert not [each.function for each in INTERNALS if f"{each.function}(" not in code]


def test_classes_are_found_by_name(spark: SparkSession) -> None:
    assert classes.has_jvm(spark)
    assert classes.has_class(spark, "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    assert not classes.has_class(spark, "org.apache.spark.sql.delta.catalog.NoSuchCatalog")
    assert classes.java_class(spark, "java.lang.Integer").parseInt("12") == 12
    assert classes.java_session(spark).version() == version("pyspark")
    with pytest.raises(MissingError, match=r"no org\.apache\.spark\.NoSuchClass"):
        classes.java_class(spark, "org.apache.spark.NoSuchClass")


def test_the_session_and_its_jvm_are_seen(spark: SparkSession) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    assert jvm.has_context()
    assert jvm.runs(spark)
    found = SparkSession.getActiveSession()
    assert found is not None
    with pytest.MonkeyPatch.context() as patch:  # pyspark's own public function needs what is taken away
        patch.delattr(SparkContext, "_active_spark_context")
        patch.setattr(SparkSession, "getActiveSession", lambda: found)
        assert jvm.has_context(), "by the public API"
    gateway: Any = SparkContext._gateway
    with_jvm = jvm.conf_of(gateway).set("spark.some.key", "some value")
    assert with_jvm.get("spark.some.key") == "some value"
    assert with_jvm._jconf is not None  # type: ignore[attr-defined]
    assert jvm.launcher().__name__ == "launch_gateway"


def test_settings_can_do_without_the_jvm(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    real = pyspark.SparkConf

    def older(loadDefaults: bool) -> Any:  # noqa: N803 - the name that Spark gave it
        return real(loadDefaults)

    monkeypatch.setattr(pyspark, "SparkConf", older)
    gateway: Any = pyspark.SparkContext._gateway
    assert jvm.conf_of(gateway).set("spark.some.key", "x").get("spark.some.key") == "x"


def test_the_address_of_a_jvm_is_read_as_it_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "address"
    file.write_bytes(struct.pack(">ii", 4711, 6) + b"secret")
    found = jvm.address_variables(str(file))
    assert found == {"PYSPARK_GATEWAY_PORT": "4711", "PYSPARK_GATEWAY_SECRET": "secret"}


class Recorded:
    """A gateway: which of the JVM's objects were reached, and with what."""

    def __init__(self) -> None:
        self.jvm = self
        self.shut = False

    def shutdown(self) -> None:
        self.shut = True


def test_pyspark_lets_go_of_a_jvm_and_takes_it_again(spark: SparkSession) -> None:
    from pyspark import SparkContext

    # pyspark's own variables are put back: the other tests use this JVM.
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_gateway", "_jvm", "_active_spark_context"):
            patch.setattr(SparkContext, name, getattr(SparkContext, name))
        jvm.forget_jvm()
        assert (SparkContext._gateway, SparkContext._jvm) == (None, None)
        assert not jvm.has_context()
        jvm.end_idle_jvm()  # there is none
        gateway: Any = Recorded()
        SparkContext._gateway = gateway
        jvm.end_idle_jvm()
        assert gateway.shut
        assert SparkContext._gateway is None
    assert jvm.runs(spark)
    assert spark.range(3).count() == 3


def stream(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


def test_spark_refuses_the_same_modes_by_its_rules_and_when_started(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    rows = stream(spark)
    frames = {
        "plain": rows,
        "grouped": rows.groupBy("value").count(),
        "windows": rows.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 minute")).count(),
        "twice": rows.groupBy("value").count().groupBy("count").count(),
        "sorted": rows.orderBy("value"),
    }
    answers = {}
    for name, frame in frames.items():
        for mode in ("append", "update", "complete"):
            checked, tried = both(
                spark,
                lambda frame=frame, mode=mode: plan.refusal(frame, mode),
                CATALYST + "analysis.UnsupportedOperationChecker",
            )
            assert checked == tried, (name, mode)
            answers[name, mode] = checked
    assert answers["plain", "append"] is None
    assert answers["grouped", "update"] is None
    assert "append" in str(answers["grouped", "append"]).lower()
    assert answers["plain", "complete"]
    assert answers["sorted", "append"]


def test_the_time_of_a_batch_is_found(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    rows = spark.range(3)
    expected = {
        "plain": (rows.where("id > 1"), False),
        "now": (rows.select(F.current_timestamp()), True),
        "date": (rows.where(F.current_date() > F.lit("2026-01-01").cast("date")), True),
        "local": (rows.select(F.localtimestamp()), True),
        "sql": (rows.selectExpr("now()"), True),
        "user": (rows.selectExpr("current_user()"), True),
        "name": (rows.withColumn("current_time", F.col("id")), False),
    }
    for name, (frame, wanted) in expected.items():
        found = both(spark, lambda frame=frame: plan.uses_batch_time(frame), CATALYST + "trees.TreePattern")
        assert found == (wanted, wanted), name


def test_aggregates_are_found_in_expressions(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    frame = spark.range(3).groupBy("id").agg((F.sum("id") + 1).alias("sum"), F.lit(1).alias("one"))
    named = plan.each_of(plan.analysed(frame).aggregateExpressions())
    found = {
        str(each.name()): both(
            spark,
            lambda each=each: plan.holds_aggregate(spark, each),
            CATALYST + "expressions.aggregate.AggregateExpression",
        )
        for each in named
    }
    assert found == {"id": (False, False), "sum": (True, True), "one": (False, False)}


def test_a_part_of_a_plan_gives_its_rows(spark: SparkSession) -> None:
    whole = spark.range(5).where("id > 2")
    (below,) = plan.each_of(plan.analysed(whole).children())
    assert plan.rows_of(spark, below).count() == 5
    assert plan.rows_of(spark, plan.analysed(whole)).count() == 2
    with lacking(spark, "org.apache.spark.sql.classic.Dataset"), pytest.raises(MissingError, match=r"classic\.Dataset"):
        plan.rows_of(spark, below)


def test_a_frame_without_a_plan_is_refused() -> None:
    class Connected:
        """As a frame of Spark Connect."""

    frame: Any = Connected()
    with pytest.raises(MissingError, match="_jdf"):
        plan.analysed(frame)


def test_a_batch_tells_what_it_has_counted_before_it_ends(spark: SparkSession, tmp_path: Path) -> None:
    """The public progress says the same, but later."""
    from pyspark.sql import functions as F

    seen = []
    (tmp_path / "in").mkdir()
    rows = spark.readStream.schema("id int, at timestamp").json(str(tmp_path / "in"))
    counted = rows.observe("all", F.count("*").alias("rows")).withWatermark("at", "1 minute")
    frame = counted.groupBy(F.window("at", "1 minute")).count()

    def write(batch: DataFrame, number: int) -> None:
        batch.collect()
        seen.append((query.observed(running), query.dropped_late(running)))

    def put(name: str, *times: str) -> None:
        lines = [json.dumps({"id": 1, "at": f"2026-01-01T{time}:00Z"}) for time in times]
        (tmp_path / "in" / name).write_text("\n".join(lines))

    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = writer.outputMode("update").start()
    try:
        put("a.json", "10:00", "12:00")
        running.processAllAvailable()
        put("b.json", "10:30", "12:05", "10:40")
        running.processAllAvailable()
        public = [each for each in running.recentProgress if each["numInputRows"]]
    finally:
        running.stop()
    rows_seen = [json.loads(values["all"])["rows"] for values, _ in seen]
    assert [count for count in rows_seen if count] == [2, 3]
    ((count, watermark_ms),) = [dropped for _, dropped in seen if dropped[0]]
    assert count == sum(each["stateOperators"][0]["numRowsDroppedByWatermark"] for each in public)
    assert watermark_ms == 1767268740000  # 11:59, a minute before the last of the first batch
    with pytest.raises(MissingError, match="_jsq"):
        query.observed(io)  # type: ignore[arg-type]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    create_table(spark, path, spark.range(0).schema, TableOutput(), change_feed=True)
    return path


def stamp(batch: int) -> Stamp:
    source = TopicSource(topic="orders", ranges={0: (10, 13)})
    return Stamp(pipeline="shop", version=1, node="clean", batch=batch, sources=(source,))


def test_a_table_is_told_alike_with_and_without_deltas_log(spark: SparkSession, table: str, tmp_path: Path) -> None:
    append(spark.range(3), table, stamp(7))

    def described() -> tuple[object, ...]:
        found = delta.table_state(spark, table)
        absent = delta.table_state(spark, str(tmp_path / "none"))
        return (
            delta.table_id(spark, table),
            found.version,
            found.has_property(CHANGE_FEED),
            found.has_property("delta.noSuchProperty"),
            found.batch(stamp(7).app_id),
            found.batch("another"),
            absent.version,
            absent.has_property(CHANGE_FEED),
            absent.batch("another"),
        )

    internal, public = both(spark, described, DELTA + "DeltaLog")
    assert internal == public
    assert internal[1:] == (1, True, False, 7, None, delta.NO_TABLE, False, None)


def test_a_commit_carries_several_transactions(spark: SparkSession, table: str) -> None:
    transaction = delta.TableCommit(spark, table)
    assert (transaction.version, transaction.last_batch("a")) == (0, -1)
    assert json.loads(transaction.schema_text)["fields"][0]["name"] == "id"
    assert transaction.append(spark.range(3), [("a", 5), ("b", 6)]) == 1
    found = delta.table_state(spark, table)
    assert (found.batch("a"), found.batch("b")) == (5, 6)
    assert delta.TableCommit(spark, table).last_batch("a") == 5


@pytest.mark.parametrize("hidden", ["DeltaLog", "actions.SetTransaction", "DeltaOperations"])
def test_without_it_deltas_own_writer_appends(spark: SparkSession, table: str, hidden: str) -> None:
    with lacking(spark, DELTA + hidden):
        for batch in (1, 2, 2):
            if not DeltaAppender(table).append(spark.range(3), stamp(batch)):
                append(spark.range(3), table, stamp(batch))
    assert spark.read.format("delta").load(table).count() == 6
    assert delta.table_state(spark, table).batch(stamp(0).app_id) == 2


def test_the_jvm_itself_fetches_jars_and_closes_its_output(tmp_path: Path) -> None:
    """With a gateway that notes what it is asked for: the real ones need the network, and end the session."""
    asked: list[Any] = []

    class Object:
        def __init__(self, name: str = "") -> None:
            self.name = name

        def __getattr__(self, name: str) -> Object:
            return Object(f"{self.name}.{name}")

        def __call__(self, *values: Any) -> Any:
            asked.append((self.name.removeprefix("."), values))
            return Object(self.name)

        def __str__(self) -> str:
            return "/jars/a.jar\n/jars/b.jar"

    class Gateway:
        jvm = Object()

    assert jvm.maven_jars(Gateway(), ["g:a:1", "g:b:2"], str(tmp_path)) == ["/jars/a.jar", "/jars/b.jar"]
    name, values = next(each for each in asked if each[0].endswith("resolveMavenDependencies"))
    assert name == "org.apache.spark.util.DependencyUtils.resolveMavenDependencies"
    assert (values[2], values[4]) == ("g:a:1,g:b:2", str(tmp_path))
    jvm.close_output(Gateway())
    assert asked[-1] == ("java.lang.System.out.close", ())
