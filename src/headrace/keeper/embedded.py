"""`headrace.Keeper`: a keeper inside a Python program, for tests, notebooks and small services.

The node lives on a daemon thread of its own from start to stop; the caller only waits for it.
"""

import atexit
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from headrace.core.errors import HeadraceError
from headrace.keeper.node import Node
from headrace.keeper.settings import KeeperSettings
from headrace.net.node_thread import NodeThread


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
        self._running: NodeThread[Node] | None = None
        KeeperSettings(**self._settings)  # a wrong setting fails where it was written

    @property
    def hosts(self) -> str:
        """host:port for a client's connect string."""
        return f"{self._settings['host']}:{self.port}"

    @property
    def port(self) -> int:
        return self.node.port

    @property
    def node(self) -> Node:
        if self._running is None:
            raise HeadraceError("the keeper is not running, so it has no port; call start() or use it in a with")
        return self._running.node

    def start(self) -> Self:
        """Returns when clients can connect; raises OperatorError when that cannot be."""
        if self._running is not None:
            return self
        if self._data is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="headrace-keeper-", ignore_cleanup_errors=True)
        data = self._data or (self._temporary.name if self._temporary else "")
        settings = KeeperSettings(**{**self._settings, "data_dir": data})
        running = NodeThread(lambda: Node(settings), "keeper")
        running.start_and_wait()
        self._running = running
        self._settings["port"] = running.node.port  # the same after a restart
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Returns when all is closed. Raises what the keeper died of, if it died."""
        self._end(lambda running: running.stop_and_wait())
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def kill(self) -> None:
        """As `kill -9`: nothing more is written, nobody is told. `start()` brings it back with its data."""
        self._end(lambda running: running.kill_and_wait())

    def restart(self) -> None:
        self._end(lambda running: running.stop_and_wait())
        self.start()

    def _end(self, how: Callable[[NodeThread[Node]], None]) -> None:
        running, self._running = self._running, None
        if running is not None:
            atexit.unregister(self.stop)
            how(running)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
