"""The training run: a small pipeline over a few rows, in a JVM that leaves an archive of the classes it loaded.

It goes the way of every pipeline (topics, parsing, quarantine, state, merges, a topic written), so that what a first
run loads is in the archive.
"""

import json
import os
import subprocess
from datetime import UTC, datetime

from headrace.core.errors import OperatorError
from headrace.streaming.java import Java, java_home
from headrace.streaming.quick_start import spark_home

ROWS = 60
END_WAIT_S = 300.0  # an archive is written when the JVM ends
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_SCALA_VERSION = "2.13"  # of the jars in jars.lock; Spark's shell scripts tell its launcher the same way
_LAUNCHER_S_MAX = 120.0


def module_options(java: Java) -> str:
    """The options with which Spark's own launcher would start this Java."""
    home = spark_home()
    command = [os.path.join(java.home, "bin", "java"), "-cp", os.path.join(home, "jars", "*")]
    command += ["org.apache.spark.launcher.Main", _SUBMIT, "pyspark-shell"]
    values = {**os.environ, "SPARK_HOME": home, "JAVA_HOME": java_home(java), "SPARK_SCALA_VERSION": _SCALA_VERSION}
    try:
        asked = subprocess.run(command, env=values, capture_output=True, timeout=_LAUNCHER_S_MAX, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise OperatorError(f"Spark: its launcher did not answer ({error}); run: headrace doctor") from error
    words = asked.stdout.decode().strip("\0\n").split("\0")
    start, end = words.index("-cp") + 2, words.index(_SUBMIT)
    return " ".join(word for word in words[start:end] if not word.startswith("-Xmx"))


def train(bootstrap: str, directory: str, archive: str) -> None:
    """Leaves the archive at that path; `directory` takes the tables. The broker is one that may be written to."""
    from headrace.streaming.launching import launch_live
    from headrace.streaming.operation import run_version
    from headrace.streaming.run_settings import RunSettings
    from headrace.streaming.settings import SparkSettings

    _send(bootstrap)
    spark = SparkSettings(
        driver_memory="1g", extra={"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}"'}
    )
    settings = RunSettings(tables_dir=directory, bootstrap=bootstrap, once=True, spark=spark)
    file = os.path.join(os.path.dirname(__file__), "training_pipeline.py")
    run_version(launch_live(file, directory), settings, end_wait_s=END_WAIT_S)


def _send(bootstrap: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    now = datetime.now(UTC).isoformat()
    for number in range(ROWS):
        row = {"id": f"e{number}", "name": f"n{number % 7}", "amount": number * 1.5 - 3, "at": now}
        producer.produce("events", json.dumps(row) if number % 20 else "{", f"n{number % 7}")
    producer.flush()
