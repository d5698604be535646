"""The keeper without sockets and disk: requests in, outputs and transactions out."""

import tracemalloc
from typing import Any

import pytest

from headrace.keeper.machine import IDENTITIES_MAX, Machine
from headrace.keeper.peers import Peer
from headrace.keeper.reading import MULTI_READ_BYTES_MAX
from headrace.keeper.sessions import Sessions
from headrace.keeper.transactions import Transaction, apply_again, decode
from headrace.keeper.tree import Tree
from headrace.protocol.zookeeper import answers, codes, requests
from headrace.protocol.zookeeper.acl import OPEN, Acl, digest
from headrace.protocol.zookeeper.jute import Reader, string_bytes


class Rig:
    def __init__(self, **settings: Any) -> None:
        sessions = Sessions(b"secret", timeout_ms_min=1000, timeout_ms_max=10_000)
        self.machine = Machine(Tree(), sessions, super_digest=digest(b"super:pw"), **settings)
        self.machine.at(1_700_000_000_000, 0)
        self.log: list[Transaction] = []
        self._xid = 0

    def client(self, timeout_ms: int = 4000) -> Peer:
        peer = Peer("127.0.0.1")
        self.machine.connect(peer, requests.Connect(0, 0, timeout_ms, 0, b"", False))
        self.take()
        return peer

    def take(self) -> list[tuple[Peer, bytes | None]]:
        self.log += [decode(each.data) for each in self.machine.take_staged()]
        return [(output.peer, output.frame) for output in self.machine.outputs.take()]

    def ask(self, peer: Peer, request: requests.Request) -> tuple[int, bytes]:
        """The error and the body of the answer, which comes last."""
        self._xid += 1
        self.machine.request(peer, self._xid, request)
        frame = [frame for to, frame in self.take() if to is peer and frame is not None][-1]
        reader = Reader(frame, 4)
        reader.int32()
        reader.int64()
        return reader.int32(), frame[20:]

    def create(self, peer: Peer, path: str, flags: int = 0, acl: tuple[Acl, ...] = OPEN, data: bytes = b"") -> int:
        return self.ask(peer, requests.Create(codes.CREATE, path, data, acl, flags, -1))[0]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def _read(kind: int, path: str, watch: bool = False) -> requests.Read:
    return requests.Read(kind, path, watch)


def test_a_sequence_number_counts_all_creates_under_the_parent(rig: Rig) -> None:
    peer = rig.client()
    assert rig.create(peer, "/p") == codes.OK
    assert rig.create(peer, "/p/plain") == codes.OK
    assert rig.ask(peer, requests.Delete("/p/plain", -1))[0] == codes.OK
    error, body = rig.ask(peer, requests.Create(codes.CREATE, "/p/s-", b"", OPEN, 2, -1))
    assert (error, Reader(body).string()) == (codes.OK, "/p/s-0000000001")


def test_the_visible_cversion_grows_with_creates_and_deletes(rig: Rig) -> None:
    peer = rig.client()
    rig.create(peer, "/p")
    rig.create(peer, "/p/a")
    rig.create(peer, "/p/b")
    rig.ask(peer, requests.Delete("/p/a", -1))
    stat = rig.ask(peer, _read(codes.EXISTS, "/p"))[1]
    assert int.from_bytes(stat[36:40], "big") == 3
    assert int.from_bytes(stat[60:68], "big") == rig.machine.tree.last_zxid  # a delete moves the parent's pzxid


def test_one_large_node_is_not_read_without_end_in_one_request(rig: Rig) -> None:
    peer = rig.client()
    rig.create(peer, "/large", data=bytes(1 << 20))
    few, many = (requests.MultiRead((_read(codes.GET_DATA, "/large"),) * count) for count in (3, 1_000))
    error, body = rig.ask(peer, few)
    assert error == codes.OK
    assert len(body) > 3 << 20
    tracemalloc.start()
    try:
        error, body = rig.ask(peer, many)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (error, body) == (codes.MARSHALLING_ERROR, b"")
    assert peak_bytes < 2 * MULTI_READ_BYTES_MAX


