"""`headrace.Keeper`: a keeper inside a Python program, for tests, notebooks and small services.

The node lives on a daemon thread of its own from start to stop; the caller only waits for it.
"""

import atexit
import tempfile
import threading
from types import TracebackType
from typing import Any, Self

from headrace.core.errors import HeadraceError
from headrace.keeper.node import Node
from headrace.keeper.settings import KeeperSettings

STOP_S_MAX = 60.0


class Keeper:
    """One keeper, in a `with` or between `start()` and `stop()`.

    `data=None` keeps everything in a temporary directory that goes away with it; `port=0` picks a free port;
    `settings` are fields of `KeeperSettings`, such as `tick_ms=500`.

    >>> with Keeper() as keeper:
    ...     keeper.hosts.startswith("127.0.0.1:")
    True
    """

    def __init__(self, data: str | None = None, host: str = "127.0.0.1", port: int = 0, **settings: Any) -> None:
        self._settings = {"host": host, "port": port, **settings}
        self._data = data
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._node: Node | None = None
        self._thread: threading.Thread | None = None
        self._opened = threading.Event()
        self._killed = False
        self._error: BaseException | None = None
        KeeperSettings(**self._settings)  # a wrong setting fails where it was written

    @property
    def hosts(self) -> str:
        """host:port for a client's connect string."""
        return f"{self._settings['host']}:{self.port}"

    @property
    def port(self) -> int:
        if self._node is None:
            raise HeadraceError("the keeper is not running, so it has no port; call start() or use it in a with")
        return self._node.port

    @property
    def node(self) -> Node:
        if self._node is None:
            raise HeadraceError("the keeper is not running; call start() or use it in a with")
        return self._node

    def start(self) -> Self:
        """Returns when clients can connect; raises OperatorError when that cannot be."""
        if self._node is not None:
            return self
        if self._data is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="headrace-keeper-", ignore_cleanup_errors=True)
        data = self._data or (self._temporary.name if self._temporary else "")
        self._opened.clear()
        self._error, self._killed = None, False
        node = Node(KeeperSettings(**{**self._settings, "data_dir": data}))
        self._thread = threading.Thread(target=self._live, args=(node,), name="headrace-keeper", daemon=True)
        self._thread.start()
        self._opened.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        self._node = node
        self._settings["port"] = node.port  # the same after a restart
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Returns when all is closed. Raises what the keeper died of, if it died."""
        self._end()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def kill(self) -> None:
        """As `kill -9`: nothing more is written, nobody is told. `start()` brings it back with its data."""
        self._killed = True
        self._end()

    def restart(self) -> None:
        self._end()
        self.start()

    def _end(self) -> None:
        node, self._node = self._node, None
        if node is None or self._thread is None:
            return
        atexit.unregister(self.stop)
        node.stop()
        self._thread.join(STOP_S_MAX)
        if self._thread.is_alive():
            raise HeadraceError(f"the keeper did not stop within {STOP_S_MAX:g} s")
        if self._error is not None:
            raise self._error

    def _live(self, node: Node) -> None:
        try:
            try:
                node.open()
                self._opened.set()
                node.run()
            finally:
                if self._killed:
                    node.abandon()
                else:
                    node.close()
        except BaseException as error:
            self._error = error
        finally:
            self._opened.set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
