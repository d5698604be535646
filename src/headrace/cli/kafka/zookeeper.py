"""`--zookeeper HOST:PORT`, as older documents write it: the brokers that are registered there.

It reads `/brokers/ids` and nothing else, in the four requests of ZooKeeper's protocol that this takes. Where no
ZooKeeper answers, one line says what to write instead.
"""

import json
import socket
import struct

from headrace.cli.kafka.options import Given, Option
from headrace.cli.kafka.tool import ToolError, UsageError

OPTION = Option(
    name="zookeeper",
    value="hosts",
    help="The older way to name a cluster, host:port of its ZooKeeper: the brokers are looked up there. "
    "Write --bootstrap-server instead.",
)
_WAIT_S_MAX = 3.0
_ANSWER_BYTES_MAX = 4 << 20
_GET_DATA, _GET_CHILDREN, _CLOSE = 4, 8, -11
_NO_NODE = -101


def bootstrap_of(given: Given) -> str:
    """What --bootstrap-server says, or the brokers that --zookeeper knows."""
    if given.has("bootstrap-server"):
        if given.has("zookeeper"):
            raise UsageError('Only one of "[bootstrap-server]" and "[zookeeper]" can name the cluster')
        return str(given.one("bootstrap-server"))
    if given.has("zookeeper"):
        return brokers_at(str(given.one("zookeeper")))
    raise UsageError("--bootstrap-server must be specified")


def brokers_at(connect: str) -> str:
    """`host:port,…` of the brokers that are registered in the ZooKeeper at `host:port[,host:port…][/chroot]`."""
    hosts, slash, path = connect.partition("/")
    root = (slash + path).rstrip("/")
    why = ""
    for each in filter(None, hosts.split(",")):
        host, _, port = each.strip().rpartition(":")
        if not host:
            host, port = each.strip(), "2181"
        try:
            with socket.create_connection((host, int(port)), timeout=_WAIT_S_MAX) as connection:
                return _read_brokers(connection, root, connect)
        except (OSError, ValueError, struct.error) as error:
            why = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
    name = hosts.split(",")[0].rpartition(":")[0] or hosts
    raise ToolError(f"No ZooKeeper answers at {connect} ({why}); write --bootstrap-server {name}:9092 instead")


def _read_brokers(connection: socket.socket, root: str, connect: str) -> str:
    _send(connection, struct.pack(">iqiq", 0, 0, 10_000, 0) + _buffer(bytes(16)) + b"\0")
    _frame(connection)
    parent = f"{root}/brokers/ids"
    children = _ask(connection, 1, _GET_CHILDREN, parent)
    found = []
    if children is not None:
        (count,) = struct.unpack_from(">i", children)
        at = 4
        for _ in range(count):
            (size,) = struct.unpack_from(">i", children, at)
            broker = children[at + 4 : at + 4 + size].decode()
            at += 4 + size
            held = _ask(connection, 2, _GET_DATA, f"{parent}/{broker}")
            if held is not None:
                (length,) = struct.unpack_from(">i", held)
                found.append(_address(json.loads(held[4 : 4 + length])))
    _send(connection, struct.pack(">ii", 3, _CLOSE))
    if not found:
        raise ToolError(f"The ZooKeeper at {connect} knows no live broker in {parent}; start one, or correct the path")
    return ",".join(found)


def _address(broker: dict[str, object]) -> str:
    endpoints = broker.get("endpoints")
    if isinstance(endpoints, list):
        for endpoint in endpoints:
            if str(endpoint).startswith("PLAINTEXT://"):
                return str(endpoint).partition("://")[2]
    return f"{broker['host']}:{broker['port']}"


def _ask(connection: socket.socket, xid: int, kind: int, path: str) -> bytes | None:
    """What a read returned; None if there is no such node."""
    _send(connection, struct.pack(">ii", xid, kind) + _buffer(path.encode()) + b"\0")
    answer = _frame(connection)
    _, _, error = struct.unpack_from(">iqi", answer)
    if error == _NO_NODE:
        return None
    if error:
        raise ValueError(f"ZooKeeper's error {error} for {path}")
    return answer[16:]


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _send(connection: socket.socket, payload: bytes) -> None:
    connection.sendall(_buffer(payload))


def _frame(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 <= length <= _ANSWER_BYTES_MAX:
        raise ValueError("what answers there is no zookeeper")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ValueError("it closed the connection; is that a zookeeper's port?")
        parts += part
    return bytes(parts)