def test_a_failed_multi_changes_nothing_and_says_which_step_failed(rig: Rig) -> None:
    peer = rig.client()
    rig.create(peer, "/a", data=b"old")
    before = dict(rig.machine.tree.nodes)
    steps = (
        requests.SetData("/a", b"new", -1),
        requests.Create(codes.CREATE, "/b", b"", OPEN, 1, -1),
        requests.Delete("/missing", -1),
        requests.Check("/a", 0),
    )
    error, body = rig.ask(peer, requests.Multi(steps))
    reader = Reader(body)
    results = []
    while True:
        kind, done, code = reader.int32(), reader.boolean(), reader.int32()
        if done:
            break
        assert (kind, reader.int32()) == (codes.ERROR, code)
        results.append(code)
    assert (error, results) == (codes.OK, [0, 0, codes.NO_NODE, codes.RUNTIME_INCONSISTENCY])
    assert rig.machine.tree.nodes == before
    assert rig.machine.tree.ephemerals == {}


def test_every_change_takes_the_next_zxid_refused_ones_too(rig: Rig) -> None:
    peer = rig.client()
    rig.create(peer, "/a")
    assert rig.create(peer, "/a") == codes.NODE_EXISTS
    rig.ask(peer, requests.Multi((requests.Delete("/missing", -1),)))
    rig.create(peer, "/b")
    assert [each.zxid for each in rig.log] == [1, 2, 3, 4, 5]


def test_applying_the_log_again_gives_the_same_tree(rig: Rig) -> None:
    one, other = rig.client(), rig.client()
    rig.create(one, "/a", data=b"1")
    rig.create(other, "/a/e", flags=1)
    rig.ask(one, requests.SetData("/a", b"2", 0))
    rig.ask(one, requests.SetAcl("/a", (Acl(31, "world", "anyone"), Acl(1, "ip", "10.0.0.0/8")), -1))
    rig.ask(one, requests.Multi((requests.Create(codes.CREATE, "/b", b"", OPEN, 4, -1), requests.Delete("/a/e", -1))))
    rig.create(other, "/e2", flags=1)
    rig.ask(other, requests.Plain(codes.CLOSE_SESSION))
    tree = Tree()
    for transaction in rig.log:
        apply_again(tree, transaction)
    ours = rig.machine.tree
    stats = {path: (node.data, node.acl, ours.stat(path, node)) for path, node in ours.nodes.items()}
    assert {path: (node.data, node.acl, tree.stat(path, node)) for path, node in tree.nodes.items()} == stats
    assert (tree.last_zxid, tree.containers, tree.ephemerals) == (ours.last_zxid, ours.containers, ours.ephemerals)


def test_an_event_comes_before_any_answer_that_shows_the_change(rig: Rig) -> None:
    watcher, writer = rig.client(), rig.client()
    rig.create(writer, "/a")
    rig.ask(watcher, _read(codes.GET_DATA, "/a", watch=True))
    rig.machine.request(writer, 100, requests.SetData("/a", b"x", -1))
    rig.machine.request(watcher, 101, _read(codes.GET_DATA, "/a"))
    frames = [frame for peer, frame in rig.take() if peer is watcher]
    assert frames[0] == answers.notification(codes.NODE_DATA_CHANGED, "/a", rig.machine.tree.last_zxid)
    assert len(frames) == 2


def test_a_child_watch_does_not_report_a_childs_data(rig: Rig) -> None:
    watcher, writer = rig.client(), rig.client()
    rig.create(writer, "/p")
    rig.create(writer, "/p/c")
    rig.ask(watcher, _read(codes.GET_CHILDREN, "/p", watch=True))
    rig.machine.request(writer, 1, requests.SetData("/p/c", b"x", -1))
    assert [peer for peer, _ in rig.take()] == [writer]
    rig.machine.request(writer, 2, requests.Delete("/p/c", -1))
    assert [peer for peer, _ in rig.take()] == [watcher, writer]


def test_a_watcher_of_data_and_children_hears_of_a_deletion_once(rig: Rig) -> None:
    watcher, writer = rig.client(), rig.client()
    rig.create(writer, "/p")
    rig.ask(watcher, _read(codes.GET_DATA, "/p", watch=True))
    rig.ask(watcher, _read(codes.GET_CHILDREN, "/p", watch=True))
    rig.ask(watcher, requests.AddWatch("/", codes.PERSISTENT_RECURSIVE_WATCH))
    rig.machine.request(writer, 1, requests.Delete("/p", -1))
    assert [peer for peer, _ in rig.take()] == [watcher, writer]


