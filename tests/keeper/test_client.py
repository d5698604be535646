"""Our client against the keeper and against a real ZooKeeper: every call, and a server that is killed under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import pytest
import zookeeper
from ports import reserved_port
from waits import WAIT_S_MAX, eventually

from headrace.client.zookeeper.blocking import BlockingClient
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.client.zookeeper.events import Changed
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.acl import Acl, Identity, digest
from headrace.protocol.zookeeper.results import Created, StepFailed
from headrace.testing import Keeper

TIMEOUT_MS = 60_000  # of sessions that must not end, however slow the machine is
Result = TypeVar("Result")


class Server:
    """One of the two, on one port and one directory, over its restarts."""

    def __init__(self, port: int, open_it: Callable[[ExitStack], None]) -> None:
        self.hosts = f"127.0.0.1:{port}"
        self._open = open_it
        self._stack = ExitStack()

    def start(self) -> None:
        self._open(self._stack)

    def kill(self) -> None:
        self._stack.close()
        self._stack = ExitStack()


def _keeper(directory: Path, port: int) -> Callable[[ExitStack], None]:
    def start(stack: ExitStack) -> None:
        keeper = stack.enter_context(Keeper(str(directory), port=port, tick_ms=3000))
        stack.callback(keeper.kill)

    return start


def _zookeeper(directory: Path, port: int) -> Callable[[ExitStack], None]:
    return lambda stack: stack.enter_context(zookeeper.running(directory, port)) and None


@pytest.fixture(params=["keeper", "zookeeper"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "zookeeper" and (missing := zookeeper.missing_program()):
        pytest.skip(f"{missing} is not installed")
    with reserved_port() as port:
        kind = _keeper if request.param == "keeper" else _zookeeper
        made = Server(port, kind(tmp_path / "data", port))
        made.start()
        try:
            yield made
        finally:
            made.kill()


def code_of(work: Callable[[], object]) -> int:
    try:
        work()
    except ZooKeeperError as error:
        return error.code
    return codes.OK


def surely(work: Callable[[], Result]) -> Result:
    """Again and again while the connection is lost."""
    results: list[Result] = []

    def attempt() -> bool:
        try:
            results.append(work())
        except ZooKeeperError as error:
            if error.code != codes.CONNECTION_LOSS:
                raise
        return bool(results)

    eventually(attempt, "it is answered")
    return results[0]


def test_every_call_and_a_server_that_is_killed(server: Server) -> None:
    changes: SimpleQueue[Changed] = SimpleQueue()

    def changed() -> tuple[int, str]:
        event = changes.get(timeout=WAIT_S_MAX)
        return event.kind, event.path

    with BlockingClient(server.hosts, timeout_ms=TIMEOUT_MS) as client:
        _changes_and_reads(client)
        _who_may(client)
        client.create("/away", b"0")
        client.create("/mine", flags=codes.EPHEMERAL)
        client.get("/away", changes.put)
        client.children("/away", changes.put)
        client.exists("/later", changes.put)
        client.watch("/deep", changes.put)
        session = client.session_id

        server.kill()
        assert code_of(lambda: client.get("/away")) == codes.CONNECTION_LOSS
        server.start()
        with BlockingClient(server.hosts, timeout_ms=TIMEOUT_MS) as other:
            surely(lambda: other.set("/away", b"1"))
            assert changed() == (codes.NODE_DATA_CHANGED, "/away")
            other.create("/away/child")
            assert changed() == (codes.NODE_CHILDREN_CHANGED, "/away")
            other.create("/later")
            assert changed() == (codes.NODE_CREATED, "/later")
        assert surely(lambda: client.get("/away")).data == b"1"
        assert client.session_id == session
        found = client.exists("/mine")
        assert found is not None
        assert found.owner == session
        assert client.get("/own").data == b"secret", "who we are was shown again"
        client.create("/deep")
        client.create("/deep/below")
        assert [changed(), changed()] == [(codes.NODE_CREATED, "/deep"), (codes.NODE_CREATED, "/deep/below")]
        client.unwatch("/deep")
        assert changed() == (codes.PERSISTENT_WATCH_REMOVED, "/deep")
        assert code_of(lambda: client.unwatch("/deep")) == codes.NO_WATCHER
        assert changes.empty()
    with BlockingClient(server.hosts, timeout_ms=TIMEOUT_MS) as after:
        assert after.exists("/mine") is None, "closing ends a session at once"


def _changes_and_reads(client: BlockingClient) -> None:
    assert client.create("/a", b"x") == "/a"
    assert client.create("/a/s-", None, flags=codes.SEQUENTIAL) == "/a/s-0000000000"
    client.create("/c", flags=codes.CONTAINER)
    client.create("/ttl", flags=codes.WITH_TTL, ttl_ms=10_000_000)
    assert code_of(lambda: client.create("/a")) == codes.NODE_EXISTS
    assert code_of(lambda: client.create("/no/where")) == codes.NO_NODE
    assert code_of(lambda: client.delete("/a")) == codes.NOT_EMPTY
    assert client.set("/a", b"yy", version=0).version == 1
    assert code_of(lambda: client.set("/a", b"z", version=0)) == codes.BAD_VERSION
    data, stat = client.get("/a")
    assert (data, stat.version, stat.data_bytes, stat.children, stat.owner) == (b"yy", 1, 2, 1, 0)
    assert client.get("/a/s-0000000000").data is None
    children = client.children("/a")
    assert children.names == ["s-0000000000"]
    assert children.stat == client.exists("/a") == stat
    assert client.exists("/none") is None
    assert client.count_below("/a") == 1
    client.create("/e", flags=codes.EPHEMERAL)
    assert client.ephemerals() == ["/e"]
    client.sync("/")
    done = client.multi(
        (
            requests.Create(codes.CREATE, "/m", b"", (Acl(31, "world", "anyone"),), 0, -1),
            requests.SetData("/m", b"1", 0),
            requests.Check("/m", 1),
            requests.Delete("/m", 1),
        )
    )
    assert done[0] == Created("/m", None)
    assert done[2:] == [None, None]
    with pytest.raises(ZooKeeperError, match="/a has another version") as error:
        client.multi((requests.Delete("/e", -1), requests.Check("/a", 99)))
    assert (error.value.code, error.value.path) == (codes.BAD_VERSION, "/a")
    read = client.read_many(
        (requests.Read(codes.GET_CHILDREN, "/a", False), requests.Read(codes.GET_DATA, "/none", False))
    )
    assert read[0].names == ["s-0000000000"]  # type: ignore[union-attr]
    assert read[1] == StepFailed(codes.NO_NODE)


def _who_may(client: BlockingClient) -> None:
    own = (Acl(codes.ALL_PERMISSIONS, "digest", digest(b"ann:pw") or ""),)
    client.create("/own", b"secret", acl=own)
    assert code_of(lambda: client.get("/own")) == codes.NO_AUTH
    client.add_credentials("digest", b"ann:pw")
    assert client.get("/own").data == b"secret"
    assert client.acl("/own").acl == own
    assert client.set_acl("/own", own, version=0).acl_version == 1
    assert set(client.who_am_i()) == {Identity("ip", "127.0.0.1"), Identity("digest", "ann")}


def test_credentials_that_no_server_knows_end_the_session(server: Server) -> None:
    with BlockingClient(server.hosts, timeout_ms=TIMEOUT_MS) as client:
        client.get("/")
        client.add_credentials("nonsense", b"x")
        assert code_of(lambda: surely(lambda: client.get("/"))) in (codes.OK, codes.AUTH_FAILED)
        eventually(lambda: code_of(lambda: client.get("/")) == codes.AUTH_FAILED, "the session has ended")
