"""A node that does nothing, in the place of the real one: these tests are about the command line."""

import gc
import logging
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.core.settings.broker import BrokerSettings

sys.path.insert(1, str(Path(__file__).parent.parent / "tables"))  # delta_tables, shop


class FakeNode:
    made: ClassVar[list[Any]] = []
    open_error: Exception | None = None
    run_error: Exception | None = None

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.port = settings.port or 45678
        self.ports = {"PLAINTEXT": self.port}
        self.metrics_port = settings.metrics_port
        self.calls: list[str] = []
        self.switch_interval_s = 0.0
        self._stopped = threading.Event()
        FakeNode.made.append(self)

    def open(self) -> None:
        self.calls.append("open")
        if self.open_error:
            raise self.open_error

    def run(self) -> None:
        self.calls.append("run")
        self.switch_interval_s = sys.getswitchinterval()
        if self.run_error:
            raise self.run_error

    def hear(self, descriptor: int, heard: Any) -> None:
        """No loop, and so nothing that could miss a signal."""

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def fake_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeNode]]:
    module = types.ModuleType("headrace.broker.node")
    module.Node = FakeNode  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "headrace.broker.node", module)
    monkeypatch.setattr(FakeNode, "made", [])
    monkeypatch.setattr(FakeNode, "open_error", None)
    monkeypatch.setattr(FakeNode, "run_error", None)
    for name in ("HEADRACE_PORT", "HEADRACE_DATA", "HEADRACE_LOG_LEVEL", "HEADRACE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger("headrace")
    before = (list(root.handlers), root.level, root.propagate)
    threshold, interval_s = gc.get_threshold(), sys.getswitchinterval()
    yield FakeNode
    # What a broker does to its process is for one of its own; here DuckDB would be told that it leaks.
    sys.setswitchinterval(interval_s)
    gc.unfreeze()
    gc.set_threshold(*threshold)
    root.handlers[:], _, root.propagate = before
    root.setLevel(before[1])
