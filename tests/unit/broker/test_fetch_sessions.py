import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker import fetch_sessions
from headrace.broker.fetch_sessions import EPOCH_MAX, EVICTION_S, FetchSessions
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)
from headrace.protocol.fetch import FetchPartition, FetchRequest

NAMES, IDS = False, True


def asked(*partitions, offset=0):
    """`a0 a1 b3` as the topics of a request."""
    topics = {}
    for name in partitions:
        topics.setdefault(name[0], []).append(FetchPartition(int(name[1:]), -1, offset, -1, 1000))
    return list(topics.items())


def request(session_id=0, epoch=0, topics=(), forgotten=()):
    names = {}
    for name in forgotten:
        names.setdefault(name[0], []).append(int(name[1:]))
    return FetchRequest(-1, -1, 500, 1, 1 << 20, False, session_id, epoch, list(topics), list(names.items()))


def partitions(session):
    return [f"{topic}{index}" for topic, index in session.partitions]


def refusal(sessions, wanted, uses_ids=NAMES, now=0.0):
    with pytest.raises(PeerError) as caught:
        sessions.open(wanted, uses_ids, now)
    return caught.value.code


@pytest.fixture
def sessions():
    return FetchSessions(3)


def started(sessions, *names, now=0.0, uses_ids=NAMES):
    session, incremental = sessions.open(request(topics=asked(*names)), uses_ids, now)
    assert not incremental
    return session


def test_a_full_fetch_that_asks_for_a_session_gets_one(sessions):
    session = started(sessions, "a0", "a1", "b3")
    assert session.id > 0
    assert partitions(session) == ["a0", "a1", "b3"]
    assert len(sessions) == 1


def test_a_topic_that_cannot_be_is_no_part_of_a_session(sessions):
    wanted = [*asked("a0"), ("x" * 250, [FetchPartition(0, -1, 0, -1, 1000)])]
    session, _ = sessions.open(request(topics=wanted), NAMES, 0.0)
    assert partitions(session) == ["a0"]


def test_partitions_in_all_sessions_are_bounded(sessions, monkeypatch):
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 3)
    first, second = started(sessions, "a0", "a1"), started(sessions, "b0")
    again, _ = sessions.open(request(first.id, 1, asked("a0", "a1", offset=5)), NAMES, 0.0)
    assert again is first, "it names again what it has"
    grown, incremental = sessions.open(request(second.id, 1, asked("b1")), NAMES, 0.0)
    assert (partitions(grown), incremental) == (["b0", "b1"], True), "it is answered once more"
    assert refusal(sessions, request(second.id, 2)) == FETCH_SESSION_ID_NOT_FOUND
    sessions.open(request(first.id, 2, asked("a2", "a3")), NAMES, 0.0)
    assert len(sessions) == 0
    crowd = started(sessions, "a0", "a1", "a2", "a3")
    assert sessions.open(request(topics=asked("b0")), NAMES, 0.0) == (None, False), "a client then has no session"
    newer = started(sessions, "b0", now=EVICTION_S)
    assert refusal(sessions, request(crowd.id, 1)) == FETCH_SESSION_ID_NOT_FOUND, "one that is not used makes room"
    assert partitions(newer) == ["b0"]


def test_a_full_fetch_without_a_session_gets_none(sessions):
    assert sessions.open(request(epoch=-1, topics=asked("a0")), NAMES, 0.0) == (None, False)
    assert len(sessions) == 0


def test_a_fetch_of_nothing_gets_no_session(sessions):
    assert sessions.open(request(), NAMES, 0.0) == (None, False)
    assert len(sessions) == 0


def test_later_fetches_name_only_what_changes(sessions):
    session = started(sessions, "a0", "a1", "b3")
    again, incremental = sessions.open(request(session.id, 1), NAMES, 1.0)
    assert again is session
    assert incremental
    assert partitions(session) == ["a0", "a1", "b3"]
    sessions.open(request(session.id, 2, asked("a1", "c0", offset=7), forgotten=["b3", "z9"]), NAMES, 2.0)
    assert partitions(session) == ["a0", "a1", "c0"]
    assert session.partitions["a", 1].asked.offset == 7
    assert session.partitions["a", 0].asked.offset == 0


def test_what_a_client_was_told_is_remembered_when_it_asks_for_another_offset(sessions):
    session = started(sessions, "a0")
    session.partitions["a", 0].told_watermark = 55
    sessions.open(request(session.id, 1, asked("a0", offset=9)), NAMES, 1.0)
    assert session.partitions["a", 0].told_watermark == 55
    sessions.open(request(session.id, 2, forgotten=["a0"], topics=asked("b0")), NAMES, 1.0)
    sessions.open(request(session.id, 3, asked("a0")), NAMES, 1.0)
    assert session.partitions["a", 0].told_watermark == -1


