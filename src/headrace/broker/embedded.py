"""`headrace.Broker`: a broker inside a Python program, for tests, notebooks and small services.

The node lives on a daemon thread of its own from start to stop; the caller only waits for it. Nothing here
touches the caller's event loop: the asynchronous forms do their waiting on another thread.
"""

import asyncio
import atexit
import contextlib
import dataclasses
import difflib
import os
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.core.errors import HeadraceError
from headrace.core.settings.broker import BrokerSettings
from headrace.net.node_thread import NodeThread

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.core.clock import Clock

Path = str | os.PathLike[str]


class Broker:
    """One broker, in a `with` or between `start()` and `stop()`.

    `data=None` keeps everything in a temporary directory that goes away with it; `port=0` picks a free port;
    `settings` are fields of `BrokerSettings`, such as `num_partitions=3`.

    >>> import headrace
    >>> with headrace.Broker(num_partitions=3) as broker:
    ...     broker.bootstrap_servers.startswith("127.0.0.1:")
    True
    """

    def __init__(
        self,
        data: Path | Sequence[Path] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        **settings: Any,
    ) -> None:
        _check_names(settings)
        self._data = data
        # Checked now, so that a wrong setting fails where it was written.
        self._settings = BrokerSettings(host=host, port=port, **settings)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._running: NodeThread[Node] | None = None
        self._lock = threading.Lock()

    @property
    def bootstrap_servers(self) -> str:
        """host:port for a client's `bootstrap.servers`."""
        host, port = self._settings.advertised(self._running_node().ports, "127.0.0.1")
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def port(self) -> int:
        """The bound port; with several listeners, that of the first one."""
        return self._running_node().port

    def _running_node(self) -> "Node":
        if self._running is None:
            raise HeadraceError("the broker is not running, so it has no port; call start() or use it in a with")
        return self._running.node

    @property
    def data(self) -> str:
        """The (first) directory that holds the data."""
        return self._directories()[0]

    def start(self) -> Self:
        """Returns when clients can connect; raises OperatorError when that cannot be."""
        with self._lock:
            if self._running is not None:
                return self
            if self._data is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="headrace-", ignore_cleanup_errors=True)
            running = self._thread_for(dataclasses.replace(self._settings, log_dirs=self._directories()))
            try:
                running.start_and_wait()
            except BaseException:
                self._remove_temporary()
                raise
            self._running = running
            atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Returns when all is closed. Raises what the broker died of, if it died."""
        with self._lock:
            running, self._running = self._running, None
            if running is None:
                return
            atexit.unregister(self.stop)
            try:
                running.stop_and_wait()
            finally:
                self._remove_temporary()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A start cannot be called back half way: let it end, then undo it.
            with contextlib.suppress(Exception):
                await starting
                await asyncio.to_thread(self.stop)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.stop))

    def _thread_for(self, settings: BrokerSettings) -> "NodeThread[Node]":
        return node_thread(settings)

    def _directories(self) -> tuple[str, ...]:
        if self._data is None:
            if self._temporary is None:
                raise HeadraceError("the broker is not running, so its temporary directory does not exist")
            return (self._temporary.name,)
        if isinstance(self._data, str | os.PathLike):
            return (os.fspath(self._data),)
        return tuple(os.fspath(each) for each in self._data)

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


def node_thread(settings: BrokerSettings, clock: "Clock | None" = None) -> "NodeThread[Node]":
    def make() -> "Node":
        from headrace.broker.node import Node

        return Node(settings) if clock is None else Node(settings, clock=clock)

    return NodeThread(make, "broker")


def _check_names(settings: dict[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(BrokerSettings)]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"{name} is not a setting of a broker{hint}")
