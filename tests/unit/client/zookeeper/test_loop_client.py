"""The client on a loop, against a keeper: callbacks in order, a server that goes away, time that is moved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from waits import WAIT_S_MAX, eventually

from headrace.client.zookeeper.blocking import BlockingClient
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.client.zookeeper.events import Changed, StateChanged
from headrace.client.zookeeper.on_loop import LoopClient
from headrace.client.zookeeper.session import Resumed
from headrace.client.zookeeper.states import State
from headrace.core.clock import Clock, ManualClock, SystemClock
from headrace.net.reactor import Reactor
from headrace.net.workers import Workers
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.acl import OPEN
from headrace.testing import Keeper, loop_access

TIMEOUT_MS = 60_000


def create(path: str, flags: int = 0) -> requests.Create:
    return requests.Create(codes.CREATE, path, b"x", OPEN, flags, -1)


def read(path: str, kind: int = codes.GET_DATA, *, watch: bool = False) -> requests.Read:
    return requests.Read(kind, path, watch)


class Rig:
    """A loop on a thread, and clients on it. Everything that they are told comes to one queue."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self.reactor = Reactor()
        self._resolving = Workers("resolving", 1, self.reactor)
        self.told: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self.reactor.run, daemon=True)
        self._thread.start()

    def client(self, hosts: str = "", resumed: Resumed | None = None, clock: Clock | None = None) -> LoopClient:
        def make() -> LoopClient:
            made = LoopClient(
                self.reactor,
                self._resolving,
                clock or SystemClock(),
                hosts or self._hosts,
                timeout_ms=TIMEOUT_MS,
                resumed=resumed,
                on_state=self.told.put,
            )
            made.start()
            return made

        return self.on_loop(make)

    def on_loop(self, work: Callable[[], Any]) -> Any:
        return loop_access.call(self.reactor, work)

    def next(self) -> Any:
        told = self.told.get(timeout=WAIT_S_MAX)
        return told.state if isinstance(told, StateChanged) else told

    def done(self, name: str) -> Callable[[Any, Any], None]:
        return lambda result, error: self.told.put((name, result, error))

    def close(self) -> None:
        self.reactor.stop()
        self._thread.join(WAIT_S_MAX)
        self._resolving.close()
        self.reactor.close()


@pytest.fixture
def rig(headrace_keeper: Keeper) -> Iterator[Rig]:
    made = Rig(headrace_keeper.hosts)
    yield made
    made.close()


@pytest.fixture
def client(rig: Rig) -> LoopClient:
    made = rig.client()
    assert rig.next() is State.CONNECTED
    return made


def test_answers_come_in_the_order_of_the_questions_and_events_before_what_shows_the_change(
    rig: Rig, client: LoopClient
) -> None:
    def ask() -> None:
        client.ask(create("/a"), rig.done("create"))
        client.ask(read("/a", watch=True), rig.done("get"), rig.told.put)
        client.ask(requests.SetData("/a", b"y", -1), rig.done("set"))
        client.ask(read("/a"), rig.done("again"))

    rig.on_loop(ask)
    told = [rig.next() for _ in range(5)]
    assert [each[0] for each in (told[0], told[1], told[3], told[4])] == ["create", "get", "set", "again"]
    assert isinstance(told[2], Changed)
    assert (told[2].kind, told[2].path) == (codes.NODE_DATA_CHANGED, "/a")
    assert (told[1][1].data, told[4][1].data) == (b"x", b"y")


def test_a_multi_is_all_or_nothing_and_names_the_step_that_failed(rig: Rig, client: LoopClient) -> None:
    rig.on_loop(lambda: client.multi((create("/a"), create("/a/b")), rig.done("both")))
    name, result, error = rig.next()
    assert (name, len(result.steps), error) == ("both", 2, None)
    rig.on_loop(lambda: client.multi((create("/c"), requests.Check("/a", 7)), rig.done("none")))
    name, result, error = rig.next()
    assert (result, error.code, error.path) == (None, codes.BAD_VERSION, "/a")


def test_a_callback_may_ask_more_and_one_that_fails_stops_nobody(rig: Rig, client: LoopClient) -> None:
    def first(result: Any, error: Any) -> None:
        client.ask(create("/second"), rig.done("second"))
        raise RuntimeError("a bug of the caller")

    rig.on_loop(lambda: client.ask(create("/first"), first))
    assert rig.next()[0] == "second"


def test_a_keeper_that_restarts_keeps_session_and_watches(
    rig: Rig, client: LoopClient, headrace_keeper: Keeper
) -> None:
    rig.on_loop(lambda: client.ask(create("/mine", codes.EPHEMERAL), rig.done("mine")))
    rig.next()
    rig.on_loop(
        lambda: client.ask(requests.AddWatch("/", codes.PERSISTENT_RECURSIVE_WATCH), rig.done("watch"), rig.told.put)
    )
    rig.next()
    session = client.credentials.id
    headrace_keeper.kill()
    assert rig.next() is State.CONNECTING
    headrace_keeper.restart()
    assert rig.next() is State.CONNECTED
    assert headrace_keeper.sessions() == [session] == [client.credentials.id]
    rig.on_loop(lambda: client.ask(create("/new"), rig.done("new")))
    event = rig.next()
    assert (event.kind, event.path) == (codes.NODE_CREATED, "/new")
    assert rig.next()[0] == "new"


