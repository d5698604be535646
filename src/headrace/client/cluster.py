"""The brokers as a tool sees them: whom to ask what, and how long to go on asking.

What the tools that administer a cluster share. It caches one connection per broker and never anything about topics
or groups: a tool lives for one command.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from headrace.client.addresses import connect, parse_addresses, wait_s_of
from headrace.client.errors import ClientError, KafkaError, check
from headrace.client.wire import REQUEST_S_MAX, BrokerConnection
from headrace.protocol.api_keys import FIND_COORDINATOR, METADATA
from headrace.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    LEADER_NOT_AVAILABLE,
    NOT_CONTROLLER,
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
)

GROUP, TRANSACTION = 0, 1
# What passes by itself: elections, coordinators that load, topics that another broker has not heard of yet.
_PASSING = frozenset(
    {
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        REQUEST_TIMED_OUT,
        COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        NOT_CONTROLLER,
        CONCURRENT_TRANSACTIONS,
    }
)
_RETRY_S_MAX = 15.0
_PAUSE_S = 0.1

Result = TypeVar("Result")


class BrokerAddress(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None


class ClusterClient:
    def __init__(self, bootstrap: str, properties: Mapping[str, str] | None = None) -> None:
        self._properties = dict(properties or {})
        self._client_id = self._properties.get("client.id", "headrace-tools")
        self._request_s_max = self._timeout()
        self._held: dict[tuple[str, int], BrokerConnection] = {}
        self._nodes: dict[int, BrokerAddress] | None = None
        self.controller_id = -1
        addresses = parse_addresses(bootstrap)
        self._first = self._open(addresses, wait_s_of(self._properties))

    def __enter__(self) -> "ClusterClient":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._held.values():
            connection.close()

    @property
    def any(self) -> BrokerConnection:
        """Whichever broker answered first: for what any broker can answer."""
        return self._first

    def nodes(self) -> dict[int, BrokerAddress]:
        if self._nodes is None:
            answer = self.metadata([])
            self._nodes = {
                each.node_id: BrokerAddress(each.node_id, each.host, each.port, each.rack) for each in answer.brokers
            }
            self.controller_id = answer.controller_id
        return self._nodes

    def at(self, node_id: int) -> BrokerConnection:
        node = self.nodes().get(node_id)
        if node is None:
            raise ClientError(
                f"Broker {node_id} is not among the live ones ({', '.join(map(str, sorted(self.nodes())))})"
            )
        return self._connection((node.host, node.port))

    def controller(self) -> BrokerConnection:
        """The broker that changes topics; one that is not will pass it on, in newer clusters."""
        self.nodes()
        return self.at(self.controller_id) if self.controller_id in self.nodes() else self._first

    def coordinator(self, key: str, kind: int = GROUP) -> tuple[BrokerAddress, BrokerConnection]:
        def find() -> tuple[BrokerAddress, BrokerConnection]:
            body = {"key": key, "key_type": kind, "coordinator_keys": [key]}
            answer = self._first.call(FIND_COORDINATOR, body)
            found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
            check(found.error_code, found.error_message)
            return BrokerAddress(found.node_id, found.host, found.port), self._connection((found.host, found.port))

        return self.patiently(find)

    def metadata(self, topics: Iterable[str] | None) -> Any:
        """All topics with None. It never makes a topic."""
        asked = None if topics is None else [{"name": name, "topic_id": None} for name in topics]
        body = {
            "topics": asked,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        return self._first.call(METADATA, body)

    def patiently(self, ask: Callable[[], Result]) -> Result:
        """Asks again while the answer is an error that passes by itself."""
        deadline = time.monotonic() + min(_RETRY_S_MAX, self._request_s_max)
        while True:
            try:
                return ask()
            except KafkaError as error:
                if error.code not in _PASSING or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)

    def _connection(self, address: tuple[str, int]) -> BrokerConnection:
        return self._held.get(address) or self._open([address], wait_s_of(self._properties))

    def _open(self, addresses: list[tuple[str, int]], wait_s: float) -> BrokerConnection:
        plain, address = connect(addresses, wait_s)
        plain.settimeout(self._request_s_max)
        where = f"{address[0]}:{address[1]}"
        protocol = self._properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol == "PLAINTEXT":
            connection = BrokerConnection(plain, where, self._client_id)
            connection.negotiate()
        else:
            from headrace.client.security import secured

            connection = secured(plain, address, protocol, self._properties, self._client_id)
        self._held[address] = connection
        return connection

    def _timeout(self) -> float:
        given = self._properties.get("request.timeout.ms")
        try:
            return int(given) / 1000 if given else REQUEST_S_MAX
        except ValueError:
            raise ClientError(f"request.timeout.ms={given}: must be a number of milliseconds") from None
