"""The JVM that pyspark talks to: started quietly, and ended for certain.

Its stderr goes to a file and its stdout stays the user's (the console sink prints there). It is in a session of its
own, so that Ctrl-C reaches Python alone, which then stops it in order; and it ends by itself when Python dies,
because its stdin closes.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from headrace.core.errors import OperatorError
from headrace.streaming.java import Java, java_home
from headrace.streaming.quick_start import QuickStart, spark_home
from headrace.streaming.spark_internals import jvm

END_WAIT_S = 20.0
_LOOK_EVERY_S = 0.01
_LINES_SHOWN = 3


class Gateway:
    """One JVM, and pyspark's way into it."""

    def __init__(
        self,
        java: Java,
        settings: Mapping[str, str],
        *,
        log_path: str,
        environ: Mapping[str, str],
        quick: QuickStart | None = None,
        locks: Sequence[TextIO] = (),
        end_wait_s: float = END_WAIT_S,
    ) -> None:
        """`locks` are handed on to a JVM that starts quickly, and held until it is gone."""
        self._end_wait_s = end_wait_s
        self._locks = locks
        self._leaves_archive = quick is not None and quick.leaves is not None
        self._values = environment(java) | dict(environ)
        with open(log_path, "ab") as log:
            try:
                self.gateway: Any = self._direct(quick, settings, log) if quick else self._by_launcher(settings, log)
            except _NotStartedError as error:
                raise OperatorError(
                    f"Spark: its JVM (Java {java.version} in {java.home}) did not start: {_last_lines(log_path)}; "
                    "run: headrace doctor"
                ) from error
        self.process: subprocess.Popen[bytes] | None = self.gateway.proc

    def _by_launcher(self, settings: Mapping[str, str], log: Any) -> Any:
        from pyspark import SparkConf
        from pyspark.errors import PySparkRuntimeError

        conf = SparkConf(loadDefaults=False)
        for key, value in settings.items():
            conf.set(key, value)
        with environment_as(self._values):
            try:
                return jvm.launcher()(conf, {"stderr": log, "start_new_session": True})
            except PySparkRuntimeError as error:
                raise _NotStartedError from error

    def _direct(self, quick: QuickStart, settings: Mapping[str, str], log: Any) -> Any:
        """Spark's launcher is a shell script and a JVM of its own: a second that every start would pay."""
        command = quick.command(settings, shlex.split(settings.get("spark.driver.extraJavaOptions", "")))
        with tempfile.TemporaryDirectory(prefix="headrace-gateway-") as directory:
            address = os.path.join(directory, "address")
            values = {**self._values, "SPARK_CONNECT_MODE": "0", jvm.ADDRESS_VARIABLE: address}
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **values},
                start_new_session=True,
                pass_fds=[lock.fileno() for lock in self._locks],
            )
            try:
                return _connected(process, address)
            except BaseException:
                process.kill()
                process.wait()
                raise

    @classmethod
    @contextmanager
    def started(cls, java: Java, settings: Mapping[str, str], *, log_path: str) -> "Iterator[Gateway]":
        gateway = cls(java, settings, log_path=log_path, environ={})
        try:
            yield gateway
        finally:
            gateway.end()

    def end(self) -> None:
        """Returns when the process is gone, whatever state it is in. One that leaves an archive of its classes takes
        some seconds for that, once per machine: it does so beside whatever comes next."""
        if self._leaves_archive:  # whoever reads our output need not wait for that
            jvm.close_output(self.gateway)
        with suppress(Exception):
            self.gateway.shutdown()
        if self.process is None:  # not ours: Python itself was started by spark-submit
            return
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        if self._leaves_archive:
            return
        try:
            self.process.wait(self._end_wait_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _connected(process: "subprocess.Popen[bytes]", address: str) -> Any:
    """pyspark's gateway to a JVM that writes where it listens into the file `address`."""
    launch = jvm.launcher()  # imported while the JVM starts: that takes a third of a second
    while not os.path.exists(address):
        if process.poll() is not None:
            raise _NotStartedError
        time.sleep(_LOOK_EVERY_S)
    with environment_as(jvm.address_variables(address)):
        gateway = launch()
    gateway.proc = process
    return gateway


class _NotStartedError(Exception):
    """The JVM ended before it could be reached; its log says why."""


def environment(java: Java) -> dict[str, str]:
    """What Spark's launcher must see: this Java, and the Spark of this Python, not another one's SPARK_HOME."""
    return {"JAVA_HOME": java_home(java), "SPARK_HOME": spark_home()}


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
