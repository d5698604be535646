"""kazoo, a client that we did not write: sessions, watches and recipes; a keeper that is killed under it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.recipe.barrier import DoubleBarrier
from kazoo.recipe.queue import LockingQueue
from raw_client import ClosedError, RawClient, acl_bytes
from waits import WAIT_S_MAX, eventually

from headrace import Keeper
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.jute import buffer_bytes, int_bytes, string_bytes

TIMEOUT_S = 60.0  # of sessions that must not end, however slow the machine is


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    with Keeper(tick_ms=3000, words="*") as running:
        yield running


def _client(keeper: Keeper, timeout_s: float = TIMEOUT_S) -> KazooClient:
    client = KazooClient(hosts=keeper.hosts, timeout=timeout_s)
    client.start(WAIT_S_MAX)
    return client


@pytest.fixture
def client(keeper: Keeper) -> Iterator[KazooClient]:
    client = _client(keeper)
    yield client
    client.stop()
    client.close()


def test_nodes_are_created_read_changed_and_deleted(client: KazooClient) -> None:
    assert client.create("/a", b"1") == "/a"
    with pytest.raises(NodeExistsError):
        client.create("/a")
    assert client.set("/a", b"2", version=0).version == 1
    with pytest.raises(BadVersionError):
        client.set("/a", b"3", version=0)
    client.create("/a/b/c", b"", makepath=True)
    with pytest.raises(NotEmptyError):
        client.delete("/a")
    assert client.get("/a")[0] == b"2"
    client.delete("/a", recursive=True)
    with pytest.raises(NoNodeError):
        client.get("/a")


def test_watches_report_each_change(client: KazooClient, keeper: Keeper) -> None:
    seen: list[list[str]] = []
    client.create("/members")
    client.ChildrenWatch("/members", lambda children: seen.append(sorted(children)))
    other = _client(keeper)
    other.create("/members/one", ephemeral=True)
    eventually(lambda: seen[-1:] == [["one"]], "the member is seen")
    other.stop()
    other.close()
    eventually(lambda: seen[-1:] == [[]], "that it left is seen")


def test_a_lock_is_held_by_one_at_a_time(keeper: Keeper) -> None:
    inside, most = [0], [0]

    def work() -> None:
        client = _client(keeper)
        for _ in range(5):
            with client.Lock("/lock"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1
        client.stop()
        client.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S_MAX)
    assert (most, inside) == ([1], [0])


def test_the_next_candidate_leads_when_the_leader_leaves(keeper: Keeper) -> None:
    leaders: list[str] = []
    clients = [_client(keeper) for _ in range(2)]
    go_on = [threading.Event(), threading.Event()]

    def lead(place: int) -> None:
        leaders.append(f"c{place}")
        go_on[place].wait(WAIT_S_MAX)

    threads = []
    for place, client in enumerate(clients):
        thread = threading.Thread(target=client.Election("/election", f"c{place}").run, args=(lead, place))
        thread.start()
        threads.append(thread)
        eventually(lambda: leaders == ["c0"], "the first one leads")
    go_on[0].set()
    eventually(lambda: leaders == ["c0", "c1"], "the second one leads")
    go_on[1].set()
    for thread, client in zip(threads, clients, strict=True):
        thread.join(WAIT_S_MAX)
        client.stop()
        client.close()


def test_counter_party_queue_and_barrier(keeper: Keeper, client: KazooClient) -> None:
    counter = client.Counter("/counter")
    for _ in range(3):
        counter += 2
    assert counter.value == 6
    party = client.Party("/party", "ann")
    party.join()
    assert list(party) == ["ann"]
    queue = LockingQueue(client, "/queue")
    queue.put_all([b"1", b"2"])
    assert (queue.get(), queue.consume()) == (b"1", True)
    barriers = [DoubleBarrier(_client(keeper), "/barrier", 2, str(place)) for place in range(2)]
    threads = [threading.Thread(target=lambda each=each: (each.enter(), each.leave())) for each in barriers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S_MAX)
        assert not thread.is_alive()
    for each in barriers:
        each.client.stop()
        each.client.close()


def test_what_was_answered_is_there_after_a_kill_and_the_session_goes_on(tmp_path: Path) -> None:
    with Keeper(str(tmp_path), tick_ms=3000) as keeper:
        client = _client(keeper)
        client.create("/kept", b"")
        client.create("/mine", b"", ephemeral=True)
        session = client.client_id[0]
        for number in range(5):
            client.set("/kept", b"%d" % number)
            keeper.kill()
            keeper.start()
            assert client.retry(client.get, "/kept")[0] == b"%d" % number
        assert client.client_id[0] == session
        assert client.exists("/mine").ephemeralOwner == session
        client.stop()
        client.close()
        assert "/mine" not in keeper.node.machine.tree.nodes


def test_the_ephemeral_nodes_of_a_silent_session_go_when_its_time_is_over() -> None:
    with Keeper(tick_ms=50) as keeper:
        path = string_bytes("/e") + buffer_bytes(b"") + acl_bytes() + int_bytes(1)

        def one_with_a_node() -> RawClient | None:
            client = RawClient(keeper.port, timeout_ms=100)
            try:
                return client if client.ask(codes.CREATE, path).error == codes.OK else None
            except ClosedError:  # on a slow machine its time was over before
                return None

        silent = eventually(one_with_a_node, "a session has its node")
        eventually(lambda: "/e" not in keeper.node.machine.tree.nodes, "the node goes")
        with pytest.raises(ClosedError):
            silent.receive()
        back = RawClient(keeper.port, session=silent.session, password=silent.password)
        assert (back.session, back.timeout_ms) == (0, 0)


WORDS = {
    "ruok": "imok",
    "srvr": "Mode: standalone",
    "stat": "Clients:",
    "mntr": "zk_znode_count\t5",
    "conf": "clientPort=",
    "cons": "sid=0x",
    "dump": "Sessions with Ephemerals (0)",
    "wchs": "Total watches:1",
    "wchc": "\t/watched",
    "wchp": "/watched\n\t0x",
    "envi": "zookeeper.version=3.9",
    "isro": "rw",
    "dirs": "logdir_size: ",
    "crst": "Connection stats reset.",
    "srst": "Server stats reset.",
}


@pytest.mark.parametrize("word", WORDS)
def test_four_letter_words_are_answered(client: KazooClient, word: str) -> None:
    client.exists("/watched", watch=lambda event: None)
    assert WORDS[word] in client.command(word.encode())


def test_a_word_that_is_not_allowed_says_so() -> None:
    with Keeper() as keeper:
        client = _client(keeper)
        assert client.command(b"dump") == "dump is not executed because it is not in the whitelist.\n"
        client.stop()
        client.close()
