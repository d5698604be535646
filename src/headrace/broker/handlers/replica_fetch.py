"""Fetch, from a follower: reads to the end of the log, tells the leader what the follower has, and wakes when it grows.

A follower has one session with many partitions. What has changed of them is noted as it happens, so a fetch costs what
has changed and not what is followed. What has grown answers a waiting fetch at the end of the turn; a high watermark
that moved goes along with the next answer.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from headrace.broker.partition import NO_EPOCH
from headrace.broker.purgatory import FetchWait
from headrace.broker.rights import ACT_AS_BROKER, refused
from headrace.core.errors import PeerError
from headrace.log.partition_log import PartitionLog
from headrace.log.reader import Run
from headrace.protocol import fetch
from headrace.protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
)
from headrace.protocol.fetch import Fetched, FetchPartition, FetchRequest, TopicKey

if TYPE_CHECKING:
    from headrace.broker.connection import Connection, Slot
    from headrace.broker.handlers.fetch import FetchHandler
    from headrace.broker.partition import Partition
    from headrace.net.outbox import Part
    from headrace.replication.leading import Leading

SESSION_ID_MAX: Final = (1 << 31) - 1
NO_OFFSET: Final = -1
COPIES_BYTES_MAX: Final = 512 << 10

Key = tuple[TopicKey, int]


class _Replica:
    """One partition in a follower's session. It stands among those who wait for the partition to change."""

    __slots__ = ("asked", "key", "log", "partition", "session", "told_start", "told_watermark")

    def __init__(self, session: _Session, key: Key, partition: Partition, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.partition = partition
        self.asked = asked
        self.log: PartitionLog | None = None
        self.told_watermark = self.told_start = NO_OFFSET
        partition.watchers.append(self)
        self.bind()

    def bind(self) -> None:
        """Listens to the log that the partition is led with, if there is one."""
        led = self.partition.led
        if led is not self.log:
            self.unbind()
            self.log = led
            if led is not None:
                led.on_settled.append(self.grown)

    def unbind(self) -> None:
        if self.log is not None and self.grown in self.log.on_settled:
            self.log.on_settled.remove(self.grown)
        self.log = None

    def grown(self) -> None:
        self.session.changed[self.key] = None
        self.session.wake()

    def wake(self) -> None:
        """Its high watermark has moved, or its role is another one."""
        self.session.changed[self.key] = None
        if self.partition.led is not self.log:
            self.bind()
            self.session.wake()

    def leave(self) -> None:
        self.unbind()
        if self in self.partition.watchers:
            self.partition.watchers.remove(self)


class _Session:
    """Of one follower, over its connection."""

    __slots__ = ("changed", "epoch", "id", "refused", "replicas", "waiting")

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.replicas: dict[Key, _Replica] = {}
        self.changed: dict[Key, None] = {}
        self.refused: dict[Key, PeerError] = {}  # that were asked for and are not here: said once
        self.waiting: FetchWait | None = None

    def wake(self) -> None:
        if self.waiting is not None:
            self.waiting.wake()

    def close(self) -> None:
        for each in self.replicas.values():
            each.leave()
        self.replicas.clear()
        self.changed.clear()
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None


class ReplicaFetchHandler:
    def __init__(self, handler: FetchHandler, leading: Leading) -> None:
        self._handler = handler
        self._leading = leading
        self._sessions: dict[int, _Session] = {}  # by the follower's number: each has one

    def close_of(self, broker: int) -> None:
        """That broker is gone."""
        session = self._sessions.pop(broker, None)
        if session is not None:
            session.close()

    def refresh(self) -> None:
        """What followers asked for last stands as long as they wait for it: by the clock they are there."""
        for broker, session in self._sessions.items():
            if session.waiting is not None:
                for each in session.replicas.values():
                    place = (each.partition.topic, each.partition.index)
                    self._leading.still_waits(place, broker, each.asked.offset)

    def handle(self, connection: Connection, request: FetchRequest, version: int, correlation_id: int) -> None:
        try:
            if not self._handler.rights.allows(connection.session, ACT_AS_BROKER):
                raise refused(ACT_AS_BROKER)
            session = self._session(request)
        except PeerError as error:
            self._handler.metrics.error(error.code)
            head = fetch.encode_head(version, correlation_id, error.code, 0, 0) + fetch.encode_tail(version)
            connection.send(len(head).to_bytes(4, "big") + head)
            return
        is_full = request.session_epoch <= 0
        self._update(session, request)
        one = _OneFetch(self._handler, connection, session, request, version, correlation_id, is_full=is_full)
        if not one.attempt(last=request.wait_ms_max <= 0 or is_full):
            one.wait()

    def _session(self, request: FetchRequest) -> _Session:
        known = self._sessions.get(request.replica_id)
        if request.session_epoch <= 0:
            if known is not None:
                known.close()
            made = self._sessions[request.replica_id] = _Session(random.randrange(1, SESSION_ID_MAX))
            return made
        if known is None or known.id != request.session_id:
            raise PeerError(FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if known.epoch != request.session_epoch:
            raise PeerError(
                INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {known.id} is at {known.epoch}, not at {request.session_epoch}",
            )
        if known.waiting is not None:
            known.waiting.expire()
        known.epoch = 1 if known.epoch == SESSION_ID_MAX else known.epoch + 1
        return known

    def _update(self, session: _Session, request: FetchRequest) -> None:
        for topic, indexes in request.forgotten:
            for index in indexes:
                gone = session.replicas.pop((topic, index), None)
                session.changed.pop((topic, index), None)
                if gone is not None:
                    gone.leave()
        for topic, wanted in request.topics:
            for asked in wanted:
                self._ask(session, (topic, asked.partition), asked, request)

    def _ask(self, session: _Session, key: Key, asked: FetchPartition, request: FetchRequest) -> None:
        known = session.replicas.get(key)
        if known is not None and self._handler.partition_or_none(key) is not known.partition:
            session.replicas.pop(key).leave()  # the topic was deleted, and made again
            known = None
        if known is None:
            try:
                partition = self._handler.partition(*key)
            except PeerError as error:
                session.refused[key] = error
                return
            known = session.replicas[key] = _Replica(session, key, partition, asked)
        session.changed[key] = None
        known.asked = asked
        known.bind()
        log = known.log
        if (
            log is not None
            and asked.leader_epoch == known.partition.leader_epoch
            and asked.offset <= log.end_offset
            and _diverging(log, asked) is None
        ):
            place = (known.partition.topic, known.partition.index)
            self._leading.fetched(place, request.replica_id, request.replica_epoch, asked.offset)


class _OneFetch:
    """One fetch of a follower, from its first attempt to its answer."""

    def __init__(
        self,
        handler: FetchHandler,
        connection: Connection,
        session: _Session,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        *,
        is_full: bool,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._session = session
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._is_full = is_full
        self._slot: Slot | None = None

    def wait(self) -> None:
        self._slot = self._connection.slot(barrier=True)
        waiting = FetchWait(self._handler.purgatory, [], self._request.wait_ms_max, self._retry)
        self._session.waiting = waiting
        self._connection.hurry = waiting.expire
        self._connection.on_close.append(self._left)

    def _left(self) -> None:
        waiting = self._session.waiting
        if waiting is not None:
            waiting.cancel()
            self._session.waiting = None

    def _retry(self, last: bool) -> bool:
        try:
            return self._connection.closed or self.attempt(last=last)
        except Exception as error:
            self._connection.broke(error)
            return True

    def attempt(self, *, last: bool) -> bool:
        """Answers if something was found, or if it is the last attempt."""
        session, request = self._session, self._request
        found: list[tuple[Key, Fetched, Run | None]] = []
        looked_at: list[Key] = []
        left, size = min(request.bytes_max, self._handler.bytes_max), 0
        urgent = bool(session.refused)
        for key in session.changed:
            if left <= 0:
                break
            looked_at.append(key)
            each = session.replicas[key]
            part, run = self._read(each, min(left, each.asked.bytes_max), size)
            if run is not None:
                size += len(run)
                left -= len(run)
            if part.error != NONE or part.diverging is not None:
                urgent = True
            is_news = part.high_watermark != each.told_watermark or part.start_offset != each.told_start
            if self._is_full or run is not None or is_news or part.error != NONE or part.diverging is not None:
                found.append((key, part, run))
        if not (last or urgent or size >= max(1, request.bytes_min)):
            for _, _, run in found:
                self._let_go(run)
            return False
        for key in looked_at:
            del session.changed[key]
        for key, part, _ in found:
            each = session.replicas[key]
            each.told_watermark, each.told_start = part.high_watermark, part.start_offset
        for key, error in session.refused.items():
            found.append((key, _failed(key[1], error.code), None))
        session.refused.clear()
        session.waiting = None
        self._send(found)
        return True

    @staticmethod
    def _let_go(run: Run | None) -> None:
        close = getattr(run, "close", None)
        if close is not None:
            close()

    def _read(self, each: _Replica, bytes_max: int, before: int) -> tuple[Fetched, Run | None]:
        asked = each.asked
        try:
            log = each.partition.log_for(max(asked.leader_epoch, NO_EPOCH))
        except PeerError as error:
            return _failed(asked.partition, error.code), None
        try:
            diverging = _diverging(log, asked)
            run: Run | None = None
            if diverging is None:
                if not log.start_offset <= asked.offset <= log.end_offset:
                    return _fetched(log, asked.partition, OFFSET_OUT_OF_RANGE, None, None), None
                if asked.offset < log.end_offset:
                    copy = before < COPIES_BYTES_MAX
                    run = log.read(asked.offset, bytes_max, whole_first=before == 0, copy=copy, end=log.end_offset)
            return _fetched(log, asked.partition, NONE, run, diverging), run
        except PeerError as error:
            return _failed(asked.partition, error.code), None
        except OSError as error:
            self._handler.store.failed(log, error)
            return _failed(asked.partition, KAFKA_STORAGE_ERROR), None

    def _send(self, found: list[tuple[Key, Fetched, Run | None]]) -> None:
        version = self._version
        topics: dict[TopicKey, list[tuple[Fetched, Run | None]]] = {}
        for (topic, _), part, run in found:
            topics.setdefault(topic, []).append((part, run))
        parts: list[Part] = []
        buffer = bytearray(4)
        buffer += fetch.encode_head(version, self._correlation_id, NONE, self._session.id, len(topics))
        size = 0
        for topic, each in topics.items():
            buffer += fetch.encode_topic(version, topic, len(each))
            for part, run in each:
                buffer += fetch.encode_partition(version, part)
                if run is not None:
                    parts += [bytes(buffer), run]
                    size += len(buffer) + len(run)
                    buffer = bytearray()
                buffer += fetch.encode_partition_end(version, part)
            buffer += fetch.encode_topic_end(version)
        buffer += fetch.encode_tail(version)
        parts.append(bytes(buffer))
        size += len(buffer)
        first = parts[0]
        if isinstance(first, bytes):
            parts[0] = (size - 4).to_bytes(4, "big") + first[4:]
        slot = self._slot if self._slot is not None else self._connection.slot(barrier=False)
        slot.answer(parts)


def _diverging(log: PartitionLog, asked: FetchPartition) -> tuple[int, int] | None:
    """Where the follower's history parted from this one, if it did."""
    if asked.last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch < 0:
        raise PeerError(OFFSET_OUT_OF_RANGE, f"{log.name}: epoch {asked.last_fetched_epoch} is not known")
    if epoch < asked.last_fetched_epoch or end_offset < asked.offset:
        return epoch, end_offset
    return None


def _fetched(log: PartitionLog, index: int, error: int, run: Run | None, diverging: tuple[int, int] | None) -> Fetched:
    return Fetched(
        index,
        error,
        log.high_watermark,
        log.last_stable_offset,
        log.start_offset,
        len(run) if run is not None else 0,
        None,
        diverging,
    )


def _failed(index: int, error: int) -> Fetched:
    return Fetched(index, error, NO_OFFSET, NO_OFFSET, NO_OFFSET, 0)
