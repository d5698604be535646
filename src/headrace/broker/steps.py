"""Requests whose work grows with what they ask for, or with what a client has created, done in steps.

A handler returns `Steps`: a generator that yields wherever it may be interrupted, and returns the body. Others are
served in between, so a handler looks again at what may have changed meanwhile. Long requests are read, and long answers
written, in the same way. Most are done within the first slice of time, and then nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.broker.api import Later, Request, framed
from headrace.protocol.message_reader import Meter
from headrace.protocol.messages import Body, decode_request_in_steps, encode_response_in_steps

if TYPE_CHECKING:
    from headrace.broker.api import Api
    from headrace.broker.connection import Connection, Slot
    from headrace.broker.parts import Parts
    from headrace.broker.router import Router

STEPS_S: Final = 0.001  # of one request, in one turn
REQUEST_BYTES_MIN: Final = 4 << 10  # a longer request is read in steps
FEW: Final = 8  # so many topics, partitions or resources are done at once
ITEMS_PER_STEP: Final = 32  # of a loop whose single rounds cost next to nothing
ITEMS_MIN: Final = 100  # an answer with more of them, in its lists and the lists in those, is written in steps

Work = Generator["Pause | None", None, "bytes | Later"]
Answered = TypeVar("Answered", bound="Body | Later")
Key = TypeVar("Key")


class Pause:
    """What steps yield that cannot go on before something has happened elsewhere: they are left alone until `end`."""

    __slots__ = ("_go_on", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._go_on: Callable[[], None] | None = None

    def end(self) -> None:
        """Once; a second time changes nothing."""
        if not self.is_over:
            self.is_over = True
            if self._go_on is not None:
                self._go_on()

    def then(self, go_on: Callable[[], None]) -> None:
        if self.is_over:
            go_on()
        else:
            self._go_on = go_on


class Steps:
    __slots__ = ("body", "must_end", "pause")

    def __init__(
        self,
        body: Generator[Pause | None, None, Body | Later],
        *,
        must_end: bool = False,
        pause: Pause | None = None,
    ) -> None:
        self.body = body
        self.must_end = must_end  # it changes something: it is done also when nobody waits for it any more
        self.pause = pause  # that it stands at already


def stepped(body: Generator[Pause | None, None, Answered], count: int, *, must_end: bool = False) -> Answered | Steps:
    """At once if it is about a few things only, and waits for nothing."""
    if count > FEW:
        return Steps(body, must_end=must_end)
    while True:
        try:
            pause = next(body)
        except StopIteration as end:
            found: Answered = end.value
            return found
        if pause is not None and not pause.is_over:
            return Steps(body, must_end=True, pause=pause)


def up_to_few(counts: Iterable[int]) -> int:
    """Their sum if it is small; else a number above FEW, for which only the first of them were looked at."""
    total = 0
    for count in counts:
        total += max(1, count)
        if total > FEW:
            break
    return total


def tally(keys: Iterable[Key]) -> Generator[None, None, dict[Key, int]]:
    """How often each of them is named, in the order of their first time."""
    counts: dict[Key, int] = {}
    for at, key in enumerate(keys):
        counts[key] = counts.get(key, 0) + 1
        if at % ITEMS_PER_STEP == 0:
            yield
    return counts


def is_long(answer: Body) -> bool:
    return not isinstance(answer, bytes) and _items_left(answer, ITEMS_MIN) < 0


def _items_left(body: Mapping[str, object], left: int) -> int:
    for value in body.values():
        if type(value) is list and value:
            left -= len(value)
            if left < 0:
                return left
            if isinstance(value[0], Mapping):
                for each in value:
                    left = _items_left(each, left)
                    if left < 0:
                        return left
    return left


def reading(parts: Parts, api: Api, request: Request, data: bytes, at: int, meter: Meter) -> Work:
    """A long request, from its bytes to its answer."""
    body = yield from decode_request_in_steps(request.api_key, request.version, data, at, meter)
    if api.from_body is not None:
        body = yield from api.from_body(body, request.version)
    request.body = body
    del data, body
    answer = api.handle(parts, request)
    if isinstance(answer, Later):
        return answer
    request.must_end = isinstance(answer, Steps) and answer.must_end
    return (yield from writing(request, answer))


def writing(request: Request, answer: Body | Steps) -> Work:
    if isinstance(answer, Steps):
        if answer.pause is not None:
            yield answer.pause
        body = yield from answer.body
    else:
        body = answer
    if isinstance(body, Later):
        return body
    if isinstance(body, bytes):
        return framed(request.response(body))
    api_key, version, throttle_ms = request.api_key, request.version, request.throttle_ms
    made = yield from encode_response_in_steps(api_key, version, request.correlation_id, body, throttle_ms)
    return framed(made)


class InSteps:
    """One such request on its way. It holds up those behind it on its connection, as any that must wait. `unread_bytes`
    is the length of a request that is read in steps: it counts as under way, as a Produce request does. Whether it must
    end although its client has left is known only when its handler was called. What it takes as objects, by the
    `meter`, counts as held for its connection: the heaviest are not read from, and the others are served on. `slot` is
    its place among the answers, if it has one already."""

    __slots__ = (
        "_connection",
        "_held_bytes",
        "_meter",
        "_must_end",
        "_paused",
        "_request",
        "_router",
        "_slot",
        "_under_way_bytes",
        "_unread_bytes",
        "_work",
    )

    def __init__(
        self,
        router: Router,
        connection: Connection,
        request: Request,
        work: Work,
        *,
        must_end: bool = True,
        unread_bytes: int = 0,
        meter: Meter | None = None,
        slot: Slot | None = None,
    ) -> None:
        self._router = router
        self._connection = connection
        self._request = request
        self._work = work
        self._must_end = must_end
        self._unread_bytes = unread_bytes
        self._meter = meter
        self._under_way_bytes = self._held_bytes = 0  # as the server has counted them
        self._slot = slot
        self._paused: Pause | None = None

    def begin(self) -> None:
        if not self._run():
            if self._slot is None:
                self._slot = self._connection.slot(barrier=True)
            if self._unread_bytes:
                self._under_way_bytes = self._unread_bytes
                self._router.server.begin(self._connection, self._under_way_bytes)
            self._count()
            self._go_on_later()

    def _go_on_later(self) -> None:
        call_soon = self._router.reactor.call_soon
        if self._paused is None:
            call_soon(self._go_on)
        else:
            self._paused.then(lambda: call_soon(self._go_on))

    def _go_on(self) -> None:
        if self._connection.closed and not (self._must_end or self._request.must_end):
            self._work.close()
            self._let_go()
            return
        try:
            done = self._run()
        except Exception as error:
            self._let_go()
            if self._slot is not None:
                self._slot.answer([])
            self._connection.failed(error)
            return
        if not done:
            self._count()
            self._go_on_later()

    def _is_unread(self) -> bool:
        return self._unread_bytes > 0 and self._request.body is None

    def _count(self) -> None:
        """What it takes now: its bytes until they are read, and what was made of them twice, since its answer is made
        of the same things."""
        if self._meter is None:
            return
        if self._under_way_bytes and not self._is_unread():
            size, self._under_way_bytes = self._under_way_bytes, 0
            self._router.server.end(self._connection, size)
        self._hold(2 * self._meter.bytes)

    def _hold(self, size: int) -> None:
        change = size - self._held_bytes
        if change:
            self._held_bytes = size
            self._connection.body_bytes += change
            self._router.server.holds(self._connection, change)

    def _let_go(self) -> None:
        if self._under_way_bytes:
            size, self._under_way_bytes = self._under_way_bytes, 0
            self._router.server.end(self._connection, size)
        self._hold(0)

    def _run(self) -> bool:
        """True when it is answered, or left to one who answers later."""
        until = perf_counter() + STEPS_S
        self._paused = None
        while True:
            try:
                pause = next(self._work)
            except StopIteration as end:
                self._let_go()
                self._answer(end.value)
                return True
            if pause is not None and not pause.is_over:
                self._paused = pause
                return False
            if perf_counter() > until:
                return False

    def _answer(self, answer: bytes | Later) -> None:
        slot, connection = self._slot, self._connection
        if isinstance(answer, Later):
            slot = slot if slot is not None else connection.slot(barrier=True)
            answer.bind(self._request, slot, self._router.write_later)
        elif slot is not None:
            slot.answer([answer])
        else:
            connection.send(answer)
