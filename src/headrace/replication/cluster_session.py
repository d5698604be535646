"""A broker's session with ZooKeeper, over its connections, and a new one when it has expired.

What a broker registers lives as long as its session, so a broker that was killed and starts again would find itself
registered until the former session is over. It keeps the former session's id and password in a file, goes on with it,
and closes it, before it begins its own.
"""

from collections.abc import Callable
from typing import Protocol

from headrace.client.zookeeper.events import StateChanged
from headrace.client.zookeeper.on_loop import LoopClient
from headrace.client.zookeeper.session import Resumed
from headrace.client.zookeeper.states import ENDED, State

OpenClient = Callable[[Resumed | None, Callable[[StateChanged], None]], LoopClient]


class Hearing(Protocol):
    """Who is told how the session stands."""

    def connected(self, client: LoopClient, session: int, *, is_new: bool) -> None: ...

    def disconnected(self) -> None: ...

    def expired(self) -> None: ...


class ClusterSession:
    def __init__(self, open_client: OpenClient, heard: Hearing, save: Callable[[Resumed], None]) -> None:
        self._open = open_client
        self._heard = heard
        self._save = save
        self._client: LoopClient | None = None
        self._is_new = True
        self._is_connected = False
        self._is_closing = False
        self._on_closed: Callable[[], None] = lambda: None

    def start(self, former: Resumed | None) -> None:
        if former is None:
            self._begin()
        else:
            self._client = self._open(former, self._former_changed)

    def _former_changed(self, event: StateChanged) -> None:
        if event.state is State.CONNECTED and self._client is not None:
            self._client.close()
        elif event.state in ENDED and not self._is_closing:
            self._begin()

    def _begin(self) -> None:
        self._is_new = True
        self._client = self._open(None, self._changed)

    def _changed(self, event: StateChanged) -> None:
        client = self._client
        if client is None:
            return
        was_connected, self._is_connected = self._is_connected, event.state is State.CONNECTED
        if event.state is State.CONNECTED:
            is_new, self._is_new = self._is_new, False
            if is_new:
                self._save(client.credentials)
            self._heard.connected(client, client.credentials.id, is_new=is_new)
            return
        if was_connected:
            self._heard.disconnected()
        if event.state in ENDED:
            if self._is_closing:
                self._on_closed()
            else:
                self._heard.expired()
                self._begin()

    def close(self, closed: Callable[[], None]) -> None:
        """Ends the session, and with it what was registered."""
        self._is_closing = True
        self._on_closed = closed
        if self._client is None:
            closed()
        else:
            self._client.close()

    def abandon(self) -> None:
        """As a process that dies."""
        if self._client is not None:
            self._client.abandon()
