"""Who is at the other end of a connection: what every request of that client is judged by and remembered for.

A connection has one session, from its first byte to its end, and each request carries it to its handler. What a client
says of itself changes hardly ever: its client id stands in the header of every request, so the bytes are compared with
those of the request before, and decoded only when they differ.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NO_ID: Final = -1  # the length of a client id that is null


class Principal(NamedTuple):
    """Whom rights are given to, as Kafka writes it: `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class ClientSession:
    __slots__ = (
        "client_id",
        "id_bytes",
        "id_size",
        "is_authenticated",
        "listener",
        "local_host",
        "peer",
        "principal",
        "software_name",
        "software_version",
    )

    def __init__(
        self,
        peer: str,
        listener: str,
        local_host: str,
        *,
        principal: Principal = ANONYMOUS,
        is_authenticated: bool = True,
    ) -> None:
        self.peer = peer  # host:port
        self.listener = listener  # the name of the one that the client came in by
        self.local_host = local_host  # of ours, as that client knows it
        self.principal = principal
        self.is_authenticated = is_authenticated  # at once where the listener asks for nothing
        self.software_name = ""  # from ApiVersions, which clients of today send first
        self.software_version = ""
        self.client_id: str | None = None
        self.id_size = NO_ID
        self.id_bytes = b""

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0]

    @property
    def shown_host(self) -> str:
        """The same as Kafka writes it down and shows it: a slash, then the address."""
        return "/" + self.host.strip("[]")

    def call(self, view: memoryview, at: int, size: int) -> None:
        """The client id of a request, when it is not that of the one before."""
        self.id_size = size
        self.id_bytes = bytes(view[at : at + size]) if size > 0 else b""
        self.client_id = str(self.id_bytes, "utf-8", "replace") if size >= 0 else None