def test_what_is_asked_without_a_server_fails_and_later_questions_are_answered(
    rig: Rig, client: LoopClient, headrace_keeper: Keeper
) -> None:
    headrace_keeper.kill()
    assert rig.next() is State.CONNECTING
    rig.on_loop(lambda: client.ask(read("/"), rig.done("get")))
    name, result, error = rig.next()
    assert (name, result, error.code) == ("get", None, codes.CONNECTION_LOSS)
    headrace_keeper.restart()
    assert rig.next() is State.CONNECTED
    rig.on_loop(lambda: client.ask(read("/"), rig.done("get")))
    assert rig.next()[2] is None


def test_an_expired_session_refuses_everything(rig: Rig, client: LoopClient, headrace_keeper: Keeper) -> None:
    headrace_keeper.expire(client.credentials.id)
    assert [rig.next(), rig.next()] == [State.CONNECTING, State.EXPIRED]
    rig.on_loop(lambda: client.ask(read("/"), rig.done("get")))
    _, _, error = rig.next()
    assert isinstance(error, ZooKeeperError)
    assert error.code == codes.SESSION_EXPIRED


def test_an_old_session_is_resumed_and_closed_so_that_its_nodes_are_gone_at_once(
    rig: Rig, client: LoopClient, headrace_keeper: Keeper
) -> None:
    """How a broker starts after kill -9."""
    rig.on_loop(lambda: client.ask(create("/mine", codes.EPHEMERAL), rig.done("mine")))
    rig.next()
    kept = client.credentials
    rig.on_loop(client.abandon)
    again = rig.client(resumed=kept)
    assert rig.next() is State.CONNECTED
    rig.on_loop(again.close)
    assert [rig.next(), rig.next()] == [State.CLOSING, State.CLOSED]
    assert headrace_keeper.sessions() == []
    assert "/mine" not in headrace_keeper.node.machine.tree.nodes
    eventually(lambda: not rig.reactor.end_of_turn, "nothing of the two clients stays in the loop")


def test_another_server_is_found_when_one_is_away(rig: Rig, headrace_keeper: Keeper) -> None:
    other = rig.client(f"127.0.0.1:1,no.such.host.invalid:2181,{headrace_keeper.hosts}")
    assert rig.next() is State.CONNECTED
    rig.on_loop(lambda: other.ask(read("/"), rig.done("get")))
    assert rig.next()[2] is None


def test_much_is_asked_at_once_and_all_is_answered(rig: Rig, client: LoopClient) -> None:
    def ask() -> None:
        client.ask(create("/many"), lambda *_: None)
        for number in range(900):
            data = b"d" * 5000
            client.ask(requests.Create(codes.CREATE, f"/many/{number}", data, OPEN, 0, -1), rig.done(str(number)))

    rig.on_loop(ask)
    assert [rig.next()[0] for _ in range(900)] == [str(number) for number in range(900)]


def test_more_than_the_bound_is_refused_by_the_callback(rig: Rig, client: LoopClient, headrace_keeper: Keeper) -> None:
    headrace_keeper.pause()

    def ask() -> None:
        for number in range(1001):
            client.ask(read("/"), rig.done(str(number)))

    rig.on_loop(ask)
    name, _, error = rig.next()
    assert name == "1000"
    assert "the limits are 1000" in str(error)
    headrace_keeper.resume()
    assert [rig.next()[0] for _ in range(1000)] == [str(number) for number in range(1000)]


def test_a_loop_that_was_held_up_reads_before_it_takes_anybody_for_silent(rig: Rig, headrace_keeper: Keeper) -> None:
    clock = ManualClock()
    client = rig.client(clock=clock)
    assert rig.next() is State.CONNECTED
    rig.on_loop(lambda: client.ask(read("/", codes.GET_CHILDREN, watch=True), rig.done("get"), rig.told.put))
    assert rig.next()[0] == "get"

    def be_held_up() -> None:
        with BlockingClient(headrace_keeper.hosts) as other:
            other.create("/a")  # what is answered here was told to the one that watches before
        clock.advance(client.timeout_ms)
        rig.reactor.advance(client.timeout_ms / 1000)  # its timer is due in this very turn

    rig.on_loop(be_held_up)
    event = rig.next()
    assert (event.kind, event.path) == (codes.NODE_CHILDREN_CHANGED, "/")
    rig.on_loop(lambda: client.ask(read("/"), rig.done("get")))
    assert rig.next()[0] == "get", "on the same connection"


def test_an_abandoned_client_says_nothing_more(rig: Rig, client: LoopClient, headrace_keeper: Keeper) -> None:
    rig.on_loop(lambda: (client.ask(read("/"), rig.done("get")), client.abandon()))
    eventually(lambda: not headrace_keeper.node.server.connections, "its connection is closed")
    assert rig.told.empty()
    eventually(lambda: not rig.reactor.end_of_turn, "nothing of it stays in the loop")
