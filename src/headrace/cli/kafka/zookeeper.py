"""`--zookeeper HOST:PORT`, as older documents write it: the brokers that are registered there.

It reads `/brokers/ids`, where Kafka's brokers register. Where no ZooKeeper answers, or no broker is registered, one
line says what to write instead.
"""

import json
from typing import Any

from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, UsageError

OPTION = Option(
    name="zookeeper",
    value="hosts",
    help="The older way to name a cluster, host:port of its ZooKeeper: the brokers are looked up there. "
    "Write --bootstrap-server instead.",
)
TIMEOUT_MS = 10_000  # of the session; each server is waited for so long, divided by their number
IDS = "/brokers/ids"


def bootstrap_of(given: GivenOptions) -> str:
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
    from headrace.client.zookeeper.blocking import BlockingClient
    from headrace.client.zookeeper.errors import ZooKeeperError
    from headrace.protocol.zookeeper import codes

    with BlockingClient(connect, timeout_ms=TIMEOUT_MS) as client:
        try:
            found = _registered(client)
        except ZooKeeperError as error:
            if error.code != codes.CONNECTION_LOSS:
                raise ToolError(f"The ZooKeeper at {connect} does not tell its brokers: {error}") from error
            name = client.connect_string.servers[0][0]
            why = client.why.rpartition(": ")[2]
            raise ToolError(
                f"No ZooKeeper answers at {connect} ({why}); write --bootstrap-server {name}:9092 instead"
            ) from error
        if not found:
            parent = client.connect_string.chroot + IDS
            raise ToolError(
                f"The ZooKeeper at {connect} knows no live broker in {parent}; start one, or correct the path"
            )
    return ",".join(found)


def _registered(client: Any) -> list[str]:
    from headrace.client.zookeeper.errors import ZooKeeperError
    from headrace.protocol.zookeeper import codes

    found = []
    try:
        names = client.children(IDS).names
    except ZooKeeperError as error:
        if error.code == codes.NO_NODE:
            return []
        raise
    for name in sorted(names, key=lambda name: (len(name), name)):
        try:
            found.append(_address(f"{IDS}/{name}", client.get(f"{IDS}/{name}").data))
        except ZooKeeperError as error:
            if error.code != codes.NO_NODE:  # a broker that has just gone is none
                raise
    return found


def _address(path: str, data: bytes | None) -> str:
    """The plain endpoint of a registration as Kafka's brokers write it; the host and port of older ones."""
    try:
        broker = json.loads(data or b"")
        for endpoint in broker.get("endpoints", ()):
            protocol = broker.get("listener_security_protocol_map", {}).get(endpoint.partition("://")[0])
            if endpoint.startswith("PLAINTEXT://") or protocol == "PLAINTEXT":
                return str(endpoint).partition("://")[2]
        if broker.get("host") and broker.get("port", -1) > 0:
            return f"{broker['host']}:{broker['port']}"
    except (ValueError, AttributeError, TypeError):
        raise ToolError(f"{path} is not a broker's registration: {(data or b'')[:80]!r}") from None
    raise ToolError(
        f"The broker in {path} has no plain listener ({', '.join(broker.get('endpoints', ()))}); write"
        " --bootstrap-server and --command-config instead"
    )
