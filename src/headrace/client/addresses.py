"""`--bootstrap-server`: addresses as they are written, and waiting for one of them to answer.

A broker that was started a moment ago is waited for, as Kafka's tools do, but never for long: a tool that hangs
tells nobody anything.
"""

import socket
import time
from collections.abc import Mapping, Sequence

from headrace.client.errors import AddressError, ClientError

WAIT_S = 5.0  # for the first answer of any broker, unless a setting says otherwise
_TRY_S_MAX = 3.0
_PAUSE_S = 0.1

Address = tuple[str, int]


def parse_addresses(text: str) -> list[Address]:
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        plain = part.partition("://")[2] or part
        host, _, port = plain.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise AddressError(f"Please provide valid host:port like host1:9091,host2:9092: {part!r} is none")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise AddressError("Please provide valid host:port like host1:9091,host2:9092")
    return found


def connect(addresses: Sequence[Address], wait_s: float = WAIT_S) -> tuple[socket.socket, Address]:
    """The first that takes a connection; all are tried again until the time is over."""
    deadline = time.monotonic() + wait_s
    while True:
        why = ""
        for address in addresses:
            left = max(0.05, deadline - time.monotonic())
            try:
                return socket.create_connection(address, timeout=min(left, _TRY_S_MAX)), address
            except OSError as error:
                why = (error.strerror or str(error) or type(error).__name__).lower()
        if time.monotonic() + _PAUSE_S >= deadline:
            named = ",".join(f"{host}:{port}" for host, port in addresses)
            raise ClientError(
                f"No broker answers at {named} ({why}), tried for {wait_s:g} s; start one, for example with "
                f"`headrace up`, or correct --bootstrap-server"
            )
        time.sleep(_PAUSE_S)


def await_broker(bootstrap: str, wait_s: float = WAIT_S) -> None:
    """Returns once a broker takes connections, whatever it may say then."""
    connect(parse_addresses(bootstrap), wait_s)[0].close()


def wait_s_of(properties: Mapping[str, str]) -> float:
    """How long to wait for a broker: Java's `default.api.timeout.ms`, if the user set it."""
    given = properties.get("default.api.timeout.ms")
    if given is None:
        return WAIT_S
    try:
        return max(0.0, int(given) / 1000)
    except ValueError:
        raise ClientError(f"default.api.timeout.ms={given}: must be a number of milliseconds") from None
