"""Which request, in which version, goes to which handler. The tables of both are in `handlers`."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.broker.api import Later, Request, framed
from headrace.broker.connection import Connection, Slot
from headrace.broker.handlers import load
from headrace.broker.handlers.fetch import FetchHandler
from headrace.broker.handlers.produce import ProduceHandler
from headrace.broker.steps import REQUEST_BYTES_MIN, InSteps, Steps, is_long, reading, writing
from headrace.protocol import fetch, produce
from headrace.protocol.framing import Chunk
from headrace.protocol.message_reader import Meter
from headrace.protocol.messages import API_VERSIONS, Body, encode_response, request_is_flexible
from headrace.protocol.wire import MalformedError, skip_tags

if TYPE_CHECKING:
    from headrace.broker.metrics import Metrics
    from headrace.broker.parts import Parts
    from headrace.broker.quotas import Throttle
    from headrace.broker.server import Server

_HEADER: Final = Struct(">hhih")
_HEADER_BYTES: Final = 10
OTHER_REQUEST_BYTES_MAX: Final = 16 << 20  # of any request but Produce: a hundred times what a client sends
DECODED_BYTES_MAX: Final = 64 << 20  # of such a request as objects, which take up to forty times what was sent


class Router:
    def __init__(
        self,
        parts: Parts,
        produce_handler: ProduceHandler,
        fetch_handler: FetchHandler,
        server: Server,
        metrics: Metrics,
        throttle: Throttle,
    ) -> None:
        self.parts = parts
        self.server = server
        self.reactor = server.reactor
        self._produce = produce_handler
        self.fetch_handler = fetch_handler
        self._metrics = metrics
        self._throttle = throttle

    def dispatch(self, connection: Connection, chunk: Chunk, start: int, end: int) -> None:
        """Handles one frame, which it unpins."""
        pinned = True
        try:
            if end - start < _HEADER_BYTES:
                raise MalformedError(f"a request of {end - start} bytes; its header alone has {_HEADER_BYTES}")
            view = chunk.view
            key, version, correlation_id, size = _HEADER.unpack_from(view, start)
            at = start + _HEADER_BYTES
            body = at + size if size > 0 else at
            if body > end:
                raise MalformedError("a client id that reaches beyond its request")
            if end - start > OTHER_REQUEST_BYTES_MAX and key != produce.KEY:
                size = end - start
                raise MalformedError(f"api key {key}: {size} bytes; at most {OTHER_REQUEST_BYTES_MAX} are taken")
            session = connection.session
            if size != session.id_size or view[at:body] != session.id_bytes:
                session.call(view, at, size)
            if not session.is_authenticated and key != API_VERSIONS:
                raise MalformedError(f"api key {key} from a client that has not authenticated; it must do so first")
            if key == produce.KEY and produce.LOW <= version <= produce.HIGH:
                self._metrics.requests[key] += 1
                if version >= produce.FLEXIBLE_FROM:
                    body = skip_tags(view, body)
                pinned = False
                self._produce.handle(connection, chunk, body, end, version, correlation_id)
            elif key == fetch.KEY and fetch.LOW <= version <= fetch.HIGH:
                self._metrics.requests[key] += 1
                if version >= fetch.FLEXIBLE_FROM:
                    body = skip_tags(view, body)
                self.fetch_handler.handle(connection, view, body, end, version, correlation_id)
            else:
                self._other(connection, view[body:end], key, version, correlation_id)
        finally:
            if pinned:
                chunk.unpin()

    def write_later(self, request: Request, slot: Slot, answer: Body | Steps) -> None:
        """An answer whose place in its connection's order is kept already."""
        if isinstance(answer, Steps) or is_long(answer):
            InSteps(self, slot.connection, request, writing(request, answer), slot=slot).begin()
        else:
            slot.answer([framed(request.response(answer))])

    def _other(
        self,
        connection: Connection,
        data: memoryview,
        key: int,
        version: int,
        correlation_id: int,
    ) -> None:
        session = connection.session
        api = load(key)
        if api is None:
            raise MalformedError(f"api key {key} (version {version}) is not served here")
        self._metrics.requests[key] += 1
        throttle = self._throttle
        throttle_ms = 0 if throttle.is_open else throttle.ms(session, session.client_id, key, len(data))
        if not api.low <= version <= api.high:
            if key != API_VERSIONS:
                raise MalformedError(f"{api.name} version {version} is outside [{api.low}, {api.high}]")
            request = Request(key, version, correlation_id, session, None)
            version = 0  # a client that asks for a version of the future can read this one
        else:
            at = skip_tags(data, 0) if request_is_flexible(key, version) else 0
            if len(data) > REQUEST_BYTES_MIN and api.is_read_in_steps(version):
                request = Request(key, version, correlation_id, session, None, throttle_ms)
                meter = Meter(DECODED_BYTES_MAX)
                work = reading(self.parts, api, request, bytes(data), at, meter)
                InSteps(self, connection, request, work, must_end=False, unread_bytes=len(data), meter=meter).begin()
                return
            body = api.read(version, bytes(data), at)
            request = Request(key, version, correlation_id, session, body, throttle_ms)
        answer = api.handle(self.parts, request)
        if isinstance(answer, Later):
            answer.bind(request, connection.slot(barrier=True), self.write_later)
        elif isinstance(answer, Steps) or is_long(answer):
            must_end = isinstance(answer, Steps) and answer.must_end
            InSteps(self, connection, request, writing(request, answer), must_end=must_end).begin()
        else:
            connection.send(framed(encode_response(key, version, correlation_id, answer, throttle_ms)))
