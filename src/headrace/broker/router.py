"""Which request, in which version, goes to which handler. The one table of versions: ApiVersions answers from it."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.broker.api import Later, Request, framed
from headrace.broker.connection import Connection, Slot
from headrace.broker.handlers import TABLE, load
from headrace.broker.handlers.fetch import FetchHandler
from headrace.broker.handlers.produce import ProduceHandler
from headrace.broker.steps import REQUEST_BYTES_MIN, InSteps, Steps, is_long, reading, writing
from headrace.protocol import fetch, produce
from headrace.protocol.framing import Chunk
from headrace.protocol.message_reader import Meter
from headrace.protocol.messages import API_VERSIONS, Body, encode_response, request_is_flexible
from headrace.protocol.wire import MalformedError, skip_tags

if TYPE_CHECKING:
    from headrace.broker.node import Node

# librdkafka before 2.12 gives up on gzip, snappy and lz4 unless Produce is advertised from version 0 on, though it
# then uses a newer one; Apache Kafka 4 advertises the same.
PRODUCE_LOW_ADVERTISED: Final = 0

_HEADER: Final = Struct(">hhih")
_HEADER_BYTES: Final = 10
OTHER_REQUEST_BYTES_MAX: Final = 16 << 20  # of any request but Produce: a hundred times what a client sends
DECODED_BYTES_MAX: Final = 64 << 20  # of such a request as objects, which take up to forty times what was sent


class Router:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._produce = ProduceHandler(node)
        self._fetch = FetchHandler(node)
        self._served = self._versions()

    def served(self) -> tuple[tuple[int, int, int], ...]:
        """(key, lowest, highest version) of every request that is answered."""
        return self._served

    def _versions(self) -> tuple[tuple[int, int, int], ...]:
        rows = [(served.key, served.low, served.high) for served in TABLE]
        rows.append((produce.KEY, PRODUCE_LOW_ADVERTISED, produce.HIGH))
        rows.append((fetch.KEY, fetch.LOW, fetch.HIGH))
        return tuple(sorted(rows))

    def names(self) -> dict[int, str]:
        return {
            produce.KEY: "Produce",
            fetch.KEY: "Fetch",
            **{served.key: served.name for served in TABLE},
        }

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
            if key == produce.KEY and produce.LOW <= version <= produce.HIGH:
                self._node.metrics.requests[key] += 1
                if version >= produce.FLEXIBLE_FROM:
                    body = skip_tags(view, body)
                pinned = False
                self._produce.handle(connection, chunk, body, end, version, correlation_id)
            elif key == fetch.KEY and fetch.LOW <= version <= fetch.HIGH:
                self._node.metrics.requests[key] += 1
                if version >= fetch.FLEXIBLE_FROM:
                    body = skip_tags(view, body)
                self._fetch.handle(connection, view, body, end, version, correlation_id)
            else:
                client_id = str(view[at:body], "utf-8", "replace") if size >= 0 else None
                self._other(connection, view[body:end], key, version, correlation_id, client_id)
        finally:
            if pinned:
                chunk.unpin()

    def write_later(self, request: Request, slot: Slot, answer: Body | Steps) -> None:
        """An answer whose place in its connection's order is kept already."""
        if isinstance(answer, Steps) or is_long(answer):
            InSteps(self._node, slot.connection, request, writing(request, answer), slot=slot).begin()
        else:
            slot.answer([framed(request.response(answer))])

    def _other(
        self,
        connection: Connection,
        data: memoryview,
        key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        api = load(key)
        if api is None:
            raise MalformedError(f"api key {key} (version {version}) is not served here")
        self._node.metrics.requests[key] += 1
        if not api.low <= version <= api.high:
            if key != API_VERSIONS:
                raise MalformedError(f"{api.name} version {version} is outside [{api.low}, {api.high}]")
            request = Request(key, version, correlation_id, client_id, None, connection)
            version = 0  # a client that asks for a version of the future can read this one
        else:
            at = skip_tags(data, 0) if request_is_flexible(key, version) else 0
            if len(data) > REQUEST_BYTES_MIN and api.is_read_in_steps(version):
                request = Request(key, version, correlation_id, client_id, None, connection)
                meter = Meter(DECODED_BYTES_MAX)
                work = reading(self._node, api, request, bytes(data), at, meter)
                InSteps(self._node, connection, request, work, unread_bytes=len(data), meter=meter).begin()
                return
            body = api.read(version, bytes(data), at)
            request = Request(key, version, correlation_id, client_id, body, connection)
        answer = api.handle(self._node, request)
        if isinstance(answer, Later):
            answer.bind(request, connection.slot(barrier=True), self.write_later)
        elif isinstance(answer, Steps) or is_long(answer):
            must_end = isinstance(answer, Steps) and answer.must_end
            InSteps(self._node, connection, request, writing(request, answer), must_end=must_end).begin()
        else:
            connection.send(framed(encode_response(key, version, correlation_id, answer)))
