"""One fetch request, from its first attempt to its answer.

The answer is a list of small byte strings and file slices in between; the connection sends the slices
from the page cache. A fetch that finds too little waits in the purgatory and is tried again when a
partition grows.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from headrace.broker.partition import NO_EPOCH
from headrace.broker.purgatory import FetchWait
from headrace.broker.rights import ACT_AS_BROKER, READ_TOPIC, refused
from headrace.core.errors import PeerError
from headrace.core.file_slice import Slice
from headrace.core.steps import finish
from headrace.log.partition_log import PartitionLog
from headrace.log.reader import Run
from headrace.protocol import fetch
from headrace.protocol.error_codes import (
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
)
from headrace.protocol.fetch import Fetched, FetchPartition, FetchRequest, TopicKey

if TYPE_CHECKING:
    from headrace.broker.connection import Connection, Slot
    from headrace.broker.fetch_sessions import FetchSession, SessionPartition
    from headrace.broker.handlers.fetch import FetchHandler
    from headrace.broker.partition import Partition
    from headrace.net.outbox import Part

COPIES_BYTES_MAX: Final = 512 << 10  # an answer holds at most so many record bytes in memory; the rest stays in files

FEW_PARTITIONS: Final = 100  # a waiting fetch of more of them counts as memory that its client takes
PARTITION_BYTES: Final = 250  # that one of them takes
PARTITIONS_PER_STEP: Final = 64  # that are encoded

Answer = tuple[TopicKey, Fetched, Run | None]


class Found:
    """What an attempt has found so far, in how many bytes, and whether some of it should not wait."""

    __slots__ = ("answers", "left", "size", "urgent")

    def __init__(self, left: int) -> None:
        self.answers: list[Answer] = []
        self.left = left  # bytes that there is room for
        self.size = 0
        self.urgent = False

    def close(self) -> None:
        """Nobody is told of it."""
        for _, _, run in self.answers:
            if type(run) is Slice:
                run.close()


class OneFetch:
    """One fetch request, from its first attempt to its answer."""

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_handler",
        "_held_bytes",
        "_incremental",
        "_is_allowed",
        "_request",
        "_session",
        "_slot",
        "_started",
        "_version",
        "_waiting",
        "client_id",
        "wanted",
    )

    def __init__(
        self,
        handler: FetchHandler,
        connection: Connection,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        session: FetchSession | None,
        incremental: bool,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self.client_id = connection.session.client_id  # of this request, whatever the next one says
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._session = session
        self._incremental = incremental
        self._slot: Slot | None = None
        self._waiting: FetchWait | None = None
        self._held_bytes = 0
        self._is_allowed: dict[TopicKey, bool] | None = None if handler.rights.is_open else {}  # by topic, when asked
        self._started = handler.reactor.turn_started
        if incremental and session is not None:
            self.wanted = [(key[0], each.asked) for key, each in session.partitions.items()]
        else:
            self.wanted = [(key, each) for key, partitions in request.topics for each in partitions]

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def wait_ms(self) -> int:
        return self._request.wait_ms_max

    def wait(self) -> None:
        connection = self._connection
        self.take_place(connection.slot(barrier=True))
        self._waiting = FetchWait(self._handler.purgatory, self.partitions(), self.wait_ms, self._retry)
        connection.hurry = self._waiting.expire
        connection.on_close.append(self._left)

    def partitions(self) -> list[Partition]:
        """Those that there are."""
        found = []
        for key, asked in self.wanted:
            try:
                found.append(self._handler.partition(key, asked.partition))
            except PeerError:
                continue
        return found

    def take_place(self, slot: Slot) -> None:
        """Its answer goes there. From now on it counts as memory, if it is about many partitions."""
        self._slot = slot
        if len(self.wanted) > FEW_PARTITIONS:
            self._hold(len(self.wanted) * PARTITION_BYTES)

    def hold_nothing(self) -> None:
        if self._held_bytes:
            self._hold(0)

    def _hold(self, size: int) -> None:
        """Counts what a fetch of many partitions takes while it waits."""
        change = size - self._held_bytes
        self._held_bytes = size
        self._connection.body_bytes += change
        self._handler.server.holds(self._connection, change)

    def _left(self) -> None:
        """Its client has gone."""
        if self._waiting is not None:
            self._waiting.cancel()
        self.hold_nothing()

    def _retry(self, last: bool) -> bool:
        try:
            return self._connection.closed or self.attempt(last=last)
        except Exception as error:
            self._connection.broke(error)
            return True

    def attempt(self, *, last: bool) -> bool:
        """Answers if there is enough, if something is wrong, or if it is the last attempt."""
        found = self.nothing_yet()
        self.read_some(self.wanted, found)
        if not self.is_enough(found, last=last):
            found.close()
            return False
        answers = found.answers
        if self._session is not None:
            answers = self.changed(answers)
        self.send(self._encoded_one(answers[0]) if len(answers) == 1 else finish(self.encoded(answers)))
        return True

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def nothing_yet(self) -> Found:
        return Found(min(self._request.bytes_max, self._handler.bytes_max))

    def is_enough(self, found: Found, *, last: bool) -> bool:
        return last or found.urgent or found.size >= self._request.bytes_min or not self.wanted

    def read_some(self, wanted: list[tuple[TopicKey, FetchPartition]], found: Found) -> None:
        committed = self._request.read_committed
        answers, size, left, urgent = found.answers, found.size, found.left, found.urgent
        is_open = self._is_allowed is None
        for key, asked in wanted:
            try:
                if not is_open:
                    self._check_rights(key)
                log = self._log(key, asked)
                diverging = self._diverging(log, asked)
                run: Run | None = None
                end = log.last_stable_offset if committed else log.high_watermark
                if diverging is not None:
                    urgent = True
                elif not log.start_offset <= asked.offset <= log.end_offset:
                    log.check_offset(asked.offset)
                elif asked.offset < end:
                    bytes_max = min(left, asked.bytes_max)
                    copy = size < COPIES_BYTES_MAX
                    run = log.read(asked.offset, bytes_max, whole_first=size == 0, copy=copy, end=end)
                if run is not None:
                    size += len(run)
                    left = max(0, left - len(run))
                answers.append((key, self._fetched(log, asked, run, diverging), run))
            except PeerError as error:
                urgent = True
                answers.append((key, self._failed(asked, error), None))
            except OSError as failure:
                urgent = True
                why = self._handler.store.failed(log, failure)
                answers.append((key, self._failed(asked, PeerError(KAFKA_STORAGE_ERROR, str(why))), None))
        found.size, found.left, found.urgent = size, left, urgent

    def _check_rights(self, key: TopicKey) -> None:
        """That the session may read the topic, if there is such an id: asked once, however often this is tried."""
        known = self._is_allowed
        if known is None:
            return
        is_allowed = known.get(key)
        if is_allowed is None:
            handler, session = self._handler, self._connection.session
            name = handler.name(key) if isinstance(key, bytes) else key
            if self._request.replica_id >= 0:
                is_allowed = handler.rights.allows(session, ACT_AS_BROKER)
            else:
                is_allowed = name is None or handler.rights.allows(session, READ_TOPIC, name)
            known[key] = is_allowed
        if not is_allowed:
            raise refused(READ_TOPIC)

    def _log(self, key: TopicKey, asked: FetchPartition) -> PartitionLog:
        partition = self._handler.partition(key, asked.partition)
        log = partition.led
        if log is None or asked.leader_epoch >= 0:
            return partition.log_for(max(asked.leader_epoch, NO_EPOCH))
        return log

    def _diverging(self, log: PartitionLog, asked: FetchPartition) -> tuple[int, int] | None:
        """Where a reader's history parted from ours, if it says which epoch it read last."""
        if asked.last_fetched_epoch < 0:
            return None
        epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
        if epoch < 0:
            raise PeerError(OFFSET_OUT_OF_RANGE, f"{log.name}: epoch {asked.last_fetched_epoch} is not known")
        if epoch < asked.last_fetched_epoch or end_offset < asked.offset:
            return epoch, end_offset
        return None

    def _fetched(
        self, log: PartitionLog, asked: FetchPartition, run: Run | None, diverging: tuple[int, int] | None
    ) -> Fetched:
        aborted = None
        if self._request.read_committed:
            aborted = log.aborted_in_last_read(asked.offset) if run is not None else ()
        return Fetched(
            asked.partition,
            NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.start_offset,
            len(run) if run is not None else 0,
            aborted,
            diverging,
        )

    def _failed(self, asked: FetchPartition, error: PeerError) -> Fetched:
        self._handler.metrics.error(error.code)
        return Fetched(asked.partition, error.code, -1, -1, -1, 0, None)

    # ── answering ────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, parts: list[Part]) -> None:
        self._handler.metrics.fetch_latency.observe(time.perf_counter() - self._started)
        if self._slot is not None:
            self._connection.hurry = None
            self.hold_nothing()
            self._slot.answer(parts)
            if self._waiting is not None and not self._connection.closed:
                self._connection.on_close.remove(self._left)
        elif len(parts) == 1:
            self._connection.send(parts[0])
        else:
            self._connection.slot(barrier=False).answer(parts)

    def changed(self, answers: list[Answer]) -> list[Answer]:
        """In an incremental fetch, only what the client does not know yet."""
        session = self._session
        if session is None:
            return answers
        kept: list[Answer] = []
        for key, part, run in answers:
            known = session.partitions.get((key, part.partition))
            if not self._incremental or known is None or run is not None or _news(known, part):
                kept.append((key, part, run))
            if known is not None:
                known.told_watermark = part.high_watermark
                known.told_start = part.start_offset
                if run is not None:
                    session.partitions.move_to_end((key, part.partition))  # the others come first next time
        return kept

    @property
    def _session_id(self) -> int:
        return self._session.id if self._session is not None else 0

    def _throttle_ms(self, size: int) -> int:
        throttle = self._handler.throttle
        return 0 if throttle.is_open else throttle.ms(self._connection.session, self.client_id, fetch.KEY, size)

    def _encoded_one(self, answer: Answer) -> list[Part]:
        key, part, run = answer
        throttle_ms = self._throttle_ms(part.size)
        head, tail = fetch.encode_one(self._version, self._correlation_id, self._session_id, key, part, throttle_ms)
        if run is None:
            return [head + tail]
        return [head, run, tail] if tail else [head, run]

    def encoded(self, answers: list[Answer]) -> Generator[None, None, list[Part]]:
        """The answer as it is sent; in steps if it is about many partitions."""
        if len(answers) == 1:
            return self._encoded_one(answers[0])
        version = self._version
        topics: dict[TopicKey, list[tuple[Fetched, Run | None]]] = {}
        for at, (key, part, run) in enumerate(answers, 1):
            topics.setdefault(key, []).append((part, run))
            if at % PARTITIONS_PER_STEP == 0:
                yield
        parts: list[Part] = []
        buffer = bytearray(4)
        throttle_ms = self._throttle_ms(sum([part.size for _, part, _ in answers]))
        buffer += fetch.encode_head(version, self._correlation_id, NONE, self._session_id, len(topics), throttle_ms)
        size = at = 0
        for key, found in topics.items():
            buffer += fetch.encode_topic(version, key, len(found))
            for part, run in found:
                buffer += fetch.encode_partition(version, part)
                if run is not None:
                    parts.append(bytes(buffer))
                    parts.append(run)
                    size += len(buffer) + len(run)
                    buffer = bytearray()
                buffer += fetch.encode_partition_end(version, part)
                at += 1
                if at % PARTITIONS_PER_STEP == 0:
                    yield
            buffer += fetch.encode_topic_end(version)
        buffer += fetch.encode_tail(version)
        if buffer:
            parts.append(bytes(buffer))
            size += len(buffer)
        first = parts[0]
        if isinstance(first, bytes):
            parts[0] = (size - 4).to_bytes(4, "big") + first[4:]
        return parts


def _news(known: SessionPartition, part: Fetched) -> bool:
    return (
        part.error != NONE
        or part.diverging is not None
        or part.high_watermark != known.told_watermark
        or part.start_offset != known.told_start
    )
