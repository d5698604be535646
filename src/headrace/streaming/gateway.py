"""The JVM that pyspark talks to: started quietly, and ended for certain.

Its stderr goes to a file and its stdout stays the user's (the console sink prints there). It is in a session of its
own, so that Ctrl-C reaches Python alone, which then stops it in order; and it ends by itself when Python dies,
because its stdin closes.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from headrace.core.errors import OperatorError
from headrace.streaming.java import Java, java_home

END_WAIT_S = 20.0
_LINES_SHOWN = 3


class Gateway:
    """One JVM, and pyspark's way into it."""

    def __init__(self, java: Java, settings: Mapping[str, str], *, log_path: str, environ: Mapping[str, str]) -> None:
        from pyspark import SparkConf
        from pyspark.errors import PySparkRuntimeError
        from pyspark.java_gateway import launch_gateway

        conf = SparkConf(loadDefaults=False)
        for key, value in settings.items():
            conf.set(key, value)
        with open(log_path, "ab") as log, environment_as(environment(java) | dict(environ)):
            try:
                self.gateway: Any = launch_gateway(conf, {"stderr": log, "start_new_session": True})
            except PySparkRuntimeError as error:
                raise OperatorError(
                    f"Spark: its JVM (Java {java.version} in {java.home}) did not start: {_last_lines(log_path)}; "
                    "run: headrace doctor"
                ) from error
        self.process: subprocess.Popen[bytes] | None = self.gateway.proc

    @classmethod
    @contextmanager
    def started(cls, java: Java, settings: Mapping[str, str], *, log_path: str) -> "Iterator[Gateway]":
        gateway = cls(java, settings, log_path=log_path, environ={})
        try:
            yield gateway
        finally:
            gateway.end()

    @property
    def jvm(self) -> Any:
        return self.gateway.jvm

    def end(self) -> None:
        """Returns when the process is gone, whatever state it is in."""
        with suppress(Exception):
            self.gateway.shutdown()
        if self.process is None:  # not ours: Python itself was started by spark-submit
            return
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment(java: Java) -> dict[str, str]:
    """What Spark's launcher must see: this Java, and the Spark of this Python, not another one's SPARK_HOME."""
    import pyspark

    return {"JAVA_HOME": java_home(java), "SPARK_HOME": os.path.dirname(pyspark.__file__)}


@contextmanager
def environment_as(values: Mapping[str, str]) -> Iterator[None]:
    """Python's own environment for a moment, since pyspark takes its JVM's from there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def python_executable(local: bool, environ: Mapping[str, str] = os.environ) -> str:
    """Which Python the workers run: on this machine this one; on a cluster what the user says is there."""
    return sys.executable if local else environ.get("PYSPARK_PYTHON") or sys.executable


def _last_lines(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return " / ".join(lines[-_LINES_SHOWN:]) or "it said nothing"
