"""Options of the whole test suite."""

from __future__ import annotations

import logging
import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["headrace.testing.plugin"]

# No test is timed: on a machine with other work an example may take any time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

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