@pytest.mark.parametrize("epoch", [2, 3, 100, -2, EPOCH_MAX])
def test_a_request_that_was_lost_or_came_twice_is_noticed_and_changes_nothing(sessions, epoch):
    session = started(sessions, "a0")
    assert refusal(sessions, request(session.id, epoch, asked("b0"), ["a0"])) == INVALID_FETCH_SESSION_EPOCH
    assert partitions(session) == ["a0"]
    assert sessions.open(request(session.id, 1), NAMES, 0.0)[0] is session
    assert refusal(sessions, request(session.id, 1)) == INVALID_FETCH_SESSION_EPOCH


def test_a_session_that_is_not_there_is_told(sessions):
    assert refusal(sessions, request(12345, 1)) == FETCH_SESSION_ID_NOT_FOUND
    assert refusal(sessions, request(0, 1)) == FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap_to_one(sessions):
    session = started(sessions, "a0")
    session.epoch = EPOCH_MAX
    sessions.open(request(session.id, EPOCH_MAX), NAMES, 0.0)
    assert session.epoch == 1
    assert sessions.open(request(session.id, 1), NAMES, 0.0)[0] is session


def test_names_and_ids_do_not_mix(sessions):
    session = started(sessions, "a0")
    assert refusal(sessions, request(session.id, 1), IDS) == FETCH_SESSION_TOPIC_ID_ERROR
    by_id = started(sessions, "a0", uses_ids=IDS)
    assert refusal(sessions, request(by_id.id, 1), NAMES) == FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.open(request(by_id.id, 1), IDS, 0.0)[0] is by_id


def test_a_client_ends_its_session(sessions):
    session = started(sessions, "a0")
    assert sessions.open(request(session.id, -1, asked("a0")), NAMES, 0.0) == (None, False)
    assert len(sessions) == 0
    assert refusal(sessions, request(session.id, 1)) == FETCH_SESSION_ID_NOT_FOUND


def test_a_client_begins_anew_and_its_old_session_is_gone(sessions):
    session = started(sessions, "a0")
    other, incremental = sessions.open(request(session.id, 0, asked("b0")), NAMES, 0.0)
    assert not incremental
    assert other is not session
    assert partitions(other) == ["b0"]
    assert len(sessions) == 1


def test_a_session_without_partitions_is_over(sessions):
    session = started(sessions, "a0")
    sessions.open(request(session.id, 1, forgotten=["a0"]), NAMES, 0.0)
    assert len(sessions) == 0
    assert refusal(sessions, request(session.id, 2)) == FETCH_SESSION_ID_NOT_FOUND


def test_a_full_cache_gives_no_session_while_all_are_in_use(sessions):
    kept = [started(sessions, "a0", now=float(i)) for i in range(3)]
    assert started(sessions, "b0", now=EVICTION_S - 1) is None
    assert len(sessions) == 3
    assert sessions.open(request(kept[0].id, 1), NAMES, 5.0)[0] is kept[0]


def test_the_session_longest_unused_makes_room_after_two_minutes(sessions):
    first, second, third = (started(sessions, "a0", now=float(i)) for i in range(3))
    sessions.open(request(first.id, 1), NAMES, 50.0)
    session = started(sessions, "b0", now=1.0 + EVICTION_S)
    assert session is not None
    assert len(sessions) == 3
    assert refusal(sessions, request(second.id, 1)) == FETCH_SESSION_ID_NOT_FOUND
    for alive, epoch in ((first, 2), (third, 1)):
        assert sessions.open(request(alive.id, epoch), NAMES, 130.0)[0] is alive


def test_without_slots_there_are_no_sessions():
    sessions = FetchSessions(0)
    assert sessions.open(request(topics=asked("a0")), NAMES, 0.0) == (None, False)


def test_an_id_is_never_given_twice(monkeypatch, sessions):
    numbers = iter([7, 7, 7, 8])
    monkeypatch.setattr("random.randrange", lambda low, high: next(numbers))
    assert [started(sessions, "a0").id, started(sessions, "a0").id] == [7, 8]


PARTITIONS = st.sampled_from(["a0", "a1", "b0", "b1", "c5"])


@settings(max_examples=80, deadline=None)
@given(
    first=st.sets(PARTITIONS, min_size=1),
    steps=st.lists(st.tuples(st.sets(PARTITIONS), st.sets(PARTITIONS), st.booleans()), max_size=10),
)
def test_a_session_always_holds_what_the_client_believes(first, steps):
    sessions = FetchSessions(2)
    session = started(sessions, *sorted(first))
    believed = set(first)
    epoch = 1
    for added, removed, repeated in steps:
        wanted = request(session.id, epoch, asked(*sorted(added)), sorted(removed))
        found, incremental = sessions.open(wanted, NAMES, 0.0)
        believed = (believed | added) - removed
        assert incremental
        assert set(partitions(found)) == believed
        if not believed:
            assert len(sessions) == 0
            return
        if repeated:
            assert refusal(sessions, wanted) == INVALID_FETCH_SESSION_EPOCH
            assert set(partitions(session)) == believed
        epoch += 1
