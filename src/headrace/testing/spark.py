"""The Spark session of a test run: one for all tests of a process, made for queries over a few rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.core.errors import OperatorError
from headrace.streaming import session
from headrace.streaming.python_session import foreign_session, spark
from headrace.streaming.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A query over a few rows is over before code for it is generated and compiled.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.stats.collect": "false",
    "spark.sql.streaming.pollingDelay": "5ms",
}
DEFAULTS = {"master": "local[2]", "driver_memory": "1g", "parallelism": 1}


@contextmanager
def spark_for_tests(given: Mapping[str, Any]) -> "Iterator[SparkSession]":
    """`given` are fields of SparkSettings, or settings of Spark itself by their names. A session that the process has
    already is used as it is, and stays."""
    if session.current() is not None or foreign_session() is not None:
        yield spark()
        return
    own = {key: value for key, value in given.items() if not key.startswith("spark.")}
    extra = {**QUICK, **own.pop("extra", {}), **{key: str(given[key]) for key in given if key not in own}}
    try:
        settings = SparkSettings(**{**DEFAULTS, **own}, extra=extra)
    except TypeError as error:
        raise OperatorError(
            f"headrace_spark_settings: {error}; give fields of SparkSettings, or spark.* names"
        ) from error
    try:
        yield session.session(settings)
    finally:
        session.stop()
