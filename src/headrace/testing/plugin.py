"""The pytest plugin. It is loaded by every run of pytest where Headrace is installed, so it imports nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.testing.broker import Broker

MARKER = "headrace(**settings): settings of the headrace_broker of this test, such as num_partitions=3"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def headrace_settings() -> dict[str, Any]:
    """Settings of all brokers in the session: override it in your conftest.py."""
    return {}


@pytest.fixture
def headrace_broker(request: pytest.FixtureRequest, headrace_settings: dict[str, Any]) -> Iterator[Broker]:
    """A real broker on a free port, new for this test: `headrace_broker.bootstrap_servers`."""
    from headrace.testing.broker import Broker

    own: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("headrace"))):  # what stands nearest to the test wins
        own |= marker.kwargs
    with Broker(**{**headrace_settings, **own}) as broker:
        yield broker


@pytest.fixture(scope="session")
def headrace_shared_broker(headrace_settings: dict[str, Any]) -> Iterator[Broker]:
    """One broker for all tests of a session (of each worker, with pytest-xdist); give each test a topic of its own."""
    from headrace.testing.broker import Broker

    with Broker(**headrace_settings) as broker:
        yield broker
