"""`headrace pyspark` and `spark-submit` as processes; the documents' samples are typed at a pseudo-terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from conftest import QUICK_JAVA, QUICK_SPARK
from tool_process import BIN
from waits import WAIT_S_MAX

import headrace

START_S_MAX = 3 * WAIT_S_MAX  # a JVM, on a machine with other work
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    **QUICK_SPARK,
}
TOOL_OPTIONS = ["--master", "local[1]", "--driver-memory", "1g", "--driver-java-options", QUICK_JAVA]
TOOL_OPTIONS += [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]
CSV = "carat,cut,price,date\n0.23,Ideal,326,2017-01-15\n0.21,Premium,326,2017-02-01\n"


class Shell:
    """A Python prompt at a pseudo-terminal, wide enough that no line wraps."""

    def __init__(self, directory: Path, *args: object) -> None:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(directory)
            environ = {**os.environ, "TERM": "dumb", "PYTHON_BASIC_REPL": "1"}
            os.execve(BIN / "headrace", ["headrace", "pyspark", *map(str, args)], environ)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 1000, 0, 0))
        self._code: int | None = None
        self._typed = 0
        self.banner = self.type("")

    def type(self, line: str) -> str:
        """Types a line, and one that prints a mark; what is shown up to the mark, the typed lines included.

        The prompt itself would be no mark: Spark's threads write to the same terminal, also behind a prompt.
        """
        self._typed += 1
        os.write(self._fd, f"{line}\nprint('DONE', {self._typed})\n".encode())
        return self._until(f"DONE {self._typed}\r\n".encode())

    def value(self, expression: str) -> Any:
        printed = self.type(f"import json; print('VALUE', json.dumps({expression}))")
        (found,) = (line for line in printed.splitlines() if line.startswith("VALUE "))
        return json.loads(found.removeprefix("VALUE "))

    def leave(self) -> int:
        os.write(self._fd, b"exit()\n")
        deadline = time.monotonic() + START_S_MAX
        while self._code is None:
            self._read()
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
            assert time.monotonic() < deadline, "the shell did not end"
        return self._code

    def close(self) -> None:
        if self._code is None:
            os.kill(self._pid, 9)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    def _until(self, mark: bytes) -> str:
        data, deadline = b"", time.monotonic() + START_S_MAX
        while mark not in data:
            data += self._read()
            assert time.monotonic() < deadline, data.decode(errors="replace")
        return data.replace(b"\r\n", b"\n").decode(errors="replace")

    def _read(self) -> bytes:
        if not select.select([self._fd], [], [], 0.1)[0]:
            return b""
        try:
            return os.read(self._fd, 65536)
        except OSError:  # it has ended
            return b""


def test_the_documents_samples_run_as_typed_in_the_shell(shared_broker: headrace.Broker, tmp_path: Path) -> None:
    (tmp_path / "diamonds.csv").write_text(CSV)
    producer = Producer({"bootstrap.servers": shared_broker.bootstrap_servers, "log_level": 0})
    for number in range(3):
        producer.produce("at-the-shell", f"v{number}", f"k{number}")
    assert producer.flush(WAIT_S_MAX) == 0
    shell = Shell(tmp_path, *TOOL_OPTIONS)
    try:
        assert "SparkSession available as 'spark'" in shell.banner
        for line in (
            # row 30: write, append, partition, replace, add a column
            'df= spark.read.csv("diamonds.csv", header="true", inferSchema="true")',
            'df.write.format("delta").save("delta/diamonds")',
            'df.write.format("delta").mode("append").save("delta/diamonds")',
            'df.write.format("delta").partitionBy("date").save("delta/events")',
            "data = df.where(\"date < '2017-02-01'\")",
            'data.write.format("delta").mode("overwrite").option("replaceWhere", '
            "\"date >= '2017-01-01' AND date <= '2017-01-31'\").save(\"delta/events\")",
            'df.selectExpr("*", "1 as extra").write.format("delta").mode("append").option("mergeSchema", "true")'
            '.save("delta/events")',
            # row 31: read by path, by SQL, by version, by time
            'df = spark.read.format("delta").load("delta/diamonds")',
            'df2 = spark.read.format("delta").option("versionAsOf", 0).load("delta/diamonds")',
            f"history = spark.sql('DESCRIBE HISTORY delta.`{tmp_path}/delta/diamonds`')",
            "timestamp_string = str(history.first().timestamp)",
            'df1 = spark.read.format("delta").option("timestampAsOf", timestamp_string).load("delta/diamonds")',
            # row 32: a table as the source and the sink of a stream
            'streamingDf = spark.readStream.format("delta").option("maxFilesPerTrigger",1000)'
            '.option("ignoreDeletes", "true").option("ignoreChanges", "true").load("delta/diamonds")',
            'stream = streamingDf.selectExpr("price as id").writeStream.format("delta").outputMode("append")'
            '.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start("delta/ids")',
            "_ = stream.awaitTermination()",
            'stream2 = spark.readStream.format("delta").load("delta/ids").writeStream.format("console").start()',
            "_ = stream2.processAllAvailable()",
            "stream2.stop()",
            # row 33: RDDs
            'pairs = sc.parallelize([("a", 1), ("b", 2), ("a", 3)])',
            # row 34: the log as a source
            f'records = spark.read.format("kafka").option("kafka.bootstrap.servers", '
            f'"{shared_broker.bootstrap_servers}").option("subscribe", "at-the-shell").load()',
        ):
            printed = shell.type(line)
            assert "Traceback" not in printed, f"{line}\n{printed}"
        asked = shell.type(f"spark.sql('SELECT * FROM delta.`{tmp_path}/delta/events`').orderBy('date').show()")
        assert asked.count("2017-01-15") == 2, asked
        found = shell.value(
            "[df.count(), df1.count(), df2.count(), spark.read.format('delta').load('delta/ids').count(), "
            "sorted(pairs.reduceByKey(lambda a, b: a + b).collect()), "
            "[r.v for r in records.selectExpr('string(value) as v').collect()]]"
        )
        assert found[0] == 4
        assert found[1:3] == [4, 2]
        assert found[3:5] == [4, [["a", 4], ["b", 2]]]
        assert sorted(found[5]) == ["v0", "v1", "v2"]
        assert shell.leave() == 0
    finally:
        shell.close()


def test_a_submitted_program_has_delta_and_its_own_options(tmp_path: Path) -> None:
    (tmp_path / "report.py").write_text(
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "spark.range(3).write.format('delta').save('numbers')\n"
        "print(sys.argv[1:], spark.read.format('delta').load('numbers').count())\n"
    )
    command = [BIN / "headrace", "spark-submit", *TOOL_OPTIONS, "report.py", "--help", "--jars", "mine"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=START_S_MAX, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "['--help', '--jars', 'mine'] 3"
