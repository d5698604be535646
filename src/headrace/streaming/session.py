"""One Spark session, started quietly with the pinned jars, and stopped so that no JVM is left behind.

    with running(SparkSettings(master="local[*]")) as spark:
        spark.range(3).show()

A process has one session at a time. It ends with the block, at exit, on Ctrl-C and on SIGTERM; and when Python is
killed outright, the JVM notices and ends by itself.
"""

import atexit
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from headrace.core.errors import OperatorError
from headrace.core.machine import memory_bytes
from headrace.streaming.checks import check_spark_installed
from headrace.streaming.gateway import END_WAIT_S, Gateway, environment_as, python_executable
from headrace.streaming.jars import lock, ready_jars
from headrace.streaming.java import Java, find_java
from headrace.streaming.quick_start import QuickStart, QuickStarts, fits
from headrace.streaming.scratch import Scratch
from headrace.streaming.settings import SparkSettings, spark_settings
from headrace.streaming.spark_errors import silence_query_log
from headrace.streaming.spark_internals.jvm import conf_of, forget_jvm, has_context, runs
from headrace.streaming.spark_log import log4j_properties, new_log_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkSettings", "current", "log_path", "running", "session", "stop"]

MASTER_WAIT_S = 5.0
_CLASS_PATH = "spark.driver.extraClassPath"
TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, kw_only=True)
class _Running:
    spark: "SparkSession"
    gateway: Gateway
    scratch: Scratch
    held: ExitStack
    log_path: str


_running: _Running | None = None
_lock = threading.Lock()


def session(
    settings: SparkSettings | None = None,
    *,
    say: Callable[[str], None] = lambda line: None,
    end_wait_s: float = END_WAIT_S,
    leave_archive: bool = False,
) -> "SparkSession":
    """Starts the session of this process. `say` gets a line when a step begins; the JVM is killed when it has not
    ended within `end_wait_s` of being stopped. With `leave_archive`, and where there is none, it leaves an archive of
    its classes for later starts (`quick_start`)."""
    global _running
    with _lock:
        if _running is not None:
            raise OperatorError("Spark: a session runs in this process already; stop it before another is started")
        _running = _start(settings or SparkSettings(), say, end_wait_s, leave_archive)
        return _running.spark


def stop() -> None:
    """Stops the queries, then the session, then the JVM. Does nothing when none runs."""
    global _running
    with _lock:
        if _running is not None:
            try:
                _stop(_running)
            finally:
                _running = None


def current() -> "SparkSession | None":
    """The session that runs in this process. One whose user has stopped it is cleared away first, unless its JVM has
    another session of the user's by now."""
    it = _running
    if it is None or runs(it.spark):
        return it.spark if it is not None else None
    if not has_context():
        stop()
    return None


def log_path() -> str | None:
    """The file that Spark logs to; None when no session runs."""
    return _running.log_path if _running is not None else None


@contextmanager
def running(
    settings: SparkSettings | None = None,
    *,
    say: Callable[[str], None] = lambda line: None,
    end_wait_s: float = END_WAIT_S,
    leave_archive: bool = False,
) -> "Iterator[SparkSession]":
    """A session for the length of a block. SIGTERM ends the block as Ctrl-C does, unless someone else handles it."""
    with _terminated_as_exit():
        try:
            yield session(settings, say=say, end_wait_s=end_wait_s, leave_archive=leave_archive)
        finally:
            stop()