def test_an_expired_session_loses_its_ephemeral_nodes_once(rig: Rig) -> None:
    silent, other = rig.client(timeout_ms=2000), rig.client(timeout_ms=8000)
    rig.create(silent, "/e", flags=1)
    rig.machine.at(1_700_000_003_000, 3000)
    assert rig.machine.expire() == 1
    assert rig.ask(other, _read(codes.EXISTS, "/e"))[0] == codes.NO_NODE
    assert rig.machine.expire() == 0
    rig.machine.request(silent, 9, _read(codes.EXISTS, "/"))
    assert rig.take() == []  # it was closed, and nothing more is taken from it


def test_a_session_moves_to_its_new_connection_only_with_its_password(rig: Rig) -> None:
    first = rig.client()
    session = first.session
    assert session is not None
    stranger = Peer("127.0.0.1")
    rig.machine.connect(stranger, requests.Connect(0, 0, 4000, session.id, b"0" * 16, False))
    assert stranger.session is None
    assert [frame for _, frame in rig.take()][-1] is None
    second = Peer("127.0.0.1")
    password = rig.machine.sessions.password(session.id)
    rig.machine.connect(second, requests.Connect(0, 0, 4000, session.id, password, False))
    assert second.session is session
    assert (first, None) in rig.take()


def test_a_client_that_has_seen_a_later_state_is_refused(rig: Rig) -> None:
    peer = Peer("127.0.0.1")
    rig.machine.connect(peer, requests.Connect(0, 99, 4000, 0, b"", False))
    assert rig.take() == [(peer, None)]
    assert rig.log == []


def test_missed_changes_are_told_when_watches_are_set_again(rig: Rig) -> None:
    peer = rig.client()
    rig.create(peer, "/same")
    rig.create(peer, "/changed")
    seen = rig.machine.tree.last_zxid
    rig.ask(peer, requests.SetData("/changed", b"x", -1))
    asked = requests.SetWatches(seen, ["/same", "/changed", "/gone"], ["/same"], [], [], [])
    rig.machine.request(peer, codes.SET_WATCHES_XID, asked)
    events = [Reader(frame or b"", 20) for _, frame in rig.take()][:-1]
    told = [(event.int32(), event.int32(), event.string()) for event in events]
    assert told == [(3, 3, "/changed"), (2, 3, "/gone"), (1, 3, "/same")]
    assert rig.machine.watching.watches.has(codes.WATCHER_DATA, "/same", peer)


def test_a_node_is_closed_to_those_who_have_not_shown_its_digest(rig: Rig) -> None:
    owner, stranger, root = rig.client(), rig.client(), rig.client()
    rig.ask(owner, requests.Auth("digest", b"ann:pw"))
    assert rig.create(owner, "/mine", acl=(Acl(31, "auth", ""),)) == codes.OK
    assert rig.ask(stranger, _read(codes.GET_DATA, "/mine"))[0] == codes.NO_AUTH
    assert rig.ask(owner, _read(codes.GET_DATA, "/mine"))[0] == codes.OK
    rig.ask(root, requests.Auth("digest", b"super:pw"))
    assert rig.ask(root, _read(codes.GET_DATA, "/mine"))[0] == codes.OK


def test_a_digest_is_hidden_from_who_may_not_administer(rig: Rig) -> None:
    owner, stranger = rig.client(), rig.client()
    rig.ask(owner, requests.Auth("digest", b"ann:pw"))
    rig.create(owner, "/own", acl=(Acl(1, "world", "anyone"), Acl(31, "auth", "")))
    secret = (digest(b"ann:pw") or "").partition(":")[2].encode()
    assert secret in rig.ask(owner, _read(codes.GET_ACL, "/own"))[1]
    error, shown = rig.ask(stranger, _read(codes.GET_ACL, "/own"))
    assert error == codes.OK
    assert secret not in shown
    assert b"ann:x" in shown


