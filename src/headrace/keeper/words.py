"""Four-letter words: what operators, scripts and monitoring ask a ZooKeeper server over a plain connection."""

from __future__ import annotations

import os
import platform
import resource
import socket
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from headrace.keeper.connection import Connection
from headrace.keeper.server import Latency
from headrace.keeper.settings import WORDS

if TYPE_CHECKING:
    from headrace.keeper.node import Node

ZOOKEEPER_VERSION: Final = "3.9.3"  # whose behaviour a client may count on
VERSION: Final = f"{ZOOKEEPER_VERSION}-headrace-{version('headrace')}"


class Words:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._allowed = node.settings.allowed_words
        self._answers: dict[str, Callable[[], str]] = {word: getattr(self, f"_{word}") for word in WORDS}

    def answer(self, word: str) -> bytes | None:
        """None if it is no such word."""
        found = self._answers.get(word)
        if found is None:
            return None
        if word not in self._allowed:
            return f"{word} is not executed because it is not in the whitelist.\n".encode()
        return found().encode()

    def _ruok(self) -> str:
        return "imok"

    def _isro(self) -> str:
        return "rw"

    def _srvr(self) -> str:
        return f"Zookeeper version: {VERSION}\n" + self._numbers()

    def _stat(self) -> str:
        clients = "".join(f" {self._client(each)})\n" for each in self._node.server.connections.values())
        return f"Zookeeper version: {VERSION}\nClients:\n{clients}\n{self._numbers()}"

    def _numbers(self) -> str:
        node = self._node
        server, tree = node.server, node.machine.tree
        latency = server.latency
        return (
            f"Latency min/avg/max: {latency.min}/{latency.mean:.4g}/{latency.max}\n"
            f"Received: {server.packets_in}\n"
            f"Sent: {server.packets_out}\n"
            f"Connections: {len(server.connections)}\n"
            f"Outstanding: {server.held}\n"
            f"Zxid: {tree.last_zxid:#x}\n"
            "Mode: standalone\n"
            f"Node count: {len(tree.nodes)}\n"
        )

    def _client(self, connection: Connection) -> str:
        session = 1 if connection.peer.session else 0
        return (
            f"/{connection.name}[{session}](queued={connection.unanswered},"
            f"recved={connection.received},sent={connection.sent}"
        )

    def _cons(self) -> str:
        lines = []
        for each in self._node.server.connections.values():
            session = each.peer.session
            more = ")"
            if session is not None:
                more = (
                    f",sid={session.id:#x},est={each.connected_ms},to={session.timeout_ms},"
                    f"lcxid={each.last_xid:#x},lzxid={each.last_zxid:#x})"
                )
            lines.append(f" {self._client(each)}{more}\n")
        return "".join(lines) + "\n"

    def figures(self) -> dict[str, int | float | str]:
        """What `mntr` and the metrics show."""
        node = self._node
        server, machine = node.server, node.machine
        tree, latency = machine.tree, server.latency
        return {
            "zk_version": VERSION,
            "zk_server_state": "standalone",
            "zk_avg_latency": round(latency.mean, 4),
            "zk_max_latency": latency.max,
            "zk_min_latency": latency.min,
            "zk_packets_received": server.packets_in,
            "zk_packets_sent": server.packets_out,
            "zk_num_alive_connections": len(server.connections),
            "zk_outstanding_requests": server.held,
            "zk_znode_count": len(tree.nodes),
            "zk_watch_count": machine.watches.count,
            "zk_ephemerals_count": sum(map(len, tree.ephemerals.values())),
            "zk_approximate_data_size": tree.bytes,
            "zk_open_file_descriptor_count": len(os.listdir("/proc/self/fd")),
            "zk_max_file_descriptor_count": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "zk_global_sessions": len(machine.sessions.open),
            "zk_connection_rejected": server.refused,
            "zk_last_zxid": tree.last_zxid,
        }

    def _mntr(self) -> str:
        return "".join(f"{name}\t{value}\n" for name, value in self.figures().items())

    def _conf(self) -> str:
        settings = self._node.settings
        data, logs = self._sizes()
        return (
            f"clientPort={self._node.port}\n"
            "secureClientPort=-1\n"
            f"dataDir={os.path.abspath(settings.data_dir)}/version-2\n"
            f"dataDirSize={data}\n"
            f"dataLogDir={os.path.abspath(settings.data_log_dir or settings.data_dir)}/version-2\n"
            f"dataLogSize={logs}\n"
            f"tickTime={settings.tick_ms}\n"
            f"maxClientCnxns={settings.connections_per_address_max}\n"
            f"minSessionTimeout={settings.session_ms_min}\n"
            f"maxSessionTimeout={settings.session_ms_max}\n"
            "clientPortListenBacklog=-1\n"
            "serverId=0\n"
        )

    def _sizes(self) -> tuple[int, int]:
        """Bytes of the snapshots, and of the logs."""
        sizes = {"snapshot.": 0, "log.": 0}
        for directory in {
            self._node.settings.data_dir,
            self._node.settings.data_log_dir or self._node.settings.data_dir,
        }:
            for entry in os.scandir(os.path.join(directory, "version-2")):
                for prefix in sizes:
                    if entry.name.startswith(prefix):
                        sizes[prefix] += entry.stat().st_size
        return sizes["snapshot."], sizes["log."]

    def _dirs(self) -> str:
        data, logs = self._sizes()
        return f"datadir_size: {data}\nlogdir_size: {logs}\n"

    def _dump(self) -> str:
        machine = self._node.machine
        lines = ["SessionTracker dump:", f"Global Sessions({len(machine.sessions.open)}):"]
        lines += [f"{each.id:#x}\t{each.timeout_ms}ms" for each in machine.sessions.open.values()]
        lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(machine.tree.ephemerals)}):"]
        for id, own in machine.tree.ephemerals.items():
            lines.append(f"{id:#x}:")
            lines += [f"\t{path}" for path in sorted(own)]
        lines += ["Connections dump:", f"Connections Sets ({len(self._node.server.connections)}):"]
        return "\n".join(lines) + "\n"

    def _wchs(self) -> str:
        watches = self._node.machine.watches
        return (
            f"{watches.watcher_count()} connections watching {watches.path_count()} paths\n"
            f"Total watches:{watches.count}\n"
        )

    def _wchc(self) -> str:
        lines = []
        for peer, watched in self._node.machine.watches.by_watcher():
            lines.append(f"{peer.session.id if peer.session else 0:#x}")
            lines += [f"\t{path}" for path in watched]
        return "\n".join(lines) + "\n"

    def _wchp(self) -> str:
        lines = []
        for path, peers in self._node.machine.watches.by_path():
            lines.append(path)
            lines += [f"\t{peer.session.id if peer.session else 0:#x}" for peer in peers]
        return "\n".join(lines) + "\n"

    def _envi(self) -> str:
        values = {
            "zookeeper.version": VERSION,
            "host.name": socket.gethostname(),
            "python.version": platform.python_version(),
            "os.name": platform.system(),
            "os.arch": platform.machine(),
            "os.version": platform.release(),
            "user.dir": os.getcwd(),
        }
        return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in values.items())

    def _crst(self) -> str:
        for each in self._node.server.connections.values():
            each.received, each.sent = max(1, min(each.received, 2)), 0
        return "Connection stats reset.\n"

    def _srst(self) -> str:
        server = self._node.server
        server.latency = Latency()
        server.packets_in = server.packets_out = 0
        return "Server stats reset.\n"
