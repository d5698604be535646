"""The keeper beside a real Apache ZooKeeper, turn and turn about: rates, CPU, memory, starts, many nodes and sessions.

`keeper_load.c` is the client of both, since one in Python would be the bottleneck. CPU is the server's own, of the
whole process, over the load's operations.
"""

import json
import os
import subprocess
import time
from dataclasses import dataclass

import keepers
from book import Book
from keepers import HEADRACE, SIDES, ZOOKEEPER, Server
from native_load import built
from processes import MeasurementError, call
from workspace import Workspace, rest

PREFIX = "keeper"
START, AFTER, NODES, IDLE, DISK = (f"{PREFIX}_{name}" for name in ("start", "after_load", "nodes", "idle", "disk"))
WATCHERS, NODE_COUNT, IDLE_SESSIONS = 1_000, 100_000, 5_000
IDLE_S, QUIET_S, LATE_S_MAX = 3.0, 10.0, 120.0
SYNCS, SYNC_BYTES = 1_000, 200
_LAST_NODE = f"/fill/{(NODE_COUNT - 1) // 1000:04d}/node-{NODE_COUNT - 1:010d}"


@dataclass(frozen=True, slots=True)
class Load:
    label: str
    what: str  # of keeper_load.c
    sessions: int
    depth: int = 1


LOADS = {
    f"{PREFIX}_set_1": Load("setData, 1 session", "set", 1),
    f"{PREFIX}_set_10": Load("setData, 10 sessions", "set", 10),
    f"{PREFIX}_set_100": Load("setData, 100 sessions", "set", 100),
    f"{PREFIX}_get_1": Load("getData, 1 session", "get", 1),
    f"{PREFIX}_get_10": Load("getData, 10 sessions", "get", 10),
    f"{PREFIX}_get_100": Load("getData, 100 sessions", "get", 100),
    f"{PREFIX}_get_pipelined": Load("getData, 10 sessions, 50 requests under way each", "get", 10, 50),
    f"{PREFIX}_ephemerals": Load("create and delete of ephemeral nodes, 10 sessions", "ephemerals", 10),
    f"{PREFIX}_watches": Load(f"{WATCHERS:,} watchers notified: from the set to the last event", "watches", WATCHERS),
}
NAMES = (START, *LOADS, NODES, IDLE)


def run(book: Book, workspace: Workspace, wanted: set[str], *, rounds: int, seconds: float, warm_s: float) -> None:
    missing = keepers.missing_program()
    if missing is not None:
        book.fail(PREFIX, f"{missing} is not installed")
        return
    book.add(DISK, HEADRACE, sync_us=_sync_us(workspace))
    if START in wanted:
        _starts(book, workspace, rounds)
    loads = {name: load for name, load in LOADS.items() if name in wanted}
    if loads:
        _loads(book, workspace, loads, rounds=rounds, seconds=seconds, warm_s=warm_s)
    if NODES in wanted:
        _nodes(book, workspace, rounds)
    if IDLE in wanted:
        _idle(book, workspace, rounds)


def _sync_us(workspace: Workspace) -> float:
    """What one fdatasync of a small write costs on this disk, with nothing else to do."""
    path = workspace.path / "keeper-sync"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.posix_fallocate(fd, 0, SYNCS * SYNC_BYTES)
        os.fsync(fd)
        began = time.monotonic()
        for number in range(SYNCS):
            os.pwrite(fd, b"x" * SYNC_BYTES, number * SYNC_BYTES)
            os.fdatasync(fd)
        return (time.monotonic() - began) / SYNCS * 1e6
    finally:
        os.close(fd)
        path.unlink()


def _ordered(number: int) -> tuple[str, ...]:
    return SIDES if number % 2 else SIDES[::-1]


def _starts(book: Book, workspace: Workspace, rounds: int) -> None:
    for number in range(rounds + 1):
        for side in _ordered(number):
            with keepers.fresh(side, workspace) as server:
                time.sleep(IDLE_S)
                if number:  # the first start reads programs from the disk that the next ones find in memory
                    book.add(START, side, first_answer_s=server.first_answer_s, idle_mb=server.memory_mb())
            rest()


def _loads(
    book: Book, workspace: Workspace, loads: dict[str, Load], *, rounds: int, seconds: float, warm_s: float
) -> None:
    with keepers.fresh(ZOOKEEPER, workspace) as zookeeper, keepers.fresh(HEADRACE, workspace) as headrace:
        servers = {ZOOKEEPER: zookeeper, HEADRACE: headrace}
        _warm(loads, zookeeper, warm_s)
        for name, load in loads.items():
            for number in range(rounds + 1):
                for side in _ordered(number):
                    figures = measured(load, servers[side], seconds)
                    if number:
                        book.add(name, side, **figures)
            rest()
        for side, server in servers.items():
            book.add(AFTER, side, rss_mb=server.memory_mb())


def _warm(loads: dict[str, Load], zookeeper: Server, seconds: float) -> None:
    """Every load for a while, so that the JVM has compiled what matters."""
    print(f"  warming ZooKeeper for {seconds:g} s", flush=True)
    for load in loads.values():
        measured(load, zookeeper, seconds / len(loads))


def measured(load: Load, server: Server, seconds: float) -> dict[str, float]:
    words = [str(built("keeper_load.c")), str(server.port), load.what, str(load.sessions), str(seconds)]
    before = server.cpu_s()
    figures: dict[str, float] = json.loads(call([*words, str(load.depth)], seconds_max=seconds + LATE_S_MAX))
    figures["cpu_s_per_million"] = (server.cpu_s() - before) / figures["records"] * 1e6
    return figures


def _nodes(book: Book, workspace: Workspace, rounds: int) -> None:
    """Filled, stopped and started again; ready with the data of the node that was made last."""
    for side in SIDES:
        directory = workspace.fresh(f"keeper-{side}")
        server = keepers.start(side, directory)
        try:
            words = [str(built("keeper_load.c")), str(server.port), "fill", str(NODE_COUNT), "0", "1"]
            figures = json.loads(call(words, seconds_max=LATE_S_MAX))
            book.add(NODES, side, create_per_s=figures["per_s"], nodes_mb=server.memory_mb())
            for number in range(rounds + 1):
                stop_s = server.stop()
                server = keepers.start(side, directory, _LAST_NODE)
                if number:
                    start_s = server.first_answer_s
                    book.add(NODES, side, restart_s=stop_s + start_s, start_s=start_s, restarted_mb=server.memory_mb())
        finally:
            server.stop()
            workspace.remove(directory.name)
        rest()


def _idle(book: Book, workspace: Workspace, rounds: int) -> None:
    for number in range(rounds):
        for side in _ordered(number):
            with keepers.fresh(side, workspace) as server:
                book.add(IDLE, side, **_idle_figures(server))
            rest()


def _idle_figures(server: Server) -> dict[str, float]:
    words = [str(built("keeper_load.c")), str(server.port), "idle", str(IDLE_SESSIONS), str(QUIET_S + 1), "1"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise MeasurementError(f"the idle sessions could not be opened: {process.communicate()[1].strip()[-200:]}")
        before, began = server.cpu_s(), time.monotonic()
        time.sleep(QUIET_S)
        cores = (server.cpu_s() - before) / (time.monotonic() - began)
        memory_mb = server.memory_mb()
        if process.wait(LATE_S_MAX):
            raise MeasurementError(f"the idle sessions ended: {process.communicate()[1].strip()[-200:]}")
        return {"cores": cores, "sessions_mb": memory_mb}
    finally:
        process.kill()
        process.wait()
