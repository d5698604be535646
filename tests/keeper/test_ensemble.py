"""Growing up: an ensemble of three takes over a keeper's directory, and our client goes from server to server."""

from __future__ import annotations

import shutil
from pathlib import Path
from queue import SimpleQueue

import pytest
import zookeeper
from waits import WAIT_S_MAX, eventually

from headrace.client.zookeeper.blocking import BlockingClient
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.client.zookeeper.events import Changed, StateChanged
from headrace.client.zookeeper.states import State
from headrace.protocol.zookeeper import codes
from headrace.testing import Keeper

TIMEOUT_MS = 60_000


@pytest.fixture
def keepers_data(tmp_path: Path) -> Path:
    """What a keeper leaves, as docs/keeper.md says to copy it."""
    directory = tmp_path / "keeper"
    with Keeper(str(directory)) as keeper, BlockingClient(keeper.hosts) as client:
        client.create("/app", b"1")
        client.set("/app", b"2")
        for number in range(20):
            client.create(f"/app/n-{number}", bytes(100))
    return directory / "version-2"


def test_three_servers_take_over_a_keepers_data_and_a_session_goes_on_when_one_is_killed(
    keepers_data: Path, tmp_path: Path
) -> None:
    if missing := zookeeper.missing_program():
        pytest.skip(f"{missing} is not installed")
    for number in range(3):
        shutil.copytree(keepers_data, tmp_path / str(number) / "data" / "version-2")
    states: SimpleQueue[StateChanged] = SimpleQueue()
    changes: SimpleQueue[Changed] = SimpleQueue()
    with (
        zookeeper.ensemble(tmp_path) as ensemble,
        BlockingClient(ensemble.hosts, timeout_ms=TIMEOUT_MS, on_state=states.put) as client,
    ):
        assert (client.get("/app").data, client.get("/app").stat.version) == (b"2", 1)
        assert len(client.children("/app").names) == 20
        client.create("/app/mine", flags=codes.EPHEMERAL)
        client.get("/app", changes.put)
        client.watch("/app/n-1", changes.put)
        session = client.session_id

        connected = states.get(timeout=WAIT_S_MAX)
        assert connected.state is State.CONNECTED
        ensemble.kill(int(connected.reason.rpartition(":")[2]))
        assert states.get(timeout=WAIT_S_MAX).state is State.CONNECTING
        eventually(lambda: _written(client), "another server takes a write")
        assert client.session_id == session
        mine = client.exists("/app/mine")
        assert mine is not None
        assert mine.owner == session
        event = changes.get(timeout=WAIT_S_MAX)
        assert (event.kind, event.path) == (codes.NODE_DATA_CHANGED, "/app")
        client.delete("/app/n-1")
        event = changes.get(timeout=WAIT_S_MAX)
        assert (event.kind, event.path) == (codes.NODE_DELETED, "/app/n-1")

        gone = ensemble.ports.index(int(connected.reason.rpartition(":")[2])) + 1
        members = (client.reconfigure(leaving=str(gone)).data or b"").decode()
        assert {number for number in (1, 2, 3) if f"server.{number}=" in members} == {1, 2, 3} - {gone}


def _written(client: BlockingClient) -> bool:
    try:
        client.set("/app", b"3")
    except ZooKeeperError as error:
        if error.code != codes.CONNECTION_LOSS:
            raise
        return False
    return True
