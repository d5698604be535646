"""The same requests to the keeper and to a real ZooKeeper: replies, stats, zxids and events equal, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zookeeper
from differential import World, play, steps

from headrace import Keeper

STEPS = 500
SEEDS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def needs_java() -> None:
    missing = zookeeper.missing_program()
    if missing:
        pytest.skip(f"{missing} is not installed")


@pytest.fixture
def zookeeper_port(needs_java: None, tmp_path: Path) -> Iterator[int]:
    with zookeeper.running(tmp_path / "zookeeper") as port:
        yield port


@pytest.mark.parametrize("seed", SEEDS)
def test_the_keeper_answers_as_zookeeper_does(zookeeper_port: int, seed: int) -> None:
    with Keeper(connections_per_address_max=0) as keeper:
        ours, theirs = World(keeper.port), World(zookeeper_port)
        for number, step in enumerate(steps(seed, STEPS)):
            expected = play(theirs, step)
            assert play(ours, step) == expected, f"seed {seed}, step {number}: {step}"


def test_zookeeper_takes_over_a_keepers_data(needs_java: None, tmp_path: Path) -> None:
    """Growing up: the same directory, another server."""
    directory = tmp_path / "grown"
    with Keeper(str(directory / "data"), connections_per_address_max=0, snapshot_count=50) as keeper:
        ours = World(keeper.port)
        for step in steps(7, 300):
            play(ours, step)
        nodes = dict(keeper.node.machine.tree.nodes)
        keeper.kill()
    with zookeeper.running(directory) as port:
        theirs = World(port)
        client = zookeeper_client(theirs)
        for path, node in nodes.items():
            if node.acl[0].scheme == "world" and node.acl[0].permissions & 1:
                assert client(path) == (node.data, node.version, node.modified_zxid)


def zookeeper_client(world: World):  # type: ignore[no-untyped-def]
    from raw_client import STAT_BYTES, RawClient

    from headrace.keeper import codes
    from headrace.keeper.jute import Reader, boolean_bytes, string_bytes

    client = RawClient(world.port)

    def read(path: str) -> tuple[bytes | None, int, int]:
        reply = client.ask(codes.GET_DATA, string_bytes(path) + boolean_bytes(False))
        assert reply.error == codes.OK, path
        stat = world.stat(reply.body[-STAT_BYTES:])
        return Reader(reply.body).buffer(), stat[2], stat[1]

    return read
