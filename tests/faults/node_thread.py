"""A node on a thread of the test's own process, on a disk that the test can make fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from faulty_disk import FaultyDisk
from waits import WAIT_S_MAX

from headrace.broker.node import Node
from headrace.core.settings.broker import BrokerSettings


class NodeThread:
    """Runs from its making to `stop()`, which raises what the node died of, if it died."""

    def __init__(self, disk: FaultyDisk, settings: Mapping[str, Any]) -> None:
        self.disk = disk
        self.node: Node
        self._settings = BrokerSettings(port=0, **settings)
        self._opened = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name="node", daemon=True)
        self._thread.start()
        assert self._opened.wait(WAIT_S_MAX), f"the node did not open within {WAIT_S_MAX:g} s"
        if self._error is not None:
            raise self._error

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.node.port}"

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self._error is None

    def on_loop(self, work: Callable[[], None]) -> None:
        """Does it on the node's own thread, the only one that may touch its state."""
        done: Future[None] = Future()

        def do() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        self.node.reactor.call_from_thread(do)
        done.result(WAIT_S_MAX)

    def forget_open_files(self) -> None:
        """As after long idleness: whatever is read or written next has to be opened first."""
        self.on_loop(self.node.files.close)

    def stop(self) -> None:
        if self._thread.is_alive():
            self.node.stop()
            self._thread.join(WAIT_S_MAX)
            assert not self._thread.is_alive(), f"the node did not stop within {WAIT_S_MAX:g} s"
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _live(self) -> None:
        try:
            self.node = Node(self._settings, disk=self.disk)
            try:
                self.node.open()
                self._opened.set()
                self.node.run()
            finally:
                self.node.close()
        except BaseException as error:
            self._error = error
        finally:
            self._opened.set()
