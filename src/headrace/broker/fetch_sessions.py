"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changes.

    session id 0, epoch 0    a full fetch that asks for a session      id 0, epoch -1   a full fetch without one
    id N, epoch E > 0        incremental: only changed partitions      id N, epoch -1   ends session N, fetches fully
The epoch counts requests, so that a lost or repeated one is noticed. The number of sessions is bounded, and that of
partitions in all of them; when the cache is full, one that has not been used for two minutes makes room, otherwise the
client simply gets no session, and loses the one that it wants to make larger.
"""

import random
from collections import OrderedDict
from typing import Final

from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)
from headrace.protocol.fetch import FetchPartition, FetchRequest, TopicKey
from headrace.protocol.wire import NAME_CHARACTERS_MAX

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EVICTION_S: Final = 120.0
EPOCH_MAX: Final = (1 << 31) - 1
PARTITIONS_MAX: Final = 1_000_000  # in all sessions, some 400 bytes each; a client may name any, and more each time

Key = tuple[TopicKey, int]


class SessionPartition:
    """What the client asked for, and what it was told last."""

    __slots__ = ("asked", "told_start", "told_watermark")

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.told_watermark = -1
        self.told_start = -1


class FetchSession:
    __slots__ = ("epoch", "id", "partitions", "used_at", "uses_ids")

    def __init__(self, session_id: int, uses_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_ids = uses_ids
        self.used_at = now
        self.partitions: OrderedDict[Key, SessionPartition] = OrderedDict()

    def update(self, request: FetchRequest) -> None:
        for topic, wanted in request.topics:
            self.ask(topic, wanted)
        for topic, indexes in request.forgotten:
            self.forget(topic, indexes)

    def ask(self, topic: TopicKey, wanted: list[FetchPartition]) -> None:
        if len(topic) > NAME_CHARACTERS_MAX:
            return  # there is no such topic, and never will be: its name, of any length, is not kept
        partitions = self.partitions
        for asked in wanted:
            known = partitions.get((topic, asked.partition))
            if known is None:
                partitions[topic, asked.partition] = SessionPartition(asked)
            else:
                known.asked = asked

    def forget(self, topic: TopicKey, indexes: list[int]) -> None:
        for index in indexes:
            self.partitions.pop((topic, index), None)


class FetchSessions:
    def __init__(self, slots_max: int) -> None:
        self._slots_max = slots_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, uses_ids: bool, now: float, *, update: bool = True
    ) -> tuple[FetchSession | None, bool]:
        """The session that this request belongs to, if any, and whether it is incremental in it. Whoever does not have
        it updated here does that himself, and then calls `updated`."""
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id:
                self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH or not request.topics:
                return None, False
            created = self._create(uses_ids, now)
            if created is not None and update:
                created.update(request)
            return created, False
        session = self._sessions.get(session_id)
        if session is None:
            raise PeerError(FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise PeerError(
                INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} is at {session.epoch}, not at {epoch}",
            )
        if session.uses_ids != uses_ids:
            raise PeerError(FETCH_SESSION_TOPIC_ID_ERROR, "a fetch session uses topic names or ids, not both")
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_at = now
        self._sessions.move_to_end(session_id)
        if update:
            before = len(session.partitions)
            session.update(request)
            self.updated(session, before)
        return session, True

    def updated(self, session: FetchSession, before: int) -> None:
        """It had so many partitions before. One that has none any more is not remembered, nor one that has grown while
        there are too many in all."""
        count = len(session.partitions)
        is_over = not count or (count > before and self._is_crowded())
        if is_over and self._sessions.get(session.id) is session:
            del self._sessions[session.id]

    def _is_crowded(self) -> bool:
        return sum([len(each.partitions) for each in self._sessions.values()]) > PARTITIONS_MAX

    def _create(self, uses_ids: bool, now: float) -> FetchSession | None:
        if len(self._sessions) >= self._slots_max or self._is_crowded():
            if not self._sessions:
                return None
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < EVICTION_S:
                return None
            del self._sessions[oldest.id]
        session_id = random.randrange(1, 1 << 31)
        while session_id in self._sessions:
            session_id = random.randrange(1, 1 << 31)
        session = FetchSession(session_id, uses_ids, now)
        self._sessions[session_id] = session
        return session
