"""Produced batches that the loop must not look at all at once: a thread packs them again or walks over their records,
or they are staged a few in each turn. Meanwhile the connection's next request waits, and others are served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Final

from headrace.core.errors import PeerError
from headrace.log.admission import check_slowly
from headrace.protocol.batch import check_produced
from headrace.protocol.error_codes import KAFKA_STORAGE_ERROR
from headrace.protocol.records import recompress

if TYPE_CHECKING:
    from headrace.broker.handlers.produce import ProduceHandler
    from headrace.broker.handlers.produce_wait import ProduceWait
    from headrace.log.config import LogConfig
    from headrace.log.partition_log import PartitionLog
    from headrace.protocol.produce import ProduceRequest, TopicKey, Wanted

    SlowBatch = tuple[TopicKey, int, PartitionLog, memoryview, int, int]  # topic, partition, log, data[start:end]
    ToPack = tuple[int, int, int, int | None, str, LogConfig]  # start, end, codec, level; the log's name and settings

# By where a batch starts: what stands for it and the largest timestamp in it, or why it is refused.
Packed = dict[int, tuple[bytearray, int] | PeerError]

AT_ONCE_MAX: Final = 32  # batches of one request that are staged without a look at the clock
STAGING_S: Final = 0.001  # of a request with more, in one turn
BATCHES_PER_LOOK: Final = 8  # between two looks at the clock


class OneByOne:
    """Batches of one request that a thread looks at: one by one, so that those of other clients have their turn in
    between. `look` is called in the thread, `take` on the loop with what came of it, `end` after the last one."""

    __slots__ = ("_at", "_count", "_end", "_handler", "_look", "_take", "_wait")

    def __init__(
        self,
        handler: ProduceHandler,
        wait: ProduceWait,
        count: int,
        look: Callable[[int], object],
        take: Callable[[int, object], None],
        end: Callable[[], None],
    ) -> None:
        self._handler = handler
        self._wait = wait
        self._count = count
        self._look = look
        self._take = take
        self._end = end
        self._at = 0  # which of them is with the thread

    def begin(self) -> None:
        self._wait.connection.barriers += 1
        self._handler.slow_workers.submit(self.work, self.done)

    def work(self) -> object:
        return self._look(self._at)

    def done(self, result: object, error: BaseException | None) -> None:
        wait = self._wait
        try:
            if error is not None:
                wait.give_up(error)
                return
            self._take(self._at, result)
            self._at += 1
            if self._at < self._count:
                self._handler.slow_workers.submit(self.work, self.done)
                return
            wait.connection.barriers -= 1
            self._end()
            wait.connection.settle()
        except Exception as failed:
            wait.give_up(failed)


class Packing:
    """Batches of one request that a thread packs again before any of them is staged."""

    __slots__ = ("_handler", "_now_ms", "_packed", "_refused", "_request", "_view", "_wait", "_wanted")

    def __init__(
        self,
        handler: ProduceHandler,
        request: ProduceRequest,
        view: memoryview,
        wait: ProduceWait,
        wanted: list[ToPack],
        refused: Packed | None,
    ) -> None:
        self._handler = handler
        self._request = request
        self._view = view
        self._wait = wait
        self._wanted = wanted
        self._refused = refused
        self._packed: Packed = {}
        self._now_ms = handler.clock.now_ms()

    def begin(self) -> None:
        OneByOne(self._handler, self._wait, len(self._wanted), self.pack, self.take, self.stage).begin()

    def pack(self, at: int) -> tuple[bytearray, int] | PeerError:
        """In the thread: the batch as it is kept, with the largest timestamp in it; or why it is refused."""
        start, end, codec, level, name, config = self._wanted[at]
        view = self._view
        try:
            check_produced(view, start, end)
            largest = check_slowly(name, config, view, start, end, self._now_ms)
            return recompress(bytes(view[start:end]), codec, level), largest
        except PeerError as error:
            return error

    def take(self, at: int, result: object) -> None:
        self._packed[self._wanted[at][0]] = result  # type: ignore[assignment]

    def stage(self) -> None:
        request, view, wait = self._request, self._view, self._wait
        packed = self._packed
        if request[0] is not None:
            for _, _, start, log in self._handler.transactional(request, view):
                try:
                    self._handler.verify_again(request[0], log, view, start, wait.version)
                except PeerError as outside:
                    packed[start] = outside
        self._handler.stage(request, view, wait, {**packed, **(self._refused or {})})


class SlowCheck:
    """Batches of one request whose records are looked at in a thread, each of which is then staged on the loop."""

    __slots__ = ("_batches", "_handler", "_now_ms", "_transactional_id", "_wait")

    def __init__(
        self,
        handler: ProduceHandler,
        wait: ProduceWait,
        batches: list[SlowBatch],
        now_ms: int,
        transactional_id: str | None,
    ) -> None:
        self._handler = handler
        self._wait = wait
        self._batches = batches
        self._now_ms = now_ms
        self._transactional_id = transactional_id

    def begin(self) -> None:
        OneByOne(self._handler, self._wait, len(self._batches), self.check, self.place, self._wait.staged).begin()

    def check(self, at: int) -> int | PeerError:
        """In the thread: the largest timestamp of the batch, or why it is refused."""
        _, _, log, data, start, end = self._batches[at]
        try:
            return check_slowly(log.name, log.config, data, start, end, self._now_ms)
        except PeerError as error:
            return error
        except (MemoryError, OSError) as error:
            why = f"{log.name}: no memory to inflate a batch of {end - start} bytes ({error}); send it again"
            return PeerError(KAFKA_STORAGE_ERROR, why)

    def place(self, at: int, found: object) -> None:
        key, index, log, data, start, end = self._batches[at]
        wait, handler, transactional_id = self._wait, self._handler, self._transactional_id
        try:
            if not isinstance(found, int):
                raise found if isinstance(found, PeerError) else TypeError(f"{found!r} is not a timestamp")
            handler.check_led(key, index, log)
            if transactional_id is not None:
                handler.verify_again(transactional_id, log, data, start, wait.version)
            now_ms = handler.clock.now_ms()
            handler.place(wait, key, index, log, data, start, end, now_ms, transactional_id is not None, found)
        except PeerError as refusal:
            wait.refuse(key, index, refusal)


class Staging:
    """A request of very many batches: staged for a short time in each turn."""

    __slots__ = ("_handler", "_left", "_packed", "_request", "_slow", "_view", "_wait")

    def __init__(
        self,
        handler: ProduceHandler,
        request: ProduceRequest,
        view: memoryview,
        wait: ProduceWait,
        packed: Packed | None,
    ) -> None:
        self._handler = handler
        self._request = request
        self._view = view
        self._wait = wait
        self._packed = packed
        self._left = _sliced(request)
        self._slow: list[SlowBatch] = []

    def begin(self) -> None:
        self._wait.connection.barriers += 1
        self._stage(again=False)

    def go_on(self) -> None:
        wait = self._wait
        try:
            if self._stage(again=True):
                wait.connection.settle()
        except Exception as error:
            wait.give_up(error)

    def _stage(self, *, again: bool) -> bool:
        """True when all of it is staged, or with the thread."""
        handler, wait, request = self._handler, self._wait, self._request
        until = perf_counter() + STAGING_S
        for some in self._left:
            handler.stage_some(some, self._view, wait, self._packed, request[0], self._slow, again=again)
            if perf_counter() > until:
                handler.reactor.call_soon(self.go_on)
                return False
        wait.connection.barriers -= 1
        handler.stage_slow(request, wait, self._slow)
        return True


def is_short(topics: list[Wanted]) -> bool:
    return len(topics) <= AT_ONCE_MAX and sum([len(wanted) for _, wanted in topics]) <= AT_ONCE_MAX


def _sliced(request: ProduceRequest) -> Iterator[list[Wanted]]:
    """Few batches at a time, each with its topic."""
    for key, wanted in request[3]:
        for first in range(0, len(wanted), BATCHES_PER_LOOK):
            yield [(key, wanted[first : first + BATCHES_PER_LOOK])]