def _start(settings: SparkSettings, say: Callable[[str], None], end_wait_s: float, leave_archive: bool) -> _Running:
    check_spark_installed()
    _check_master(settings)
    java = find_java()
    jars = ready_jars(lambda: java, s3=settings.s3, say=say)
    quick, locks = _quick_start(settings, java, jars, leave_archive)
    held = ExitStack()
    for lock_file in locks:
        held.enter_context(lock_file)
    log = os.path.abspath(settings.log_path) if settings.log_path else new_log_path()
    scratch = Scratch(settings.scratch)
    gateway: Gateway | None = None
    try:
        log4j = os.path.join(scratch.path, "log4j2.properties")
        with open(log4j, "w", encoding="utf-8") as file:
            file.write(log4j_properties(log, settings.log_level))
        values = spark_settings(
            settings, jars=() if quick else jars, scratch=scratch.path, log4j_path=log4j, machine_bytes=memory_bytes()
        )
        environ = {"PYSPARK_PYTHON": python_executable(settings.local)}
        environ["PYSPARK_DRIVER_PYTHON"] = environ["PYSPARK_PYTHON"]
        if settings.address is not None:
            environ["SPARK_LOCAL_IP"] = settings.address
        say(f"starting Java {java.version}")
        with _signals_held():
            gateway = Gateway(
                java, values, log_path=log, environ=environ, quick=quick, locks=locks, end_wait_s=end_wait_s
            )
        say(f"opening a Spark session ({settings.master})")
        spark = _connect(gateway, values, environ)
    except BaseException:
        if gateway is not None:
            _forget(gateway)
        scratch.close()
        held.close()
        raise
    atexit.register(stop)
    return _Running(spark=spark, gateway=gateway, scratch=scratch, held=held, log_path=log)


def _quick_start(
    settings: SparkSettings, java: Java, jars: tuple[str, ...], leave_archive: bool
) -> tuple[QuickStart | None, list[TextIO]]:
    """On this machine alone: a cluster's executors need the jars as Spark hands them out. The files keep what it is
    made of from being removed; to be closed when the JVM has ended."""
    if not settings.local or not fits(settings.extra):
        return None, []
    pinned = len(lock().jars)
    starts, more = QuickStarts(java, jars[:pinned]), jars[pinned:]
    quick = starts.found(more)
    if quick is None:
        return None, []
    try:
        held = [quick.hold()]
    except OSError:  # removed in this moment
        return None, []
    # An archive is of use only to those whose class path begins with that of the JVM which left it.
    if leave_archive and quick.archive is None and not more and _CLASS_PATH not in settings.extra:
        found = starts.leaving(quick)
        if found is not None:
            quick, leaving = found
            held.append(leaving)
    return quick, held


def _check_master(settings: SparkSettings) -> None:
    """Spark itself would try for a minute before it says that nobody is there."""
    reasons = []
    for host, port in settings.masters:
        try:
            socket.create_connection((host, port), MASTER_WAIT_S).close()
            return
        except OSError as error:
            reasons.append((error.strerror or str(error)).lower())
    if reasons:
        raise OperatorError(f"{settings.master}: no Spark master answers ({reasons[0]}); start it, or run on local[*]")


def _connect(gateway: Gateway, values: dict[str, str], environ: dict[str, str]) -> "SparkSession":
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    silence_query_log()
    conf = conf_of(gateway.gateway)
    for key, value in values.items():
        conf.set(key, value)
    with environment_as(environ), _signals_kept():
        try:
            return SparkSession(SparkContext(conf=conf, gateway=gateway.gateway))
        except Exception as error:
            java_exception = getattr(error, "java_exception", None)
            reason = " ".join(str(java_exception if java_exception is not None else error).split())[:300]
            raise OperatorError(
                f"Spark: no session at {values['spark.master']}: {reason}; run: headrace doctor"
            ) from error


def _stop(it: _Running) -> None:
    atexit.unregister(stop)
    # The JVM may be gone already, or stuck: whatever these say, it is ended below.
    with suppress(Exception):
        for query in it.spark.streams.active:
            with suppress(Exception):
                query.stop()
    with suppress(Exception):
        it.spark.stop()
    _forget(it.gateway)
    it.scratch.close()
    it.held.close()


def _forget(gateway: Gateway) -> None:
    """Ends the JVM, and lets pyspark start another in this process."""
    gateway.end()
    forget_jvm()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """pyspark puts a handler of its own on SIGINT, which talks to the JVM from within a signal: not that one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _signals_held() -> Iterator[None]:
    """What comes while the JVM starts is heard when it has: before that nobody knows it, and it would be left over."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _terminated_as_exit() -> Iterator[None]:
    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