def test_containers_go_when_their_last_child_has_and_mortals_when_their_time_is_over(rig: Rig) -> None:
    peer = rig.client()
    rig.ask(peer, requests.Create(codes.CREATE_CONTAINER, "/c", b"", OPEN, 4, -1))
    rig.ask(peer, requests.Create(codes.CREATE_TTL, "/t", b"", OPEN, 5, 1000))
    assert rig.machine.clear() == 0
    rig.create(peer, "/c/x")
    rig.ask(peer, requests.Delete("/c/x", -1))
    rig.machine.at(rig.machine.wall_ms + 1001, 1001)
    assert rig.machine.clear() == 2
    assert rig.ask(peer, _read(codes.EXISTS, "/c"))[0] == codes.NO_NODE


def test_a_hard_quota_refuses_what_would_go_beyond_it(rig: Rig) -> None:
    peer = rig.client()
    for path in ("/q", "/zookeeper/quota/q"):
        assert rig.create(peer, path) == codes.OK
    rig.create(peer, "/zookeeper/quota/q/zookeeper_limits", data=b"count=-1,bytes=-1;countHardLimit=2;byteHardLimit=5")
    assert rig.create(peer, "/q/a") == codes.OK
    assert rig.create(peer, "/q/b") == codes.QUOTA_EXCEEDED
    assert rig.ask(peer, requests.SetData("/q/a", b"123456", -1))[0] == codes.QUOTA_EXCEEDED
    assert rig.ask(peer, requests.SetData("/q/a", b"12345", -1))[0] == codes.OK


def _limited(rig: Rig, limits: bytes) -> Peer:
    peer = rig.client()
    for path in ("/q", "/zookeeper/quota/q"):
        assert rig.create(peer, path) == codes.OK
    rig.create(peer, "/zookeeper/quota/q/zookeeper_limits", data=limits)
    return peer


def test_a_soft_quota_lets_happen_what_is_beyond_it_and_is_told(rig: Rig) -> None:
    peer = _limited(rig, b"count=2,bytes=5")
    assert rig.create(peer, "/q/a", data=b"12345") == codes.OK
    assert rig.machine.quotas.take_passed() == {}
    assert rig.create(peer, "/q/b") == codes.OK
    assert rig.machine.quotas.take_passed() == {"/q": "count is 3, the limit is 2"}
    assert rig.ask(peer, requests.SetData("/q/b", b"6", -1))[0] == codes.OK
    assert rig.machine.quotas.take_passed() == {"/q": "bytes is 6, the limit is 5"}
    assert rig.machine.quotas.take_passed() == {}


def test_quotas_that_are_not_enforced_refuse_and_tell_nothing() -> None:
    rig = Rig(quota_enforced=False)
    peer = _limited(rig, b"count=1,bytes=1;countHardLimit=1;byteHardLimit=1")
    assert rig.create(peer, "/q/a", data=b"12345") == codes.OK
    assert rig.machine.quotas.take_passed() == {}


@pytest.mark.parametrize(("enabled", "code"), [(False, codes.RECONFIG_DISABLED), (True, codes.UNIMPLEMENTED)])
def test_reconfig_is_refused_and_takes_a_zxid(enabled: bool, code: int) -> None:
    rig = Rig(reconfig_enabled=enabled)
    peer, before = rig.client(), rig.machine.tree.last_zxid
    assert rig.ask(peer, requests.Plain(codes.RECONFIG))[0] == code
    assert rig.machine.tree.last_zxid == before + 1
    assert rig.create(peer, "/a") == codes.OK


def test_an_unknown_operation_is_answered_and_the_connection_stays(rig: Rig) -> None:
    peer = rig.client()
    assert rig.ask(peer, requests.Unknown(9999))[0] == codes.UNIMPLEMENTED
    assert rig.ask(peer, _read(codes.EXISTS, "/"))[0] == codes.OK


def test_a_full_disk_refuses_changes_and_serves_reads(rig: Rig) -> None:
    peer = rig.client()
    rig.machine.has_room = lambda: False
    assert rig.create(peer, "/a") == -1
    assert rig.ask(peer, _read(codes.EXISTS, "/"))[0] == codes.OK
    rig.machine.has_room = lambda: True
    assert rig.create(peer, "/a") == codes.OK


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/../b", "/\u0001", "/\ue000", "/\U0001f600"])
def test_a_bad_path_is_refused(rig: Rig, path: str) -> None:
    assert rig.create(rig.client(), path) in (codes.BAD_ARGUMENTS, codes.NO_NODE)
    assert string_bytes("/") not in [string_bytes(each) for each in rig.machine.tree.nodes if each == path]
    assert set(rig.machine.tree.nodes) == {"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"}


