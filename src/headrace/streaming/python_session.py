"""`hr.spark()`: the one Spark session of a script, a notebook or a test, with Delta and Kafka in it.

It is the session that pipelines run in: the same jars, the same settings, ended when Python ends. A session that the
user started is used if it has what is needed, and refused with the reason if it has not: Spark takes no jars later.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.core.errors import OperatorError
from headrace.streaming import session
from headrace.streaming.checks import check_spark_installed
from headrace.streaming.jars import ready_jars
from headrace.streaming.java import find_java
from headrace.streaming.settings import CALL_SITES, SparkSettings
from headrace.streaming.spark_internals.classes import has_class, has_jvm
from headrace.streaming.spark_internals.jvm import end_idle_jvm, has_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_VARIABLE, MASTER_DEFAULT = "HEADRACE_MASTER", "local[*]"
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_NEEDED_CLASSES = {
    "Delta": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "Kafka": "org.apache.spark.sql.kafka010.KafkaSourceProvider",
}


def spark(
    master: str | None = None,
    *,
    driver_memory: str | None = None,
    app_name: str | None = None,
    s3: bool | None = None,
    conf: Mapping[str, Any] | None = None,
) -> "SparkSession":
    """The Spark session of this process, with Delta and Kafka ready; started by the first call.

    `conf` are any of Spark's own settings. Later calls return the same session; a setting that a running session
    cannot take is an error. The session ends with Python, or with `stop()`. Tables that are saved by name live as long
    as the session: save by path what is to stay.

        spark = hr.spark()
        spark.read.format("delta").load("headrace-tables/clean_orders").show()
    """
    given = {"master": master, "driver_memory": driver_memory, "app_name": app_name, "s3": s3}
    given = {name: value for name, value in given.items() if value is not None}
    extra = {key: _text(value) for key, value in (conf or {}).items()}
    found = session.current()
    if found is None:
        check_spark_installed()
        found = foreign_session()
        if found is None:
            if "pyspark" in sys.modules:  # the JVM of a session that the user has stopped has not our jars
                end_idle_jvm()
            ready_jars(find_java, s3=bool(s3), say=_say)  # said, for the first time it takes minutes
            return session.session(_settings(given, extra))
        _check_foreign(found)
    _apply(found, given, extra)
    return found


def spark_conf(*, s3: bool = False) -> dict[str, str]:
    """What a Spark session of your own needs for Delta and Kafka: jars (fetched on first use) and settings.

    builder = SparkSession.builder
    for key, value in hr.spark_conf().items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    """
    check_spark_installed()
    return {"spark.jars": ",".join(ready_jars(find_java, s3=s3, say=_say)), **DELTA_SETTINGS}


def _settings(given: Mapping[str, Any], extra: Mapping[str, str]) -> SparkSettings:
    # Who types at a prompt wants to see the line that Spark's message is about.
    extra = {CALL_SITES: "true", **extra}
    settings = SparkSettings(master=os.environ.get(MASTER_VARIABLE) or MASTER_DEFAULT, extra=extra)
    return replace(settings, **given)


def foreign_session() -> "SparkSession | None":
    """A session that this process has from elsewhere."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    return SparkSession.builder.getOrCreate() if has_context() else None


def _check_foreign(found: "SparkSession") -> None:
    if not has_jvm(found):
        raise OperatorError(
            "Spark: this process has a Spark Connect session, and a pipeline needs one of its own; "
            "use another process, or stop it first: SparkSession.active().stop()"
        )
    missing = [name for name, kind in _NEEDED_CLASSES.items() if not has_class(found, kind)]
    if not missing and any(value not in found.conf.get(key, "") for key, value in DELTA_SETTINGS.items()):  # type: ignore[operator]
        missing = ["Delta's SQL extensions"]
    if missing:
        raise OperatorError(
            f"Spark: this process has a session without {' and '.join(missing)}, and a session takes no jars later; "
            f"stop it first (SparkSession.active().stop()), or start it with the settings of hr.spark_conf() in a new "
            f"process"
        )


def _apply(found: "SparkSession", given: Mapping[str, Any], extra: Mapping[str, str]) -> None:
    """What was asked for of a session that runs already."""
    names = {"master": "spark.master", "driver_memory": "spark.driver.memory", "app_name": "spark.app.name"}
    asked = {names[name]: str(value) for name, value in given.items() if name in names} | dict(extra)
    if given.get("s3") and not has_class(found, "org.apache.hadoop.fs.s3a.S3AFileSystem"):
        asked["s3"] = "true"
    for key, value in asked.items():
        has = found.conf.get(key, None) if key != "s3" else "false"
        if has == value:
            continue
        if key == "s3" or not found.conf.isModifiable(key):
            raise OperatorError(
                f"Spark: {key} is {has} in the session that runs, and cannot become {value}; "
                f"ask for it in the first call of hr.spark(), or stop the session first: hr.spark().stop()"
            )
        found.conf.set(key, value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _say(line: str) -> None:
    print(f"headrace: {line}", file=sys.stderr)
