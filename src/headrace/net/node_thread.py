"""A server's node on a daemon thread of its own: made, run and closed there, while the caller only waits for it."""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from headrace.core.errors import HeadraceError

STOP_S_MAX = 60.0


class Runnable(Protocol):
    def open(self) -> None: ...

    def run(self) -> None:
        """Returns after `stop`, which any thread may call."""

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Instead of `close`, as after `kill -9`: nothing more is written, nobody is told."""


AnyNode = TypeVar("AnyNode", bound=Runnable)


class NodeThread(Generic[AnyNode]):
    def __init__(self, make: Callable[[], AnyNode], what: str) -> None:
        """`what` is the server's name for its user: `broker`."""
        self.node: AnyNode
        self._make = make
        self._what = what
        self._killed = False
        self._opened = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name=f"headrace-{what}", daemon=True)

    def start_and_wait(self) -> None:
        """Returns when the node is open; raises what kept it from opening."""
        self._thread.start()
        self._opened.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop_and_wait(self) -> None:
        """Returns when the node is closed; raises what it died of, if it died."""
        self.node.stop()
        self._thread.join(STOP_S_MAX)
        if self._thread.is_alive():
            raise HeadraceError(f"the {self._what} did not stop within {STOP_S_MAX:g} s")
        if self._error is not None:
            raise self._error

    def kill_and_wait(self) -> None:
        """As `kill -9`: what was only in memory is gone."""
        self._killed = True
        self.stop_and_wait()

    def _live(self) -> None:
        try:
            self.node = self._make()
            try:
                self.node.open()
                self._opened.set()
                self.node.run()
            finally:
                if self._killed:
                    self.node.abandon()
                else:
                    self.node.close()
        except BaseException as error:
            self._error = error
        finally:
            self._opened.set()
