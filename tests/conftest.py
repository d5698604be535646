"""Options of the whole test suite."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["headrace.testing.plugin"]

# No test is timed: on a machine with other work an example may take any time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 6 << 30  # the suites leave far less behind, but a Spark beside them needs its share

SOURCE = Path(__file__).resolve().parent.parent / "src" / "headrace"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bootstrap",
        metavar="HOST:PORT",
        default=None,
        help="run tests/wire against this broker, e.g. an Apache Kafka, instead of a Headrace broker of our "
        "own; one that can be thrown away, for topics are created and deleted, also some named 'test'",
    )
    parser.addoption(
        "--minutes", type=float, default=None, metavar="N", help="how long transformers are killed (make chaos)"
    )

    parser.addoption(
        "--record-requests",
        metavar="FILE",
        default=None,
        help="write down which client sent which request in which version to the brokers of tests/wire "
        "(`make compatibility`); only a whole run that passes is written",
    )


def pytest_configure(config: pytest.Config) -> None:
    keep_files_in_memory()
    check_installed(Path(sysconfig.get_paths()["purelib"]) / "headrace")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has what it starts in the background ignore Ctrl-C, and every tool that a test starts would too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # kafka-python's own affairs: how it reads its schemas, and that plain callables may be serializers.
    for message in (
        "read_text is deprecated",
        "open_text is deprecated",
        ".*does not implement kafka.serializer",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}:DeprecationWarning")


def keep_files_in_memory() -> None:
    """Temporary files of tests, and of the brokers that they start, are in memory where there is plenty of it.

    Most of the time of a suite on a disk goes into fsync, by which nothing is found: no test cuts the power of this
    machine, those about a loss of power run on a disk that is made up. `TMPDIR=/tmp make test` uses the disk.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    available_kb = next(
        int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvail")
    )
    if min(shutil.disk_usage(MEMORY).free, available_kb << 10) >= MEMORY_BYTES_MIN:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def check_installed(package: Path) -> None:
    """Brokers in processes of their own run what is installed: it must be what is in src, or it is not tested.

    An editable install (`make develop`) has no copy there, and cannot be stale.
    """
    if not package.is_dir():
        return
    for file in sorted(file for suffix in ("py", "c") for file in SOURCE.rglob(f"*.{suffix}")):
        copy = package / file.relative_to(SOURCE)
        if not copy.is_file() or copy.read_bytes() != file.read_bytes():
            name = file.relative_to(SOURCE.parent)
            pytest.exit(f"{name} is not what is installed; run `make install`, or `make develop` while you work", 4)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that a test calls in this process sends Headrace's log elsewhere; the next test finds it as it was."""
    root = logging.getLogger("headrace")
    handlers, level, propagate = list(root.handlers), root.level, root.propagate
    yield
    root.handlers[:], root.propagate = handlers, propagate
    root.setLevel(level)
