"""Fetch (1), versions 4 to 18: slices of files, never records.

A request is read here and enters its session; `one_fetch` reads the logs, waits and answers. One of very many
partitions does all that in steps (`fetch_slowly`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from headrace.broker.handlers.one_fetch import OneFetch
from headrace.core.errors import PeerError
from headrace.protocol import fetch
from headrace.protocol.error_codes import (
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from headrace.protocol.fetch import FetchRequest, TopicKey

if TYPE_CHECKING:
    from headrace.broker.connection import Connection, Slot
    from headrace.broker.fetch_sessions import FetchSession, FetchSessions
    from headrace.broker.handlers.fetch_slowly import SlowFetch
    from headrace.broker.handlers.replica_fetch import ReplicaFetchHandler
    from headrace.broker.metrics import Metrics
    from headrace.broker.partition import Partition
    from headrace.broker.parts import DirectoryParts
    from headrace.broker.purgatory import Purgatory
    from headrace.broker.quotas import Throttle
    from headrace.broker.server import Server

AT_ONCE_MAX: Final = 500  # partitions that are tried at once; a fetch of more is tried in steps
READ_AT_ONCE_BYTES_MAX: Final = 16 << 10  # a request that is longer is read in steps, too


class FetchHandler:
    __slots__ = (
        "_topics",
        "bytes_max",
        "metrics",
        "purgatory",
        "reactor",
        "replicas",
        "rights",
        "server",
        "sessions",
        "store",
        "throttle",
    )

    def __init__(
        self,
        parts: DirectoryParts,
        server: Server,
        metrics: Metrics,
        throttle: Throttle,
        sessions: FetchSessions,
        purgatory: Purgatory,
        bytes_max: int,
    ) -> None:
        """`server` counts the memory that waiting fetches take."""
        self._topics = parts.topics
        self.store = parts.store
        self.sessions = sessions
        self.purgatory = purgatory
        self.server = server
        self.reactor = server.reactor
        self.metrics = metrics
        self.bytes_max = bytes_max
        self.rights = parts.rights
        self.throttle = throttle
        self.replicas: ReplicaFetchHandler | None = None  # of a broker in a cluster

    def handle(
        self, connection: Connection, view: memoryview, at: int, end: int, version: int, correlation_id: int
    ) -> None:
        if end - at > READ_AT_ONCE_BYTES_MAX:
            self._slow(connection, version, correlation_id).begin_reading(bytes(view[at:end]))
            return
        request = fetch.decode(view, at, end, version)
        if request.replica_id >= 0 and self.replicas is not None:
            self.replicas.handle(connection, request, version, correlation_id)
            return
        entered = self.enter(connection, request, version, correlation_id, None)
        if entered is None:
            return
        one = OneFetch(self, connection, request, version, correlation_id, *entered)
        if len(one.wanted) > AT_ONCE_MAX:
            self._slow(connection, version, correlation_id).begin(one)
        elif not one.attempt(last=request.wait_ms_max <= 0):
            one.wait()

    def _slow(self, connection: Connection, version: int, correlation_id: int) -> SlowFetch:
        from headrace.broker.handlers.fetch_slowly import SlowFetch  # few ever need it

        return SlowFetch(self, connection, version, correlation_id)

    def enter(
        self, connection: Connection, request: FetchRequest, version: int, correlation_id: int, slot: Slot | None
    ) -> tuple[FetchSession | None, bool] | None:
        """Its session, and whether it is incremental in it; None if that was refused, and answered. Whoever has a slot
        updates the session himself."""
        if version < 7:
            return None, False
        try:
            uses_ids = version >= fetch.TOPIC_IDS_FROM
            return self.sessions.open(request, uses_ids, time.monotonic(), update=slot is None)
        except PeerError as error:
            self.metrics.error(error.code)
            throttle_ms = self.throttle.ms(connection.session, connection.session.client_id, fetch.KEY, 0)
            head = fetch.encode_head(version, correlation_id, error.code, 0, 0, throttle_ms) + fetch.encode_tail(
                version
            )
            refusal = len(head).to_bytes(4, "big") + head
            if slot is None:
                connection.send(refusal)
            else:
                slot.answer([refusal])
            return None

    def partition(self, key: TopicKey, index: int) -> Partition:
        topic = self._topics.by_key(key)
        if topic is None:
            code = UNKNOWN_TOPIC_OR_PARTITION if isinstance(key, str) else UNKNOWN_TOPIC_ID
            raise PeerError(code, f"{key!r}: no such topic")
        if not 0 <= index < len(topic.partitions):
            raise PeerError(UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}: no partition {index}")
        return topic.partitions[index]

    def partition_or_none(self, key: tuple[TopicKey, int]) -> Partition | None:
        try:
            return self.partition(*key)
        except PeerError:
            return None

    def name(self, topic_id: bytes) -> str | None:
        topic = self._topics.by_wire_id(topic_id)
        return topic.name if topic is not None else None
