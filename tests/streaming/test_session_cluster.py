"""The same session on a standalone cluster: the jars reach the executors, and so does this Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer
from conftest import QUICK_JAVA
from standalone import standalone_cluster

import headrace

DRIVER = """
import json, os, sys
from headrace.streaming.session import SparkSettings, session

master, bootstrap, directory, options = sys.argv[1:]
settings = SparkSettings(
    master=master, driver_memory="1g", parallelism=2, extra={
        "spark.driver.extraJavaOptions": options, "spark.executor.extraJavaOptions": options,
    },
)
spark = session(settings)  # nobody stops it: leaving Python must
records = (
    spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", "clustered").option("startingOffsets", "earliest").load()
)
query = (
    records.selectExpr("int(string(value)) as number").writeStream.format("delta")
    .option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start(f"{directory}/table")
)
query.awaitTermination()
rows = spark.read.format("delta").load(f"{directory}/table")
executors = rows.rdd.map(lambda row: (row.number, os.getppid())).collect()
print(json.dumps([sorted(number for number, _ in executors), os.getpid() in dict(executors).values()]))
"""


def test_the_log_flows_into_a_table_on_a_cluster(broker: headrace.Broker, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(20):
        producer.produce("clustered", str(number))
    assert producer.flush(10) == 0
    with standalone_cluster(tmp_path) as master:
        # The JVM has inherited the pipe: that this returns means that it is gone as well.
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, master, broker.bootstrap_servers, str(tmp_path), QUICK_JAVA],
            capture_output=True,
            text=True,
            timeout=180,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [list(range(20)), False]
