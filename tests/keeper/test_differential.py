"""The same requests to the keeper and to a real ZooKeeper: replies, stats, zxids and events equal, in their order.

`make keeper-differential SEEDS=…` plays so many sequences; `SEED=…` is the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zookeeper
from differential import World
from raw_client import STAT_BYTES, RawClient, create_body
from sequences import SUPER, Sequence
from waits import SESSION_MS, eventually

from headrace import Keeper
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.acl import digest
from headrace.protocol.zookeeper.jute import Reader, boolean_bytes, buffer_bytes, int_bytes, long_bytes, string_bytes

STEPS = 400
SEEDS = (1, 2, 3, 4, 5, 6)
SEEDS_PER_PAIR = 40  # then both start again with nothing
NEVER_MS = 1_000_000_000
SUPER_DIGEST = digest(SUPER)


@pytest.fixture(scope="module")
def needs_java() -> None:
    missing = zookeeper.missing_program()
    if missing:
        pytest.skip(f"{missing} is not installed")


@contextmanager
def both(directory: Path, clear_ms: int = NEVER_MS) -> Iterator[tuple[World, World]]:
    """A keeper and a ZooKeeper that are set up alike. Containers end when a test wants it."""
    properties = (
        "-Dzookeeper.enforceQuota=true",
        f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}",
        f"-Dznode.container.checkIntervalMs={clear_ms}",
    )
    with (
        Keeper(
            str(directory / "keeper"),
            connections_per_address_max=0,
            snapshot_count=150,
            super_digest=SUPER_DIGEST,
            clear_ms=clear_ms,
            timeout_ms_max=2 * SESSION_MS,
        ) as keeper,
        zookeeper.server(directory / "zookeeper", {"maxSessionTimeout": str(2 * SESSION_MS)}, properties) as server,
    ):

        def restart_ours() -> None:
            keeper.kill()
            keeper.start()

        def restart_theirs() -> None:
            server.kill()
            server.start()

        yield World(keeper.port, restart_ours), World(server.port, restart_theirs)


def compare(ours: World, theirs: World, seed: int) -> None:
    for number, step in enumerate(Sequence(seed, STEPS, restarts=True).steps):
        expected = theirs.play(step)
        assert ours.play(step) == expected, f"seed {seed}, step {number}: {step}"
    ours.end()
    theirs.end()


def test_the_keeper_answers_as_zookeeper_does(needs_java: None, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first = request.config.getoption("--seed", None)
    count = request.config.getoption("--sequences")
    seeds = SEEDS if first is None and count is None else range(first or 0, (first or 0) + (count or 1))
    for at in range(0, len(seeds), SEEDS_PER_PAIR):
        with both(tmp_path / str(at)) as (ours, theirs):
            for seed in seeds[at : at + SEEDS_PER_PAIR]:
                compare(ours, theirs, seed)


def test_containers_and_times_to_live_end_as_in_zookeeper(needs_java: None, tmp_path: Path) -> None:
    """With the events of those who watch, and with what it leaves in the parent."""
    with both(tmp_path, clear_ms=500) as (ours, theirs):
        assert _ends(ours.port) == _ends(theirs.port)


def _ends(port: int) -> list[object]:
    """What a watcher hears, and the stat of the parent, when time has cleared all."""
    client, watcher = RawClient(port), RawClient(port)
    client.ask(codes.CREATE, create_body("/p", b""))
    watcher.ask(codes.ADD_WATCH, string_bytes("/p") + int_bytes(codes.PERSISTENT_RECURSIVE_WATCH))
    watcher.ask(codes.GET_CHILDREN, string_bytes("/p") + boolean_bytes(True))
    heard: list[object] = []

    def ends(path: str) -> None:
        body = string_bytes(path) + boolean_bytes(False)
        eventually(lambda: client.ask(codes.EXISTS, body).error == codes.NO_NODE, f"{path} ends")
        for event in watcher.take_events():
            reader = Reader(event.body)
            heard.append((event.zxid, reader.int32(), reader.int32(), reader.string()))

    client.ask(codes.CREATE_CONTAINER, create_body("/p/c", b"", 4))
    client.ask(codes.CREATE_CONTAINER, create_body("/p/c/d", b"", 4))
    client.ask(codes.CREATE, create_body("/p/c/d/x", b""))
    client.ask(codes.DELETE, string_bytes("/p/c/d/x") + int_bytes(-1))
    ends("/p/c/d")
    ends("/p/c")
    client.ask(codes.CREATE_TTL, create_body("/p/t", b"", 5) + long_bytes(1))
    ends("/p/t")
    reply = client.ask(codes.CREATE_TTL, create_body("/p/s-", b"", 6) + long_bytes(1))
    ends(Reader(reply.body).string())
    client.ask(codes.CREATE_CONTAINER, create_body("/p/unused", b"", 4))
    stat = client.ask(codes.GET_CHILDREN2, string_bytes("/p") + boolean_bytes(False)).body
    heard.append((stat[:-STAT_BYTES], stat[-STAT_BYTES + 32 :]))  # without the times
    return heard


def test_zookeeper_takes_over_a_keepers_data(needs_java: None, tmp_path: Path) -> None:
    """Growing up: the same directory, another server. Every byte of every node is the same, times included."""
    directory = tmp_path / "grown"
    settings = {"snapshot_count": 50, "clear_ms": NEVER_MS, "super_digest": SUPER_DIGEST}
    with Keeper(str(directory / "data"), connections_per_address_max=0, **settings) as keeper:
        ours = World(keeper.port)
        for step in Sequence(7, 300, restarts=False).steps:
            ours.play(step)
        nodes = _all(keeper.port, list(keeper.node.machine.tree.nodes))
        keeper.kill()
    properties = [f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"]
    with zookeeper.server(directory, properties=properties) as server:
        assert _all(server.port, list(nodes)) == nodes


def _all(port: int, paths: list[str]) -> dict[str, tuple[bytes, bytes]]:
    client = RawClient(port)
    client.ask(codes.AUTH, int_bytes(0) + string_bytes("digest") + buffer_bytes(SUPER), codes.AUTH_XID)
    found = {}
    for path in paths:
        named = string_bytes(path)
        data = client.ask(codes.GET_DATA, named + boolean_bytes(False))
        acl = client.ask(codes.GET_ACL, named)
        assert (data.error, acl.error) == (codes.OK, codes.OK), path
        found[path] = (data.body, acl.body)
    return found
