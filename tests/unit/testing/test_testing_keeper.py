"""A keeper in a test, with everything that can go wrong, under our own client."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from waits import WAIT_S_MAX, eventually

from headrace.client.zookeeper.blocking import BlockingClient
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.client.zookeeper.events import Changed, StateChanged
from headrace.client.zookeeper.states import State
from headrace.core.errors import HeadraceError
from headrace.protocol.zookeeper import codes, requests
from headrace.testing import Keeper

TIMEOUT_MS = 60_000


class Client(BlockingClient):
    """That remembers what it was told."""

    def __init__(self, keeper: Keeper, **more: Any) -> None:
        self.states: SimpleQueue[StateChanged] = SimpleQueue()
        self.changes: SimpleQueue[Changed] = SimpleQueue()
        super().__init__(keeper.hosts, timeout_ms=TIMEOUT_MS, on_state=self.states.put, **more)

    def next_state(self) -> State:
        return self.states.get(timeout=WAIT_S_MAX).state

    def next_change(self) -> tuple[int, str]:
        event = self.changes.get(timeout=WAIT_S_MAX)
        return event.kind, event.path


@pytest.fixture
def client(headrace_keeper: Keeper) -> Iterator[Client]:
    with Client(headrace_keeper) as made:
        assert made.next_state() is State.CONNECTED
        yield made


def test_a_session_its_nodes_and_its_watches_outlive_a_kill(headrace_keeper: Keeper, client: Client) -> None:
    client.create("/mine", flags=codes.EPHEMERAL)
    client.create("/watched")
    client.get("/watched", client.changes.put)
    client.watch("/", client.changes.put)
    session, port = client.session_id, headrace_keeper.port
    headrace_keeper.kill()
    assert not headrace_keeper.running
    assert client.next_state() is State.CONNECTING
    headrace_keeper.restart()
    assert headrace_keeper.port == port
    assert client.next_state() is State.CONNECTED
    assert client.session_id == session
    stat = client.exists("/mine")
    assert stat is not None
    assert stat.owner == session
    client.set("/watched", b"again")
    assert [client.next_change()] == [(codes.NODE_DATA_CHANGED, "/watched")]


def test_what_changed_while_the_client_was_away_is_told_when_it_is_back(
    headrace_keeper: Keeper, client: Client
) -> None:
    client.create("/watched")
    client.get("/watched", client.changes.put)
    with Client(headrace_keeper) as other:
        other.await_connected(WAIT_S_MAX)
        headrace_keeper.kill()
        headrace_keeper.restart()
        other.await_connected(WAIT_S_MAX)
        eventually(lambda: _done(lambda: other.set("/watched", b"changed")), "the other one is back and has written")
    assert client.next_change() == (codes.NODE_DATA_CHANGED, "/watched")


def _done(work: Any) -> bool:
    try:
        work()
    except ZooKeeperError as error:
        if error.code != codes.CONNECTION_LOSS:
            raise
        return False
    return True


def test_dropped_connections_come_back_with_their_sessions(headrace_keeper: Keeper, client: Client) -> None:
    session = client.session_id
    assert headrace_keeper.drop_connections() == 1
    assert [client.next_state(), client.next_state()] == [State.CONNECTING, State.CONNECTED]
    assert headrace_keeper.sessions() == [session]


def test_an_expired_session_loses_its_nodes_and_is_told(headrace_keeper: Keeper, client: Client) -> None:
    client.create("/mine", flags=codes.EPHEMERAL)
    with Client(headrace_keeper) as other:
        assert other.exists("/mine", other.changes.put) is not None
        headrace_keeper.expire(client.session_id)
        assert other.next_change() == (codes.NODE_DELETED, "/mine")
    assert [client.next_state(), client.next_state()] == [State.CONNECTING, State.EXPIRED]
    with pytest.raises(ZooKeeperError) as error:
        client.get("/")
    assert error.value.code == codes.SESSION_EXPIRED


def test_a_session_that_is_not_open_cannot_be_expired(headrace_keeper: Keeper) -> None:
    with pytest.raises(HeadraceError, match="session 0x5 is not open; open are: none"):
        headrace_keeper.expire(5)


def test_a_paused_keeper_answers_when_it_goes_on(headrace_keeper: Keeper, client: Client) -> None:
    headrace_keeper.pause()
    answer = client.submit(requests.Read(codes.GET_DATA, "/", False))
    assert not answer.done()
    with pytest.raises(HeadraceError, match="paused"):
        headrace_keeper.sessions()
    headrace_keeper.resume()
    assert answer.result(WAIT_S_MAX) is not None


def test_a_session_is_resumed_by_another_process_and_closed(headrace_keeper: Keeper) -> None:
    first = Client(headrace_keeper)
    first.create("/mine", flags=codes.EPHEMERAL)
    kept = first.credentials
    first.abandon()
    with Client(headrace_keeper, resumed=kept) as second:
        assert second.next_state() is State.CONNECTED
        assert second.session_id == kept.id
    with Client(headrace_keeper) as third:
        assert third.exists("/mine") is None


def test_a_watcher_that_asks_the_client_is_told_why_it_cannot(headrace_keeper: Keeper, client: Client) -> None:
    failed: SimpleQueue[str] = SimpleQueue()

    def ask(event: Changed) -> None:
        try:
            client.get("/")
        except HeadraceError as error:
            failed.put(str(error))

    client.create("/a")
    client.get("/a", ask)
    client.set("/a", b"x")
    assert "must not wait for an answer" in failed.get(timeout=WAIT_S_MAX)


def test_watches_are_forgotten_without_a_server(headrace_keeper: Keeper, client: Client) -> None:
    client.create("/a")
    client.get("/a", client.changes.put)
    headrace_keeper.kill()
    assert client.forget_watches("/a", codes.WATCHER_ANY)
    assert client.next_change() == (codes.DATA_WATCH_REMOVED, "/a")
    assert not client.forget_watches("/a", codes.WATCHER_ANY)


def test_a_watcher_may_close_the_client(headrace_keeper: Keeper, client: Client) -> None:
    client.create("/a")
    client.get("/a", lambda event: client.close())
    client.set("/a", b"x")
    assert [client.next_state(), client.next_state()] == [State.CLOSING, State.CLOSED]
    assert headrace_keeper.sessions() == []


def test_a_client_without_a_server_fails_with_the_reason(headrace_keeper: Keeper) -> None:
    headrace_keeper.kill()
    with Client(headrace_keeper) as client, pytest.raises(ZooKeeperError, match="refused") as error:
        client.get("/")
    assert error.value.code == codes.CONNECTION_LOSS
