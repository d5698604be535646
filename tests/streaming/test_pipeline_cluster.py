"""The same file on a standalone cluster: a change of address, and nothing else.

The jars reach the executors, and so does this Python with its Kafka client: a topic is written by the executors. So do
the modules beside the file, whose functions the workers import.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer
from conftest import QUICK_JAVA, QUICK_SPARK
from deltalake import DeltaTable
from pipeline_runs import read_topic
from standalone import standalone_cluster
from waits import WAIT_S_MAX

import headrace

CODE = """
import headrace as hr
import places
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

clustered = hr.topic("clustered", schema="number int")

@F.udf(IntegerType())
def worker(number):
    return places.worker()

@hr.table
def numbers(clustered):
    return clustered.select("number", worker("number").alias("worker"))

@hr.to_topic("clustered-out", key="number", tasks=2)
def out(numbers):
    return numbers.select(F.col("number").cast("string").alias("number"))
"""
MODULE = "import os\n\ndef worker():\n    return os.getppid()\n"
COUNT = 20


def test_a_pipeline_runs_on_a_cluster_by_a_change_of_address(broker: headrace.Broker, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(COUNT):
        producer.produce("clustered", f'{{"number": {number}}}')
    assert producer.flush(WAIT_S_MAX) == 0
    file = tmp_path / "clustered.py"
    file.write_text(CODE)
    (tmp_path / "places.py").write_text(MODULE)
    settings = {
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        **QUICK_SPARK,
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    with standalone_cluster(tmp_path) as master:
        command = [
            sys.executable,
            "-m",
            "headrace.cli.main",
            "pipeline",
            "run",
            str(file),
            "--once",
            "--master",
            master,
        ]
        command += ["--bootstrap", broker.bootstrap_servers, "--tables", str(tmp_path / "tables"), *conf]
        # The JVM has inherited the pipe: that this returns means that it is gone as well.
        done = subprocess.run(command, capture_output=True, text=True, timeout=3 * WAIT_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = DeltaTable(str(tmp_path / "tables" / "numbers")).to_pyarrow_table().to_pylist()
    assert sorted(row["number"] for row in rows) == list(range(COUNT))
    assert os.getpid() not in {row["worker"] for row in rows}
    written = sorted(int(record.key()) for record in read_topic(broker.bootstrap_servers, "clustered-out"))
    assert written == list(range(COUNT))
