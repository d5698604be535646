"""Faults between a client and the broker's handlers: requests that are late, refused, or cut off.

It stands in front of the router only while it is needed, and lives on the broker's loop like everything else there.
"""

import difflib
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.broker.api import framed
from headrace.protocol import error_codes
from headrace.protocol.api_keys import PRODUCE
from headrace.protocol.messages import decode_request, encode_response, request_is_flexible
from headrace.protocol.wire import skip_tags
from headrace.testing.error_answers import error_answer

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.broker.node import Node
    from headrace.protocol.framing import Chunk

DISCONNECT = "DISCONNECT"
_HEADER = Struct(">hhih")
_CODES = {name: code for name, code in vars(error_codes).items() if isinstance(code, int) and name.isupper()}


class PromisedFailure:
    """What `fail_next` promised: `happened` says how often it has come true."""

    def __init__(self, api_key: int, code: int | None, times: int) -> None:
        self.api_key = api_key
        self.code = code  # None: the connection is closed
        self.left = times
        self.happened = 0


def api_key_of(name: "str | int", names: dict[int, str]) -> int:
    """`Produce`, `PRODUCE`, `init_producer_id` or a number."""
    if isinstance(name, int):
        if name not in names:
            raise ValueError(f"API {name} is not served here")
        return name
    plain = {_plain(each): key for key, each in names.items()}
    if _plain(name) in plain:
        return plain[_plain(name)]
    near = difflib.get_close_matches(_plain(name), plain, n=1)
    hint = f"; did you mean {names[plain[near[0]]]}?" if near else f"; there are: {', '.join(sorted(names.values()))}"
    raise ValueError(f"{name!r} is not a request{hint}")


def error_code_of(error: "str | int") -> int | None:
    """`NOT_LEADER_OR_FOLLOWER`, its number, or `disconnect` for None."""
    if isinstance(error, int):
        if error == 0 or error not in _CODES.values():
            raise ValueError(f"{error} is not an error code of Kafka's")
        return error
    name = error.upper().replace("-", "_")
    if name == DISCONNECT:
        return None
    if name not in _CODES or name == "NONE":
        near = difflib.get_close_matches(name, _CODES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{error!r} is not an error of Kafka's{hint}")
    return _CODES[name]


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


class RequestFaults:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._inner: Callable[..., None] = node.server.dispatch
        self._failures: list[PromisedFailure] = []
        self._delay_s = 0.0
        self._late: dict[Connection, deque[tuple[Chunk, int, int]]] = {}
        self._requests: dict[str, int] = {}

    def delay(self, seconds: float) -> None:
        self._delay_s = seconds
        self._stand()

    def fail(self, failure: PromisedFailure) -> None:
        self._failures.append(failure)
        self._stand()

    def clear(self) -> None:
        self._failures.clear()
        self.delay(0.0)

    def _stand(self) -> None:
        """In front of the router while there is something to do, and out of the way otherwise."""
        needed = bool(self._delay_s or self._failures or self._late)
        self._node.server.dispatch = self.dispatch if needed else self._inner

    def dispatch(self, connection: "Connection", chunk: "Chunk", start: int, end: int) -> None:
        if not self._delay_s and connection not in self._late:
            self._deliver(connection, chunk, start, end)
            return
        # One that is late holds up those behind it: a client's requests are handled in their order.
        frame = self._node.server.pool.own((chunk, start, end))
        self._late.setdefault(connection, deque()).append(frame)
        self._node.reactor.call_later(self._delay_s, lambda: self._arrived(connection))

    def _arrived(self, connection: "Connection") -> None:
        waiting = self._late.get(connection)
        if not waiting:
            return
        frame = waiting.popleft()
        if not waiting:
            del self._late[connection]
            self._stand()
        if connection.closed:
            frame[0].unpin()
            return
        try:
            self._deliver(connection, *frame)
        except Exception as error:
            connection.failed(error)

    def _deliver(self, connection: "Connection", chunk: "Chunk", start: int, end: int) -> None:
        failure = self._failure_for(chunk, start, end) if self._failures else None
        if failure is None:
            self._inner(connection, chunk, start, end)
            return
        failure.left -= 1
        failure.happened += 1
        if not failure.left:
            self._failures.remove(failure)
            self._stand()
        try:
            if failure.code is None:
                connection.close()
            else:
                self._refuse(connection, memoryview(chunk.view)[start:end], failure.code)
        finally:
            chunk.unpin()

    def _failure_for(self, chunk: "Chunk", start: int, end: int) -> PromisedFailure | None:
        if end - start < _HEADER.size:
            return None
        key = _HEADER.unpack_from(chunk.view, start)[0]
        return next((each for each in self._failures if each.api_key == key), None)

    def _refuse(self, connection: "Connection", data: memoryview, code: int) -> None:
        key, version, correlation_id, size = _HEADER.unpack_from(data, 0)
        at = _HEADER.size + max(0, size)
        if request_is_flexible(key, version):
            at = skip_tags(data, at)
        request: Any = decode_request(key, version, data, at)
        if key == PRODUCE and request.acks == 0:
            return  # nobody waits for an answer; the records are gone, as the test wanted
        body = error_answer(key, version, request, code)
        connection.send(framed(encode_response(key, version, correlation_id, body)))
