"""Requests of this broker to other brokers of its cluster: one per broker under way, the others wait in their order.

Whoever asks is told once: the answer, or why there is none. Nothing is asked twice by itself.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headrace.core.errors import StorageError
from headrace.net.reactor import Reactor
from headrace.net.workers import Workers
from headrace.protocol import messages
from headrace.replication.broker_link import BrokerLink
from headrace.replication.image import ClusterImage, Endpoint

TIMEOUT_S: Final = 30.0
WAITING_MAX: Final = 10_000  # for one broker

Told = Callable[[Any, StorageError | None], None]


class _Question(NamedTuple):
    api_key: int
    version: int
    body: Mapping[str, object]
    told: Told


class Peers:
    def __init__(
        self,
        broker: int,
        image: Callable[[], ClusterImage],
        listener: str,
        reactor: Reactor,
        resolving: Workers,
    ) -> None:
        """`listener` is the name of the one by which brokers reach each other."""
        self._client_id = f"broker-{broker}"
        self._image = image
        self._listener = listener
        self._reactor = reactor
        self._resolving = resolving
        self._by_broker: dict[int, _Peer] = {}

    def ask(self, broker: int, api_key: int, version: int, body: Mapping[str, object], told: Told) -> None:
        found = self._image().brokers.get(broker)
        endpoint = found.endpoints.get(self._listener) if found is not None else None
        if endpoint is None:
            told(None, StorageError(f"broker {broker} is not there"))
            return
        peer = self._by_broker.get(broker)
        if peer is None or peer.endpoint != endpoint:
            if peer is not None:
                peer.close("it is reached elsewhere now")
            peer = self._by_broker[broker] = _Peer(broker, endpoint, self._client_id, self._reactor, self._resolving)
        peer.ask(_Question(api_key, version, body, told))

    def close(self) -> None:
        for peer in self._by_broker.values():
            peer.close("this broker stops")
        self._by_broker.clear()


class _Peer:
    def __init__(self, broker: int, endpoint: Endpoint, client_id: str, reactor: Reactor, resolving: Workers) -> None:
        self.endpoint = endpoint
        self._broker = broker
        self._client_id = client_id
        self._reactor = reactor
        self._resolving = resolving
        self._waiting: deque[_Question] = deque()
        self._asked: _Question | None = None
        self._link: BrokerLink | None = None
        self._correlation_id = 0

    def ask(self, question: _Question) -> None:
        if len(self._waiting) >= WAITING_MAX:
            question.told(None, StorageError(f"broker {self._broker}: {WAITING_MAX} requests wait for it already"))
            return
        self._waiting.append(question)
        self._go_on()

    def _go_on(self) -> None:
        if self._asked is not None or not self._waiting:
            return
        asked = self._asked = self._waiting.popleft()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request = messages.encode_request(
            asked.api_key, asked.version, self._correlation_id, self._client_id, asked.body
        )
        if self._link is None:
            self._link = BrokerLink(
                self._reactor,
                self._resolving,
                self.endpoint.host,
                self.endpoint.port,
                answered=self._answered,
                lost=self._lost,
                timeout_s=TIMEOUT_S,
            )
        self._link.send(len(request).to_bytes(4, "big") + request)

    def _answered(self, frame: memoryview) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        try:
            _, body = messages.decode_response(asked.api_key, asked.version, bytes(frame))
        except ValueError as error:
            asked.told(None, StorageError(f"broker {self._broker} answered what cannot be read: {error}"))
        else:
            asked.told(body, None)
        self._go_on()

    def _lost(self, reason: str) -> None:
        """All that waits is told: it may have to go to another broker by now."""
        self._link = None
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        asked, self._asked = self._asked, None
        waiting, self._waiting = self._waiting, deque()
        error = StorageError(f"broker {self._broker} cannot be reached: {reason}")
        for question in (*([asked] if asked is not None else ()), *waiting):
            question.told(None, error)

    def close(self, reason: str) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._fail(reason)
