"""A fetch of very many partitions: read, tried and answered in steps, with others served in between.

It takes its place among the answers of its connection at once. An attempt that finds too little is made again after the
partitions were told to wake it, and then whenever one of them has grown; what grows while an attempt is under way
brings another one, so nothing is overlooked.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import steps
from headrace.broker.handlers.one_fetch import OneFetch
from headrace.broker.purgatory import FetchWait
from headrace.protocol import fetch
from headrace.protocol.fetch import FetchPartition, FetchRequest, TopicKey
from headrace.protocol.message_reader import Meter
from headrace.protocol.messages import decode_request_in_steps
from headrace.protocol.wire import MalformedError, too_many

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.broker.fetch_sessions import FetchSession
    from headrace.broker.handlers.fetch import FetchHandler

PARTITIONS_PER_STEP: Final = 32
DECODED_BYTES_MAX: Final = 64 << 20
NO_ID: Final = bytes(16)
_NO_EPOCH: Final = -1
_MS: Final = timedelta(milliseconds=1)


class SlowFetch:
    def __init__(self, handler: FetchHandler, connection: Connection, version: int, correlation_id: int) -> None:
        self._handler = handler
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._slot = connection.slot(barrier=True)
        self._one: OneFetch | None = None
        self._wait: FetchWait | None = None
        self._work: Generator[None, None, bool] | None = None  # the attempt that is under way
        self._again = False  # some partition has grown since it began
        self._last = False  # it is to be answered with what there is
        self._unread_bytes = 0  # of the request, until it is read
        self._meter = Meter(DECODED_BYTES_MAX)  # of what it is read into
        self._held_bytes = 0  # of both, as the server has counted them
        connection.on_close.append(self._left)

    def begin(self, one: OneFetch) -> None:
        """Of a session that has very many partitions."""
        self._begin_attempts(one)
        self._go_on()

    def begin_reading(self, data: bytes) -> None:
        """Of a request that names them."""
        self._unread_bytes = len(data)
        self._work = self._read(data)
        self._go_on()

    # ── one attempt after the other ──────────────────────────────────────────────────────────────────────────────

    def _read(self, data: bytes) -> Generator[None, None, bool]:
        """From the bytes of the request to the end of the first attempt."""
        body = yield from decode_request_in_steps(fetch.KEY, self._version, data, 0, self._meter)
        request = yield from from_body(body, self._version)
        del body, data
        self._unread_bytes = 0
        self._count()
        who = (self._connection, request, self._version, self._correlation_id)
        entered = self._handler.enter(*who, self._slot)
        if entered is None:
            self._end()
            return True
        if entered[0] is not None:
            yield from self._update(entered[0], request)
        one = OneFetch(self._handler, *who, *entered)
        self._begin_attempts(one)
        return (yield from self._attempt(one))

    def _update(self, session: FetchSession, request: FetchRequest) -> Generator[None, None, None]:
        before = len(session.partitions)
        for topic, wanted in request.topics:
            for first in range(0, len(wanted), PARTITIONS_PER_STEP):
                session.ask(topic, wanted[first : first + PARTITIONS_PER_STEP])
                yield
        for topic, indexes in request.forgotten:
            for first in range(0, len(indexes), PARTITIONS_PER_STEP):
                session.forget(topic, indexes[first : first + PARTITIONS_PER_STEP])
                yield
        self._handler.sessions.updated(session, before)

    def _begin_attempts(self, one: OneFetch) -> None:
        self._one = one
        self._last = one.wait_ms <= 0
        one.take_place(self._slot)
        self._connection.hurry = self._hurry
        if self._work is None:
            self._work = self._attempt(one)

    def _attempt(self, one: OneFetch) -> Generator[None, None, bool]:
        """True if it was answered."""
        self._again = False
        found = one.nothing_yet()
        answered = False
        try:
            for first in range(0, len(one.wanted), PARTITIONS_PER_STEP):
                one.read_some(one.wanted[first : first + PARTITIONS_PER_STEP], found)
                yield
            if not one.is_enough(found, last=self._last):
                return False
            answers = []
            for first in range(0, len(found.answers), PARTITIONS_PER_STEP):
                answers += one.changed(found.answers[first : first + PARTITIONS_PER_STEP])
                yield
            parts = yield from one.encoded(answers)
            answered = True
        finally:
            if not answered:
                found.close()
        self._end()
        one.send(parts)
        return True

    def _run(self) -> None:
        until = perf_counter() + steps.STEPS_S
        work = self._work
        if work is None:
            return
        try:
            while True:
                next(work)
                if perf_counter() > until:
                    self._count()
                    self._handler.reactor.call_soon(self._go_on)
                    return
        except StopIteration as end:
            self._work = None
            answered: bool = end.value
        if not answered:
            self._try_again()

    def _count(self) -> None:
        """What it takes while it is read; later `OneFetch` counts for itself."""
        size = self._unread_bytes + 2 * self._meter.bytes if self._unread_bytes else 0
        change, self._held_bytes = size - self._held_bytes, size
        if change:
            self._connection.body_bytes += change
            self._handler.server.holds(self._connection, change)

    def _go_on(self) -> None:
        if self._connection.closed:
            return  # `_left` has seen to it
        try:
            self._run()
        except Exception as error:
            self._work = None
            self._end()
            self._slot.answer([])
            self._connection.failed(error)

    def _try_again(self) -> None:
        """Once more, if something has come since; else when it comes."""
        one = self._one
        if one is None:
            return
        if self._wait is None:
            left_ms = max(0, one.wait_ms)
            self._wait = FetchWait(self._handler.purgatory, one.partitions(), left_ms, self._woken)
        elif not (self._again or self._last):
            return
        self._work = self._attempt(one)
        self._handler.reactor.call_soon(self._go_on)

    def _woken(self, last: bool) -> bool:
        """A partition has grown, or its time is over."""
        self._again = True
        self._last = self._last or last
        one = self._one
        if self._work is None and one is not None:
            self._work = self._attempt(one)
            self._handler.reactor.call_soon(self._go_on)
        return False

    # ── its end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _hurry(self) -> None:
        """Its connection takes memory that others need."""
        if self._wait is not None:
            self._wait.expire()
        else:
            self._last = True

    def _left(self) -> None:
        """Its client has gone."""
        work, self._work = self._work, None
        if work is not None:
            work.close()
        self._let_go()

    def _end(self) -> None:
        self._let_go()
        self._connection.hurry = None
        if not self._connection.closed:
            self._connection.on_close.remove(self._left)

    def _let_go(self) -> None:
        self._unread_bytes = 0
        self._count()
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None
        if self._one is not None:
            self._one.hold_nothing()
            self._one = None


def from_body(body: Any, version: int) -> Generator[None, None, FetchRequest]:
    """A long request, which was read in the general way, as `fetch.decode` would have read it."""
    by_id = version >= fetch.TOPIC_IDS_FROM
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    named = _counted(0, len(body.topics)) - len(body.topics)
    for topic in body.topics:
        named = _counted(named, len(topic.partitions))
        wanted: list[FetchPartition] = []
        for at, each in enumerate(topic.partitions):
            epoch = getattr(each, "current_leader_epoch", _NO_EPOCH)
            last_epoch = getattr(each, "last_fetched_epoch", _NO_EPOCH)
            wanted.append(
                FetchPartition(each.partition, epoch, each.fetch_offset, last_epoch, each.partition_max_bytes)
            )
            if at % steps.ITEMS_PER_STEP == 0:
                yield
        topics.append((_key(topic, by_id), wanted))
    forgotten: list[tuple[TopicKey, list[int]]] = []
    left_out = getattr(body, "forgotten_topics_data", ())
    _counted(0, len(left_out))
    for topic in left_out:
        named = _counted(named, len(topic.partitions))
        forgotten.append((_key(topic, by_id), list(topic.partitions)))
        yield
    is_state = version >= fetch.REPLICA_STATE_FROM
    return FetchRequest(
        body.replica_state.replica_id if is_state else body.replica_id,
        body.replica_state.replica_epoch if is_state else -1,
        body.max_wait // _MS,
        body.min_bytes,
        body.max_bytes,
        body.isolation_level == 1,
        getattr(body, "session_id", 0),
        getattr(body, "session_epoch", -1),
        topics,
        forgotten,
    )


def _key(topic: Any, by_id: bool) -> TopicKey:
    if by_id:
        return NO_ID if topic.topic_id is None else bytes(topic.topic_id.bytes)
    return str(topic.topic)


def _counted(before: int, count: int) -> int:
    named = before + count
    if named > fetch.NAMED_MAX:
        raise MalformedError(too_many(named, fetch.NAMED_MAX))
    return named
