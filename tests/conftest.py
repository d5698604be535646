"""Options of the whole test suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bootstrap",
        metavar="HOST:PORT",
        default=None,
        help="run tests/wire against this broker, e.g. an Apache Kafka, instead of a Headrace broker of our "
        "own; one that can be thrown away, for topics are created and deleted, also some named 'test'",
    )


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python's own affairs: how it reads its schemas, and that plain callables may be serializers.
    for message in (
        "read_text is deprecated",
        "open_text is deprecated",
        ".*does not implement kafka.serializer",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}:DeprecationWarning")
