"""`h1:p1,h2:p2/chroot`: the servers of an ensemble, and the node that a client takes for the root."""

from typing import Final, NamedTuple

from headrace.client.errors import AddressError
from headrace.protocol.zookeeper import paths
from headrace.protocol.zookeeper.codes import RefusedError

PORT: Final = 2181

Address = tuple[str, int]


class ConnectString(NamedTuple):
    servers: tuple[Address, ...]
    chroot: str  # "" if there is none

    @property
    def named(self) -> str:
        return ",".join(map(name_of, self.servers)) + self.chroot


def name_of(server: Address) -> str:
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_connect_string(text: str) -> ConnectString:
    hosts, slash, rest = text.partition("/")
    chroot = slash + rest if rest else ""
    if chroot:
        try:
            paths.check(chroot)
        except RefusedError:
            raise AddressError(
                f"{text}: the path {chroot} is not valid; write host:port/path without a / at the end"
            ) from None
    servers = tuple(_server(part, text) for part in (each.strip() for each in hosts.split(",")) if part)
    if not servers:
        raise AddressError(f"{text!r} names no server; write host:port, or host1:port1,host2:port2/path")
    return ConnectString(servers, chroot)


def _server(part: str, text: str) -> Address:
    if part.startswith("[") and "]" in part:
        host, _, rest = part[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, colon, port = part.rpartition(":")
        if not colon:
            host, port = part, ""
    if not port:
        return host, PORT
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise AddressError(f"{text}: {part} is not host:port; the port is a number from 1 to 65535, 2181 unless given")
    return host, int(port)