def test_sessions_are_bounded() -> None:
    machine = Machine(Tree(), Sessions(b"secret", timeout_ms_min=1000, timeout_ms_max=10_000), sessions_max=2)
    peers = [Peer("127.0.0.1") for _ in range(3)]
    for peer in peers:
        machine.connect(peer, requests.Connect(0, 0, 4000, 0, b"", False))
    assert [peer.session is not None for peer in peers] == [True, True, False]
    assert peers[2].refused
    machine.close_session(peers[0].session.id if peers[0].session else 0, 1)
    last = Peer("127.0.0.1")
    machine.connect(last, requests.Connect(0, 0, 4000, 0, b"", False))
    assert last.session is not None


def test_a_connection_shows_a_bounded_number_of_identities(rig: Rig) -> None:
    peer = rig.client()
    for number in range(IDENTITIES_MAX - 1):
        assert rig.ask(peer, requests.Auth("digest", b"user:%d" % number))[0] == codes.OK
    assert rig.ask(peer, requests.Auth("digest", b"user:0"))[0] == codes.OK  # which it has shown already
    assert rig.ask(peer, requests.Auth("digest", b"one:more"))[0] == codes.AUTH_FAILED
    assert peer.refused


def test_the_paths_that_a_connection_watches_are_bounded_in_length(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.keeper.watching.WATCHED_CHARACTERS_MAX", 30)
    peer = rig.client()
    assert rig.ask(peer, _read(codes.EXISTS, "/" + "a" * 19, watch=True))[0] == codes.NO_NODE
    assert rig.ask(peer, _read(codes.EXISTS, "/" + "b" * 19, watch=True))[0] == codes.THROTTLED
    assert rig.ask(peer, requests.SetWatches(0, [], ["/" + "c" * 19], [], [], []))[0] == codes.THROTTLED
    rig.create(peer, "/" + "a" * 19)  # which takes the watch away
    assert rig.ask(peer, _read(codes.EXISTS, "/" + "b" * 19, watch=True))[0] == codes.NO_NODE
    assert rig.machine.watching.watches.characters_of(peer) == 20


def test_an_event_is_made_once_for_all_who_watch(rig: Rig) -> None:
    watchers = [rig.client() for _ in range(5)]
    for peer in watchers:
        rig.ask(peer, _read(codes.EXISTS, "/a", watch=True))
    writer = rig.client()
    rig.machine.request(writer, 1, requests.Create(codes.CREATE, "/a", b"", OPEN, 0, -1))
    events = [(peer, frame) for peer, frame in rig.take() if peer is not writer]
    assert [peer for peer, _ in events] == watchers
    assert len({id(frame) for _, frame in events}) == 1
    assert rig.machine.watching.watches.count == 0


def test_a_bug_amid_a_multi_leaves_nothing_behind(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = rig.client()
    before, zxid = dict(rig.machine.tree.nodes), rig.machine.tree.last_zxid
    steps = (
        requests.Create(codes.CREATE, "/a", b"", OPEN, 0, -1),
        requests.Create(codes.CREATE, "/b", b"", OPEN, 0, -1),
    )
    with monkeypatch.context() as patch:
        patch.setattr("headrace.keeper.transactions.encode", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rig.machine.request(peer, 1, requests.Multi(steps))
    assert (dict(rig.machine.tree.nodes), rig.machine.tree.last_zxid) == (before, zxid)
    assert rig.take() == []
    assert rig.create(peer, "/a") == codes.OK


def test_lists_of_who_may_do_what_count_as_memory(rig: Rig) -> None:
    peer = rig.client()
    rig.create(peer, "/a")
    before = rig.machine.tree.bytes
    rig.ask(peer, requests.SetAcl("/a", tuple(Acl(1, "ip", f"10.0.0.{number}") for number in range(100)), -1))
    assert rig.machine.tree.bytes - before > 10_000


def test_expired_nodes_are_looked_for_in_rotation(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.keeper.machine.LOOKED_AT_PER_TURN", 3)
    peer = rig.client()
    for number in range(8):
        rig.ask(peer, requests.Create(codes.CREATE_TTL, f"/t{number}", b"", OPEN, 5, 100))
    rig.machine.at(rig.machine.wall_ms + 101, 101)
    removed = [rig.machine.clear() for _ in range(5)]
    assert sum(removed) == 8
    assert max(removed) == 3


@pytest.mark.parametrize("number", ["--5", "\u00b2", "9" * 5_000, "-", ""])
def test_a_limit_that_is_no_number_is_none(rig: Rig, number: str) -> None:
    peer = rig.client()
    for path in ("/q", "/zookeeper/quota/q"):
        rig.create(peer, path)
    limits = f"countHardLimit={number};byteHardLimit=5".encode()
    assert rig.create(peer, "/zookeeper/quota/q/zookeeper_limits", data=limits) == codes.OK
    assert rig.create(peer, "/q/a", data=b"1") == codes.OK
    assert rig.create(peer, "/q/b", data=b"12345") == codes.QUOTA_EXCEEDED


def test_what_a_quota_limits_is_counted_once_and_kept_in_step(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = rig.client()
    rig.create(peer, "/q")
    rig.create(peer, "/q/a", data=b"12345")
    for path in ("/zookeeper/quota/q", "/zookeeper/quota/q/zookeeper_limits"):
        rig.create(peer, path, data=b"count=-1,bytes=-1,countHardLimit=4,byteHardLimit=20")
    assert rig.create(peer, "/q/b", data=b"12345") == codes.OK
    monkeypatch.setattr(Tree, "below", lambda *_: pytest.fail("it is counted again"))
    assert rig.ask(peer, requests.SetData("/q/b", b"1" * 16, -1))[0] == codes.QUOTA_EXCEEDED
    assert rig.ask(peer, requests.SetData("/q/b", b"1" * 15, -1))[0] == codes.OK
    assert rig.create(peer, "/q/c") == codes.OK
    assert rig.create(peer, "/q/d") == codes.QUOTA_EXCEEDED
    steps = (requests.Delete("/q/c", -1), requests.SetData("/q/b", b"", -1), requests.Delete("/missing", -1))
    rig.ask(peer, requests.Multi(steps))  # refused, and taken back
    assert rig.create(peer, "/q/d") == codes.QUOTA_EXCEEDED
    assert rig.ask(peer, requests.Delete("/q/c", -1))[0] == codes.OK
    assert rig.create(peer, "/q/d") == codes.OK
    assert (rig.machine.tree.usage["/q"].nodes, rig.machine.tree.usage["/q"].size) == (4, 20)


def test_a_plain_node_in_the_place_of_a_container_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.keeper.machine.LOOKED_AT_PER_TURN", 1)
    peer = rig.client()
    for path in ("/a", "/b"):
        rig.ask(peer, requests.Create(codes.CREATE_CONTAINER, path, b"", OPEN, 4, -1))
    rig.machine.clear()  # has looked at one of them, and goes on with the other
    for path in ("/a", "/b"):
        rig.ask(peer, requests.Delete(path, -1))
        rig.create(peer, path)
        rig.create(peer, f"{path}/child")
        rig.ask(peer, requests.Delete(f"{path}/child", -1))
    for _ in range(4):
        assert rig.machine.clear() == 0
    assert {"/a", "/b"} <= set(rig.machine.tree.nodes)


@pytest.mark.parametrize(
    "asked",
    [
        requests.Plain(codes.RECONFIG),
        requests.Plain(codes.CLOSE_SESSION),
        requests.Delete("/none", -1),
        requests.Multi((requests.Delete("/none", -1),)),
    ],
)
def test_nothing_is_staged_for_a_log_that_has_no_room(rig: Rig, asked: requests.Request) -> None:
    """Nor for one that is not open yet, as after a restart: asking for room opens it."""
    peer = rig.client()
    rig.machine.has_room = lambda: False
    rig.machine.request(peer, 7, asked)
    assert rig.machine.take_staged() == []
