"""What a request is to its handler, and how a handler answers: at once, or later."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.protocol.messages import Body, decode_request, encode_response

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.connection import Slot
    from headrace.broker.parts import Parts
    from headrace.broker.steps import Steps


# What Kafka says of a request whose numbers mean nothing to it.
MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was"
    " sent to an incompatible broker. See the broker logs for more details."
)


class Request:
    __slots__ = ("api_key", "body", "client_id", "correlation_id", "must_end", "session", "throttle_ms", "version")

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        session: ClientSession,
        body: Any,
        throttle_ms: int = 0,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.session = session
        self.client_id = session.client_id  # of this request, whatever the next one says
        self.body = body
        self.must_end = False  # a long one, once its handler has been called: it changes something
        self.throttle_ms = throttle_ms  # in the answer; a handler that gives bytes puts it in them

    def response(self, body: Body) -> bytes:
        """Header and body, without the length in front."""
        return encode_response(self.api_key, self.version, self.correlation_id, body, self.throttle_ms)


class Later:
    """An answer that comes later, on the loop. Until then the connection's next request waits, as in Kafka."""

    __slots__ = ("_done", "_request", "_slot", "_write")

    def __init__(self) -> None:
        self._request: Request | None = None
        self._slot: Slot | None = None
        self._write: Write | None = None
        self._done: Body | Steps | None = None

    def bind(self, request: Request, slot: Slot, write: Write) -> None:
        """`write` makes bytes of the answer, in steps if it is long, and gives them to the slot."""
        request.body = None  # whoever answers has kept what it needs; the rest may be large
        self._request = request
        self._slot = slot
        self._write = write
        if self._done is not None:
            self.complete(self._done)

    def complete(self, body: Body | Steps) -> None:
        if self._request is None or self._slot is None or self._write is None:
            self._done = body  # before the router has seen it
            return
        try:
            self._write(self._request, self._slot, body)
        except Exception as error:
            self._slot.connection.broke(error)  # a client that waited for nothing would wait for good


Handler = Callable[["Parts", Request], "Body | Later | Steps"]
Write = Callable[[Request, "Slot", "Body | Steps"], None]
Decoder = Callable[[bytes, int, int], Any]  # bytes, where the body begins, version
Converter = Callable[[Any, int], Generator[None, None, Any]]  # body, version


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One request type and the versions of it that are served."""

    key: int
    name: str
    low: int
    high: int
    handle: Handler
    decode: Decoder | None = None  # where the general way of reading a request is not quick enough
    from_body: Converter | None = None  # with `decode`: the same out of a long request that was read in the general way
    from_body_since: int = 0  # the version; longer requests of older ones are read by `decode`, too

    def is_read_in_steps(self, version: int) -> bool:
        """Whether a long request of this version is."""
        return self.decode is None or (self.from_body is not None and version >= self.from_body_since)

    def read(self, version: int, data: bytes, at: int) -> Any:
        """The request body that starts at `at`. ValueError if the bytes are not such a request."""
        if self.decode is not None:
            return self.decode(data, at, version)
        return decode_request(self.key, version, data, at)


def framed(response: bytes) -> bytes:
    return len(response).to_bytes(4, "big") + response
