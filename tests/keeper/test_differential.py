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
def both(
    directory: Path, clear_ms: int = NEVER_MS, *, enforce_quota: bool = True, reconfig: bool = False
) -> Iterator[tuple[World, World]]:
    """A keeper and a ZooKeeper that are set up alike. Containers end when a test wants it."""
    properties = (
        f"-Dzookeeper.enforceQuota={str(enforce_quota).lower()}",
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
            quota_enforced=enforce_quota,
            reconfig_enabled=reconfig,
        ) as keeper,
        zookeeper.server(
            directory / "zookeeper",
            {"maxSessionTimeout": str(2 * SESSION_MS), "reconfigEnabled": str(reconfig).lower()},
            properties,
        ) as server,
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


def test_time_outs_are_negotiated_as_by_zookeeper(needs_java: None, tmp_path: Path) -> None:
    """Within two ticks and what the maximum is set to."""
    wanted = (-1, 0, 1, 5_999, 6_000, 6_001, 2 * SESSION_MS - 1, 2 * SESSION_MS + 1, (1 << 31) - 1)

    def given(port: int) -> list[int]:
        clients = [RawClient(port, timeout_ms=each) for each in wanted]
        found = [client.timeout_ms for client in clients]
        again = RawClient(port, timeout_ms=1, session=clients[-1].session, password=clients[-1].password)
        for client in clients:
            client.close()
        return [*found, again.timeout_ms]

    with both(tmp_path) as (ours, theirs):
        found = given(ours.port)
        assert found == given(theirs.port)
        assert (min(found), max(found)) == (6_000, 2 * SESSION_MS)


def test_digests_are_hidden_as_zookeeper_hides_them(needs_java: None, tmp_path: Path) -> None:
    def shown(port: int) -> list[bytes]:
        owner, stranger = RawClient(port), RawClient(port)
        owner.ask(codes.AUTH, int_bytes(0) + string_bytes("digest") + buffer_bytes(b"ann:pw"), codes.AUTH_XID)
        found = []
        for number, acl in enumerate((((1, "world", "anyone"), (31, "auth", "")), ((31, "auth", ""),))):
            owner.ask(codes.CREATE, create_body(f"/own-{number}", b"", 0, acl))
            for client in (owner, stranger):
                reply = client.ask(codes.GET_ACL, string_bytes(f"/own-{number}"))
                found.append(int_bytes(reply.error) + reply.body[:-STAT_BYTES])
        return found

    with both(tmp_path) as (ours, theirs):
        assert shown(ours.port) == shown(theirs.port)


def _reconfigured(port: int) -> list[object]:
    """What a server says to every kind of reconfig, and to who asks for it in a multi; then it goes on."""
    client, heard = RawClient(port), []
    text, nothing = string_bytes("server.9=h:1:2:participant;3"), buffer_bytes(None)
    kinds = (text + nothing * 2, nothing + string_bytes("1") + nothing, nothing * 2 + text, nothing * 3)
    for super_user in (False, True):
        if super_user:
            client.ask(codes.AUTH, int_bytes(0) + string_bytes("digest") + buffer_bytes(SUPER), codes.AUTH_XID)
        for body in kinds:
            for version in (-1, 0, 7):
                heard.append(client.ask(codes.RECONFIG, body + long_bytes(version))[1:])
    heard.append(client.ask(codes.CREATE, create_body("/after", b""))[1:])
    config = client.ask(codes.GET_DATA, string_bytes("/zookeeper/config") + boolean_bytes(False))
    heard.append((config.error, config.body[:-STAT_BYTES]))
    client.close()
    return heard


@pytest.mark.parametrize(("reconfig", "code"), [(False, codes.RECONFIG_DISABLED), (True, codes.UNIMPLEMENTED)])
def test_reconfig_is_answered_as_a_zookeeper_alone_answers_it(
    needs_java: None, tmp_path: Path, reconfig: bool, code: int
) -> None:
    with both(tmp_path, reconfig=reconfig) as (ours, theirs):
        heard = _reconfigured(ours.port)
        assert heard == _reconfigured(theirs.port)
        assert [error for _, error, _ in heard[:-2]] == 24 * [code]  # type: ignore[misc]


def _limited(port: int) -> list[object]:
    """The answers to changes within and beyond quotas, hard and soft, and what /zookeeper/quota then shows."""
    client, heard = RawClient(port), []

    def create(path: str, data: bytes) -> None:
        heard.append(client.ask(codes.CREATE, create_body(path, data))[1:])

    limits = {"hard": b"count=-1,bytes=-1=;byteHardLimit=9;countHardLimit=3", "soft": b"count=2,bytes=3"}
    for name, limit in limits.items():
        create(f"/{name}", b"")
        create(f"/zookeeper/quota/{name}", b"")
        create(f"/zookeeper/quota/{name}/zookeeper_limits", limit)
        create(f"/zookeeper/quota/{name}/zookeeper_stats", b"count=0,bytes=0")
        for node in ("a", "b", "c"):
            create(f"/{name}/{node}", b"1234")
        for size in (4, 6, 1):
            body = string_bytes(f"/{name}/b") + buffer_bytes(b"x" * size) + int_bytes(-1)
            heard.append(client.ask(codes.SET_DATA, body)[1:3])
        stats = string_bytes(f"/zookeeper/quota/{name}/zookeeper_stats") + boolean_bytes(False)
        heard.append(client.ask(codes.GET_DATA, stats).body[:-STAT_BYTES])
    client.close()
    return [each[:2] if isinstance(each, tuple) else each for each in heard]


@pytest.mark.parametrize(("enforced", "refused"), [(True, 2), (False, 0)])
def test_quotas_are_enforced_as_zookeeper_enforces_them(
    needs_java: None, tmp_path: Path, enforced: bool, refused: int
) -> None:
    with both(tmp_path, enforce_quota=enforced) as (ours, theirs):
        heard = _limited(ours.port)
        assert heard == _limited(theirs.port)
        assert sum(isinstance(each, tuple) and each[1] == codes.QUOTA_EXCEEDED for each in heard) == refused


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
