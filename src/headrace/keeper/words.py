"""Four-letter words: what operators, scripts and monitoring ask a ZooKeeper server over a plain connection."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from headrace.keeper.connection import Connection
from headrace.keeper.latency import Latency
from headrace.keeper.server import SILENT_S_MAX
from headrace.keeper.settings import WORDS
from headrace.keeper.tree import Tree
from headrace.protocol.zookeeper import codes

if TYPE_CHECKING:
    from headrace.keeper.node import Node

ZOOKEEPER_VERSION: Final = "3.9.3"  # whose behaviour a client may count on
_NO_ZXID: Final = (1 << 64) - 1  # as ZooKeeper shows -1
_OPERATIONS: Final = {  # as ZooKeeper calls them in `cons`
    codes.CREATE_SESSION: "SESS", codes.PING: "PING", codes.SYNC: "SYNC", codes.CLOSE_SESSION: "CLOS",
    codes.CREATE: "CREA", codes.CREATE2: "CREA", codes.CREATE_CONTAINER: "CREA", codes.CREATE_TTL: "CREA",
    codes.DELETE: "DELE", codes.SET_DATA: "SETD", codes.SET_ACL: "SETA", codes.MULTI: "MULT", codes.MULTI_READ: "MLTR",
    codes.EXISTS: "EXIS", codes.GET_DATA: "GETD", codes.GET_ACL: "GETA", codes.GET_CHILDREN: "GETC",
    codes.GET_CHILDREN2: "GETC", codes.GET_ALL_CHILDREN_NUMBER: "GETACN", codes.GET_EPHEMERALS: "GETE",
    codes.SET_WATCHES: "SETW", codes.SET_WATCHES2: "STW2", codes.ADD_WATCH: "ADDW", codes.CHECK_WATCHES: "CHKW",
    codes.REMOVE_WATCHES: "REMW", codes.WHO_AM_I: "HOMI", codes.RECONFIG: "RECO",
}  # fmt: skip


@cache
def version() -> str:
    """Looked up when it is asked for: what it takes to know it costs more than the rest of a start."""
    from importlib import metadata

    return f"{ZOOKEEPER_VERSION}-headrace-{metadata.version('headrace')}"


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
        return f"Zookeeper version: {version()}\n" + self._numbers()

    def _stat(self) -> str:
        clients = "".join(f" {self._client(each)})\n" for each in self._node.server.connections.values())
        return f"Zookeeper version: {version()}\nClients:\n{clients}\n{self._numbers()}"

    def _numbers(self) -> str:
        node = self._node
        server, tree = node.server, node.machine.tree
        latency = server.latency
        return (
            f"Latency min/avg/max: {latency.min}/{round(latency.mean, 4)}/{latency.max}\n"
            f"Received: {server.packets_in}\n"
            f"Sent: {server.packets_out}\n"
            f"Connections: {len(server.connections)}\n"
            f"Outstanding: {server.held}\n"
            f"Zxid: {tree.last_zxid:#x}\n"
            "Mode: standalone\n"
            f"Node count: {_node_count(tree)}\n"
        )

    def _client(self, connection: Connection) -> str:
        session = 1 if connection.peer.session else 0
        received, sent = connection.forgotten
        return (
            f"/{connection.name}[{session}](queued={connection.unanswered},"
            f"recved={connection.received - received},sent={connection.sent - sent}"
        )

    def _cons(self) -> str:
        lines = []
        for each in self._node.server.connections.values():
            session, more = each.peer.session, ""
            if session is not None:
                cxid = f"lcxid={each.last_xid:#x}," if each.last_xid >= 0 else ""
                latency = each.latency
                more = (
                    f",sid={session.id:#x},lop={_OPERATIONS.get(each.last_kind, 'NA')}"
                    f",est={self._node.wall_ahead_ms + each.connected_ms},to={session.timeout_ms},{cxid}"
                    f"lzxid={each.last_zxid & _NO_ZXID:#x},lresp={each.last_answer_ms},llat={latency.last}"
                    f",minlat={latency.min},avglat={round(latency.mean)},maxlat={latency.max}"
                )
            lines.append(f" {self._client(each)}{more})\n")
        return "".join(lines) + "\n"

    def figures(self) -> dict[str, int | float | str]:
        """What `mntr` and the metrics show."""
        node = self._node
        server, machine = node.server, node.machine
        tree, latency = machine.tree, server.latency
        return {
            "zk_version": version(),
            "zk_server_state": "standalone",
            "zk_avg_latency": round(latency.mean, 4),
            "zk_max_latency": latency.max,
            "zk_min_latency": latency.min,
            "zk_packets_received": server.packets_in,
            "zk_packets_sent": server.packets_out,
            "zk_num_alive_connections": len(server.connections),
            "zk_outstanding_requests": server.held,
            "zk_znode_count": _node_count(tree),
            "zk_watch_count": machine.watching.watches.count,
            "zk_ephemerals_count": sum(map(len, tree.ephemerals.values())),
            "zk_approximate_data_size": tree.data_size,
            "zk_memory_size": tree.bytes,
            "zk_open_file_descriptor_count": len(os.listdir("/proc/self/fd")),
            "zk_max_file_descriptor_count": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "zk_global_sessions": len(machine.sessions.open),
            "zk_local_sessions": 0,
            "zk_uptime": machine.steady_ms - node.opened_ms,
            "zk_bytes_received_count": server.traffic.bytes_in,
            "zk_connection_request_count": server.accepted,
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
        """Bytes in the directory of the snapshots, and in that of the logs, which may be the same."""
        settings = self._node.settings
        data, logs = (
            sum(entry.stat().st_size for entry in os.scandir(os.path.join(directory, "version-2")))
            for directory in (settings.data_dir, settings.data_log_dir or settings.data_dir)
        )
        return data, logs

    def _dirs(self) -> str:
        data, logs = self._sizes()
        return f"datadir_size: {data}\nlogdir_size: {logs}\n"

    def _dump(self) -> str:
        machine, server = self._node.machine, self._node.server
        sessions = [(each.deadline_ms, f"{each.id:#x}") for each in machine.sessions.open.values()]
        connections = []
        for each in server.connections.values():
            session = each.peer.session
            deadline_ms = session.deadline_ms if session is not None else each.connected_ms + SILENT_S_MAX * 1000
            name = f"ip: /{each.name} sessionId: {session.id if session is not None else 0:#x}"
            connections.append((deadline_ms, name))
        lines = ["SessionTracker dump:", *self._by_deadline("Session", sessions)]
        lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(machine.tree.ephemerals)}):"]
        for id, own in machine.tree.ephemerals.items():
            lines.append(f"{id:#x}:")
            lines += [f"\t{path}" for path in sorted(own)]
        lines += ["Connections dump:", *self._by_deadline("Connections", connections)]
        return "\n".join(lines) + "\n"

    def _by_deadline(self, what: str, found: list[tuple[int, str]]) -> Iterator[str]:
        """In sets that end at one time, a second or so, with that time as Java writes it."""
        sets: dict[int, list[str]] = {}
        for deadline_ms, name in sorted(found):
            sets.setdefault((self._node.wall_ahead_ms + deadline_ms) // 1000, []).append(name)
        yield f"{what} Sets ({len(sets)})/({len(found)}):"
        for second, names in sets.items():
            yield f"{len(names)} expire at {time.strftime('%a %b %d %H:%M:%S UTC %Y', time.gmtime(second))}:"
            yield from (f"\t{name}" for name in names)

    def _wchs(self) -> str:
        watches = self._node.machine.watching.watches
        return (
            f"{watches.watcher_count()} connections watching {watches.path_count()} paths\n"
            f"Total watches:{watches.count}\n"
        )

    def _wchc(self) -> str:
        lines = []
        for peer, watched in self._node.machine.watching.watches.by_watcher():
            lines.append(f"{peer.session.id if peer.session else 0:#x}")
            lines += [f"\t{path}" for path in watched]
        return "".join(f"{line}\n" for line in lines) + "\n"

    def _wchp(self) -> str:
        lines = []
        for path, peers in self._node.machine.watching.watches.by_path():
            lines.append(path)
            lines += [f"\t{peer.session.id if peer.session else 0:#x}" for peer in peers]
        return "".join(f"{line}\n" for line in lines) + "\n"

    def _envi(self) -> str:
        import getpass  # for this alone

        values = {
            "zookeeper.version": version(),
            "host.name": socket.gethostname(),
            "python.version": sys.version.split()[0],
            "os.name": os.uname().sysname,
            "os.arch": os.uname().machine,
            "os.version": os.uname().release,
            "user.name": getpass.getuser(),
            "user.home": os.path.expanduser("~"),
            "user.dir": os.getcwd(),
        }
        return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in values.items())

    def _crst(self) -> str:
        for each in self._node.server.connections.values():
            each.reset()
        return "Connection stats reset.\n"

    def _srst(self) -> str:
        server = self._node.server
        server.latency = Latency()
        server.packets_in = server.packets_out = 0
        return "Server stats reset.\n"


def _node_count(tree: Tree) -> int:
    """ZooKeeper's root has two names, and counts twice."""
    return len(tree.nodes) + 1
