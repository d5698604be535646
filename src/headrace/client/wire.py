"""One connection to one broker, for the requests that administer it.

It speaks the newest version of each request that both ends know. Produce and fetch go through librdkafka, never
through here: this is the part of a client that librdkafka does not have, and has no more than the tools need.
"""

import socket
import struct
from collections.abc import Mapping
from typing import Any, Protocol

from headrace.client.errors import GoneError, KafkaError
from headrace.protocol.api_keys import API_VERSIONS
from headrace.protocol.error_codes import UNSUPPORTED_VERSION
from headrace.protocol.messages import api_name, decode_response, encode_request, known_versions

REQUEST_S_MAX = 30.0
ANSWER_BYTES_MAX = 256 << 20
_LENGTH = struct.Struct(">i")
_TLS_ALERT = b"\x15\x03"


class Stream(Protocol):
    """What is asked of a socket, plain or encrypted."""

    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


class UnsupportedError(KafkaError):
    """The broker does not serve this request at all."""

    def __init__(self, api_key: int) -> None:
        self.api_key = api_key
        name = api_name(api_key) or f"api_{api_key}"
        super().__init__(UNSUPPORTED_VERSION, f"The node does not support {name.upper()}")


class BrokerConnection:
    def __init__(self, stream: Stream, where: str, client_id: str) -> None:
        self._stream = stream
        self._where = where
        self._client_id = client_id
        self._correlation_id = 0
        self.versions: dict[int, tuple[int, int]] = {}  # what the broker serves

    def negotiate(self) -> None:
        version = (known_versions(API_VERSIONS) or (0, 0))[1]
        software = {"client_software_name": "headrace-tools", "client_software_version": "1"}
        self._send(API_VERSIONS, version, software)
        frame = self._frame()
        # A broker that does not know this version says so in version 0, whatever was asked.
        if int.from_bytes(frame[4:6], "big", signed=True) == UNSUPPORTED_VERSION:
            self._send(API_VERSIONS, 0, {})
            version, frame = 0, self._frame()
        answer = self._decoded(API_VERSIONS, version, frame)[1]
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def serves(self, api_key: int, version_min: int = 0) -> bool:
        return self.versions.get(api_key, (0, -1))[1] >= version_min

    def version(self, api_key: int, version_max: int | None = None) -> int:
        ours, theirs = known_versions(api_key), self.versions.get(api_key)
        if ours is None or theirs is None:
            raise UnsupportedError(api_key)
        highest = min(ours[1], theirs[1], *(() if version_max is None else (version_max,)))
        if highest < max(ours[0], theirs[0]):
            raise UnsupportedError(api_key)
        return highest

    def call(self, api_key: int, body: Mapping[str, object], version_max: int | None = None) -> Any:
        version = self.version(api_key, version_max)
        self._send(api_key, version, body)
        correlation_id, answer = self._decoded(api_key, version, self._frame())
        if correlation_id != self._correlation_id:
            raise GoneError(
                f"{self._where} answered request {correlation_id}, not {self._correlation_id}; is it a broker?"
            )
        return answer

    def close(self) -> None:
        self._stream.close()

    def _send(self, api_key: int, version: int, body: Mapping[str, object]) -> None:
        self._correlation_id += 1
        payload = encode_request(api_key, version, self._correlation_id, self._client_id, body)
        self._write(_LENGTH.pack(len(payload)) + payload)

    def _decoded(self, api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
        try:
            return decode_response(api_key, version, frame)
        except ValueError as error:
            raise GoneError(
                f"{self._where} sent what is no answer ({error}); is that a Kafka broker's port?"
            ) from error

    def _write(self, data: bytes) -> None:
        try:
            self._stream.sendall(data)
        except OSError as error:
            raise self._gone(error) from error

    def _frame(self) -> bytes:
        head = self._exactly(_LENGTH.size)
        if head[:2] == _TLS_ALERT:
            raise GoneError(f"{self._where} speaks TLS; set security.protocol=SSL, or SASL_SSL if it asks for a login")
        (length,) = _LENGTH.unpack(head)
        if not 0 <= length <= ANSWER_BYTES_MAX:
            raise GoneError(f"{self._where} announced an answer of {length} bytes; is that a Kafka broker's port?")
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self._stream.recv(min(size - len(parts), 1 << 20))
            except OSError as error:
                raise self._gone(error) from error
            if not part:
                raise GoneError(
                    f"{self._where} closed the connection before it answered; does it ask for a login or TLS that "
                    "security.protocol does not name? See the broker's log"
                )
            parts += part
        return bytes(parts)

    def _gone(self, error: OSError) -> GoneError:
        if isinstance(error, TimeoutError | socket.timeout):
            return GoneError(f"{self._where} did not answer in time; see the broker's log, or raise request.timeout.ms")
        if "CERTIFICATE" in (getattr(error, "reason", None) or ""):  # TLS, which says so only after the handshake
            return GoneError(
                f"{self._where} did not accept this client's certificate; set ssl.keystore.location to a key and a "
                "certificate that it trusts"
            )
        return GoneError(f"The connection to {self._where} broke ({(error.strerror or str(error)).lower()})")
