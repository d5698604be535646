"""The client's session against the keeper's machine, without sockets: any split of bytes, any moment of a break."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zookeeper_world import World

from headrace.client.zookeeper.errors import TooManyRequestsError, ZooKeeperError
from headrace.client.zookeeper.events import Answered, Changed, Refused, StateChanged, Unreachable
from headrace.client.zookeeper.session import Resumed
from headrace.client.zookeeper.states import ENDED, TRANSITIONS, Input, State, following
from headrace.core.errors import InvariantError
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.acl import OPEN, Acl, digest
from headrace.protocol.zookeeper.results import Created, Data

WHO = "watcher"


def create(path: str, flags: int = 0, acl: tuple[Acl, ...] = OPEN) -> requests.Create:
    return requests.Create(codes.CREATE, path, b"x", acl, flags, -1)


def read(path: str, kind: int = codes.GET_DATA, *, watch: bool = False) -> requests.Read:
    return requests.Read(kind, path, watch)


@pytest.fixture
def world() -> World:
    made = World()
    made.settle()
    return made


# ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_state_can_be_reached_and_from_an_ended_one_no_way_leads_on() -> None:
    reached = {State.CONNECTING}
    for _ in State:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(State)
    assert not [before for before, _ in TRANSITIONS if before in ENDED]


def test_what_is_not_in_the_table_is_a_bug() -> None:
    for state, happened in product(State, Input):
        if (state, happened) not in TRANSITIONS:
            with pytest.raises(InvariantError):
                following(state, happened)


def test_only_the_server_says_that_a_session_has_expired(world: World) -> None:
    world.up = False
    world.cut()
    world.advance(10 * 9000)
    assert world.session.state is State.CONNECTING
    world.up = True
    world.server.machine.close_session(world.session.id, 0)
    world.advance(2000)
    assert world.states()[-1] is State.EXPIRED
    with pytest.raises(ZooKeeperError) as error:
        world.session.submit(read("/"), world.now_ms)
    assert error.value.code == codes.SESSION_EXPIRED


def test_what_waits_when_the_session_has_expired_is_refused(world: World) -> None:
    world.up = False
    world.cut()
    world.settle()
    world.server.machine.close_session(world.session.id, 0)
    ticket = world.session.submit(read("/"), world.now_ms)
    world.up = True
    world.advance(2000)
    assert [each.code for each in world.events if isinstance(each, Refused) and each.ticket == ticket] == [
        codes.SESSION_EXPIRED
    ]


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_goes_on_over_connections(world: World) -> None:
    assert isinstance(world.ask(create("/mine", codes.EPHEMERAL)), Answered)
    session = world.session.id
    world.cut()
    world.advance(2000)
    assert world.states() == [State.CONNECTED, State.CONNECTING, State.CONNECTED]
    assert world.session.id == session
    assert "/mine" in world.server.machine.tree.nodes


def test_a_later_process_resumes_a_session_with_its_password(world: World) -> None:
    later = World(resumed=Resumed(world.session.id, world.session.password))
    later.server = world.server
    later.settle()
    assert later.session.id == world.session.id
    wrong = World(resumed=Resumed(world.session.id, b"?" * 16))
    wrong.server = world.server
    wrong.settle()
    assert wrong.states() == [State.EXPIRED]


def test_each_server_is_tried_before_a_pause_and_pauses_grow_to_a_second() -> None:
    world = World("a:1,b:2,c:3")
    world.up = False
    world.settle()
    assert sorted(world.tried) == [("a", 1), ("b", 2), ("c", 3)]
    assert [type(each) for each in world.events] == [Unreachable] * 3
    pauses = []
    for _ in range(8):
        deadline_ms = world.session.deadline_ms
        assert deadline_ms is not None
        pauses.append(deadline_ms - world.now_ms)
        world.advance(pauses[-1])
    assert all(0 < pause <= 1000 for pause in pauses)
    assert pauses[-1] >= 500
    assert len(world.tried) == 3 * 9


def test_after_a_success_the_next_attempt_comes_soon_again(world: World) -> None:
    world.up = False
    world.cut()
    for _ in range(8):
        world.advance(1000)
    world.up = True
    world.advance(1000)
    assert world.states()[-1] is State.CONNECTED
    world.cut()
    deadline_ms = world.session.deadline_ms
    assert deadline_ms is not None
    assert deadline_ms - world.now_ms <= 100


def test_a_server_that_says_nothing_is_given_up_for_the_next(world: World) -> None:
    both = World("a:1,b:2")
    both.session.tick(0)
    both.session.take_actions()
    both.session.opened(0)
    assert both.session.deadline_ms == 9000 // 2, "each has its share of the time"
    both.advance(4500)
    assert both.session.state is State.CONNECTED
    assert len(both.tried) == 1, "at the second one"


def test_pings_keep_a_quiet_session_alive_and_their_answers_are_waited_for(world: World) -> None:
    for _ in range(12):
        deadline_ms = world.session.deadline_ms
        assert deadline_ms == world.now_ms + 3000, "a third of the negotiated time-out"
        world.advance(3000)
    assert [each for each in world.server.asked if isinstance(each, requests.Plain)] == [
        requests.Plain(codes.PING)
    ] * 12
    peer, world.peer = world.peer, None  # words go nowhere now
    world.now_ms += 3000
    world.session.tick(world.now_ms)
    world.session.take_bytes()
    world.now_ms += 3000
    world.session.tick(world.now_ms)
    assert world.session.state is State.CONNECTING, "two thirds of the time-out without a word"
    world.peer = peer


def test_the_time_out_is_what_the_server_gives() -> None:
    world = World(timeout_ms=500)
    world.settle()
    assert world.session.timeout_ms == 1000
    assert world.session.deadline_ms == 333


def test_bytes_that_are_no_answer_break_the_connection(world: World) -> None:
    world.session.received(b"HTTP/1.1 400 Bad Request\r\n", world.now_ms)
    event = world.settle()[0]
    assert isinstance(event, StateChanged)
    assert event.state is State.CONNECTING
    assert "no ZooKeeper" in event.reason


def test_an_answer_out_of_its_turn_breaks_the_connection(world: World) -> None:
    world.session.submit(read("/"), world.now_ms)
    world.session.received(bytes.fromhex("00000010 00000063 0000000000000001 00000000".replace(" ", "")), world.now_ms)
    assert world.session.state is State.CONNECTING


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_sent_on_a_broken_connection_fails_and_what_waits_is_sent_on_the_next(world: World) -> None:
    sent = world.session.submit(create("/sent"), world.now_ms)
    world.session.take_bytes()
    world.cut()
    waiting = world.session.submit(create("/waiting"), world.now_ms)
    world.advance(2000)
    told = {each.ticket: each for each in world.events if isinstance(each, Answered | Refused)}
    assert isinstance(told[sent], Refused)
    assert told[sent].code == codes.CONNECTION_LOSS
    assert told[waiting] == Answered(waiting, create("/waiting"), Created("/waiting", None))


def test_what_waits_fails_when_every_server_was_tried_once_more() -> None:
    world = World("a:1,b:2")
    world.up = False
    ticket = world.session.submit(read("/"), 0)
    events = world.settle()
    assert [type(each) for each in events] == [Unreachable, Unreachable, Refused]
    assert events[-1] == Refused(ticket, read("/"), codes.CONNECTION_LOSS, "/")


def test_more_requests_than_the_bound_are_not_taken() -> None:
    world = World(pending_max=3)
    for _ in range(3):
        world.session.submit(read("/"), 0)
    with pytest.raises(TooManyRequestsError, match=r"3 requests .* have no answer yet; the limits are 3"):
        world.session.submit(read("/"), 0)
    world.settle()
    world.session.submit(read("/"), 0)


def test_more_bytes_than_the_bound_are_not_taken_until_there_are_answers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.client.zookeeper.pending.PENDING_BYTES_MAX", 1000)
    for number in range(3):
        world.session.submit(requests.Create(codes.CREATE, f"/{number}", bytes(2000), OPEN, 0, -1), world.now_ms)
        with pytest.raises(TooManyRequestsError, match="1000 bytes"):
            world.session.submit(read("/"), world.now_ms)
        world.settle()


def test_a_closing_waits_for_what_was_asked_before(world: World) -> None:
    world.session.submit(create("/last"), world.now_ms)
    world.session.close(world.now_ms)
    world.session.close(world.now_ms)
    with pytest.raises(ZooKeeperError):
        world.session.submit(create("/late"), world.now_ms)
    events = world.settle()
    assert [type(each) for each in events] == [StateChanged, Answered, StateChanged]
    assert world.states()[-1] is State.CLOSED
    assert not world.server.machine.sessions.open


def test_a_closing_ends_when_the_connection_breaks(world: World) -> None:
    world.session.close(world.now_ms)
    world.cut()
    world.settle()
    assert world.session.state is State.CLOSED
    assert world.session.deadline_ms is None


def test_a_closing_without_a_connection_gives_up_the_attempt() -> None:
    world = World()
    world.session.tick(0)
    world.session.take_actions()
    world.session.close(0)
    assert [type(each).__name__ for each in world.session.take_actions()] == ["Drop"]
    assert world.session.state is State.CLOSED


# ── watches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_watch_reports_once_and_one_of_addwatch_until_it_is_removed(world: World) -> None:
    world.ask(create("/a"))
    world.ask(read("/a", watch=True), WHO)
    world.ask(requests.AddWatch("/", codes.PERSISTENT_RECURSIVE_WATCH), "always")
    for _ in range(2):
        world.server.set("/a")
    world.settle()
    changed = codes.NODE_DATA_CHANGED
    assert world.changes() == [(changed, "/a", (WHO, "always")), (changed, "/a", ("always",))]
    world.ask(requests.Watches(codes.REMOVE_WATCHES, "/", codes.WATCHER_ANY))
    assert world.changes() == [(codes.PERSISTENT_WATCH_REMOVED, "/", ("always",))]
    world.server.set("/a")
    world.settle()
    assert world.changes() == []


def test_a_watch_that_nobody_has_cannot_be_removed(world: World) -> None:
    refused = world.ask(requests.Watches(codes.REMOVE_WATCHES, "/", codes.WATCHER_DATA))
    assert isinstance(refused, Refused)
    assert refused.code == codes.NO_WATCHER


def test_what_was_missed_is_told_after_a_reconnect_and_the_rest_is_watched_again(world: World) -> None:
    for path in ("/same", "/data", "/gone", "/child"):
        world.ask(create(path))
    for path in ("/same", "/data", "/gone"):
        world.ask(read(path, watch=True), WHO)
    world.ask(read("/child", codes.GET_CHILDREN, watch=True), WHO)
    world.ask(read("/new", codes.EXISTS, watch=True), WHO)
    world.up = False
    world.cut()
    world.server.set("/data")
    world.server.delete("/gone")
    world.server.create("/child/one")
    world.server.create("/new")
    world.up = True
    world.advance(2000)
    assert sorted(world.changes(), key=repr) == sorted(
        [
            (codes.NODE_DATA_CHANGED, "/data", (WHO,)),
            (codes.NODE_DELETED, "/gone", (WHO,)),
            (codes.NODE_CHILDREN_CHANGED, "/child", (WHO,)),
            (codes.NODE_CREATED, "/new", (WHO,)),
        ],
        key=repr,
    )
    world.server.set("/same")
    world.settle()
    assert world.changes() == [(codes.NODE_DATA_CHANGED, "/same", (WHO,))]


def test_a_client_never_goes_back_behind_an_event_that_it_has_seen(world: World) -> None:
    world.ask(read("/new", codes.EXISTS, watch=True), WHO)
    world.server.create("/new")
    world.settle()
    seen = next(each.zxid for each in world.events if isinstance(each, Changed))
    world.cut()
    world.advance(2000)
    connects = [each for each in world.server.asked if isinstance(each, requests.Connect)]
    assert connects[-1].last_zxid == seen


def test_watches_of_addwatch_are_set_again(world: World) -> None:
    world.ask(requests.AddWatch("/", codes.PERSISTENT_RECURSIVE_WATCH), WHO)
    world.ask(requests.AddWatch("/", codes.PERSISTENT_WATCH), WHO)
    world.cut()
    world.advance(2000)
    world.server.create("/a")
    world.settle()
    assert world.changes() == [(codes.NODE_CREATED, "/a", (WHO,)), (codes.NODE_CHILDREN_CHANGED, "/", (WHO,))]


def test_without_addwatch_the_watches_are_set_as_old_servers_know_it(world: World) -> None:
    world.ask(read("/", watch=True), WHO)
    world.cut()
    world.advance(2000)
    again = [each for each in world.server.asked if isinstance(each, requests.SetWatches)]
    assert again == [requests.SetWatches(world.session.last_zxid, ["/"], [], [], [], [])]


def test_a_server_that_refuses_to_watch_again_is_left(world: World) -> None:
    refused = "00000010fffffff80000000000000000ffffff81"
    answered = "0000001000000063000000000000000100000000"  # behind it, and nobody's business any more
    world.session.received(bytes.fromhex(refused + answered), world.now_ms)
    (event,) = [each for each in world.session.take_events() if isinstance(each, StateChanged)]
    assert (event.state, event.reason) == (State.CONNECTING, "the server refused to watch again, with error -127")


def test_very_many_watches_are_set_again_in_several_requests(world: World) -> None:
    names = [f"/{number:0200d}" for number in range(2000)]
    for name in names:
        world.session.submit(read(name, codes.EXISTS, watch=True), world.now_ms, WHO)
        world.settle()
    world.cut()
    world.advance(2000)
    again = [each for each in world.server.asked if isinstance(each, requests.SetWatches)]
    assert len(again) == 4
    assert [path for each in again for path in each.exist] == names


def test_a_watch_whose_answer_was_lost_is_not_there(world: World) -> None:
    world.session.submit(read("/", watch=True), world.now_ms, WHO)
    world.cut()
    world.advance(2000)
    assert world.session.watchers.count == 0


# ── who it is, and where ─────────────────────────────────────────────────────────────────────────────────────────────


def test_credentials_are_shown_again_before_anything_else(world: World) -> None:
    own = (Acl(codes.ALL_PERMISSIONS, "digest", digest(b"ann:pw") or ""),)
    world.session.add_credentials("digest", b"ann:pw", world.now_ms)
    world.ask(create("/own", acl=own))
    world.cut()
    world.session.submit(read("/own"), world.now_ms)
    world.advance(2000)
    last = [each for each in world.events if isinstance(each, Answered)][-1]
    assert isinstance(last.result, Data)


def test_credentials_that_are_not_accepted_end_the_session(world: World) -> None:
    ticket = world.session.submit(read("/"), world.now_ms)
    world.session.add_credentials("nonsense", b"x", world.now_ms)
    waiting = world.session.submit(read("/"), world.now_ms)
    world.settle()
    assert world.states()[-1] is State.AUTH_FAILED
    told = {each.ticket: each for each in world.events if isinstance(each, Answered | Refused)}
    assert isinstance(told[ticket], Answered)
    assert isinstance(told[waiting], Refused)
    assert told[waiting].code == codes.AUTH_FAILED


def test_below_a_chroot_paths_are_its_own() -> None:
    world = World("a:1/app/one")
    for path in ("/app", "/app/one", "/other"):
        world.server.create(path)
    world.settle()
    assert world.ask(create("/s-", codes.SEQUENTIAL)).result == Created("/s-0000000000", None)  # type: ignore[union-attr]
    multi = world.ask(requests.Multi((create("/m"), requests.Delete("/s-0000000000", -1))))
    assert multi.result.steps == [Created("/m", None), None]  # type: ignore[union-attr]
    assert "/app/one/m" in world.server.machine.tree.nodes
    world.ask(read("/m", watch=True), WHO)
    world.ask(read("/", codes.GET_CHILDREN, watch=True), WHO)
    world.cut()
    world.advance(2000)
    world.server.delete("/app/one/m")
    world.settle()
    assert world.changes() == [(codes.NODE_DELETED, "/m", (WHO,)), (codes.NODE_CHILDREN_CHANGED, "/", (WHO,))]
    refused = world.ask(read("/m"))
    assert isinstance(refused, Refused)
    assert refused.path == "/m"
    assert world.ask(read("/m", codes.SYNC)).result == "/m"  # type: ignore[union-attr]
    world.ask(create("/e", codes.EPHEMERAL))
    assert world.ask(read("/", codes.GET_EPHEMERALS)).result.paths == ["/e"]  # type: ignore[union-attr]


# ── any bytes, any moment ────────────────────────────────────────────────────────────────────────────────────────────


def _conversation(world: World, split: Random | None) -> list[object]:
    submit = world.session.submit
    for path in ("/a", "/a/b"):
        submit(create(path), 0)
    submit(read("/a", codes.GET_CHILDREN2, watch=True), 0, WHO)
    submit(requests.AddWatch("/a", codes.PERSISTENT_RECURSIVE_WATCH), 0, WHO)
    submit(requests.Multi((create("/a/c"), requests.SetData("/a", b"y", 0), requests.Check("/a", 1))), 0)
    submit(requests.Multi((create("/d"), create("/a"))), 0)
    submit(requests.MultiRead((read("/a"), read("/none"))), 0)
    submit(requests.Plain(codes.WHO_AM_I), 0)
    submit(read("/a", codes.GET_ACL), 0)
    submit(read("/a", codes.GET_ALL_CHILDREN_NUMBER), 0)
    world.session.close(0) if world.session.state is State.CONNECTED else None
    world.settle(split)
    return list(world.events)


@given(st.integers(min_value=0))
def test_bytes_split_anywhere_tell_the_same(seed: int) -> None:
    whole = _conversation(World(), None)
    assert len([each for each in whole if isinstance(each, Answered)]) == 10
    assert _conversation(World(), Random(seed)) == whole


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from("abc")),
        st.tuples(st.just("delete"), st.sampled_from("abc")),
        st.tuples(st.just("set"), st.sampled_from("abc")),
        st.tuples(st.just("watch"), st.sampled_from("abc")),
        st.tuples(st.just("change"), st.sampled_from("abc")),
        st.tuples(st.just("cut"), st.integers(0, 60)),
        st.tuples(st.just("wait"), st.integers(0, 4000)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(min_value=0))
def test_whatever_breaks_each_request_is_told_of_once_and_no_change_is_missed(
    steps: list[tuple[str, object]], seed: int
) -> None:
    world, choose = World(), Random(seed)
    tickets: list[int] = []
    for what, which in steps:
        path = f"/{which}"
        if what == "create":
            tickets.append(world.session.submit(create(path), world.now_ms))
        elif what == "delete":
            tickets.append(world.session.submit(requests.Delete(path, -1), world.now_ms))
        elif what == "set":
            tickets.append(world.session.submit(requests.SetData(path, b"1", -1), world.now_ms))
        elif what == "watch":
            tickets.append(world.session.submit(read(path, codes.EXISTS, watch=True), world.now_ms, WHO))
        elif what == "change" and path in world.server.machine.tree.nodes:
            world.server.set(path)
        elif what == "cut":
            _half_sent(world, int(str(which)), choose)
        elif what == "wait":
            world.advance(int(str(which)))
    world.advance(2000)
    told = [each.ticket for each in world.events if isinstance(each, Answered | Refused)]
    assert sorted(told) == tickets
    # Whoever watches a node knows its state: what he was told last, by an answer or an event, is how it is now.
    before = world.session.watchers.count
    for name in "abc":
        world.server.create(f"/{name}")
        world.server.set(f"/{name}")
    world.events.clear()
    world.settle()
    assert len([each for each in world.events if isinstance(each, Changed)]) == before
    assert world.session.watchers.count == 0


def _half_sent(world: World, size: int, choose: Random) -> None:
    """The connection breaks when some bytes have passed, one way or the other."""
    world.session.tick(world.now_ms)
    if world.peer is None:
        return
    out = world.session.take_bytes()
    if out:
        world.server.receive(world.peer, out[:size])
    came = world.server.take(world.peer)
    cut_at = choose.randint(0, len(came))
    if cut_at:
        world.session.received(came[:cut_at], world.now_ms)
        world.events += world.session.take_events()
    world.cut()
