"""Committed and pending offsets: which of them counts, when they are gone, and that a restart finds the same."""

import pytest
from calls import calls_of
from group_harness import finish
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.group_records import CommittedOffset, decode
from headrace.coordinator.journal import ABORT, COMMIT, MemoryJournal
from headrace.coordinator.offsets.requests import OffsetRequests
from headrace.coordinator.offsets.store import OffsetStore
from headrace.coordinator.shard_journal import ShardJournal
from headrace.core.errors import PeerError
from headrace.protocol import error_codes as codes

PRODUCER, OTHER_PRODUCER = 7, 8


def at(offset, **rest):
    return CommittedOffset(offset, **rest)


@pytest.fixture
def store():
    return OffsetStore()


def read_again(journal):
    store = OffsetStore()
    for entry in journal.read_all(0):
        if entry.is_control:
            store.replay_marker(entry)
        else:
            store.replay(decode(entry.key, entry.value), entry)
    return store


# ── plain commits ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_group_and_partition_has_its_own_offset(store):
    store.apply("g", "t", 0, at(5))
    store.apply("g", "t", 1, at(6))
    store.apply("h", "t", 0, at(7))
    assert store.get("g", "t", 0) == at(5)
    assert store.get("g", "t", 2) is store.get("nobody", "t", 0) is None
    assert store.all("g") == {("t", 0): at(5), ("t", 1): at(6)}
    assert store.group_ids() == {"g", "h"}


def test_a_group_is_not_looked_for_in_every_open_transaction(store):
    """It is asked for each group that may have expired, and there may be very many of both."""
    for producer in range(1_000):
        store.pend(producer, f"g{producer % 2}", [("t", 0, at(producer))])
    assert calls_of(lambda: store.has_open_transaction("other")) < 10
    assert store.has_open_transaction("g0")
    for producer in range(0, 1_000, 2):
        store.end_transaction(producer, producer % 4 == 0)
    assert not store.has_open_transaction("g0")
    assert store.has_open_transaction("g1")
    assert store.get("g0", "t", 0) == at(996)


def test_nothing_changes_before_it_is_written(store):
    (pair,) = store.commit_records("g", [("t", 0, at(5))])
    assert decode(*pair) == ("g", "t", 0, at(5))
    assert store.group_ids() == set()


def test_deleted_offsets_are_gone_and_only_what_is_there_gets_a_tombstone(store):
    store.apply("g", "t", 0, at(5))
    store.apply("g", "u", 0, at(6))
    (pair,) = store.delete_records("g", [("t", 0), ("t", 0), ("t", 9)])
    assert decode(*pair) == ("g", "t", 0, None)
    store.forget("g", [("t", 0), ("t", 9)])
    assert store.all("g") == {("u", 0): at(6)}
    store.forget("g")
    assert store.group_ids() == set()


def test_a_topic_takes_the_offsets_of_all_groups_along(store):
    store.apply("g", "t", 0, at(5))
    store.apply("g", "u", 0, at(5))
    store.pend(PRODUCER, "h", [("t", 1, at(6))])
    assert finish(store.partitions_of_topics({"t"})) == {"g": [("t", 0)], "h": [("t", 1)]}


# ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_offset_in_a_transaction_counts_when_it_is_committed(store):
    store.apply("g", "t", 0, at(5))
    store.pend(PRODUCER, "g", [("t", 0, at(9))])
    assert store.get("g", "t", 0) == at(5)
    assert store.has_pending("g", "t", 0)
    assert not store.has_pending("g", "t", 1)
    store.end_transaction(PRODUCER, True)
    assert store.get("g", "t", 0) == at(9)
    assert not store.has_pending("g", "t", 0)


def test_an_aborted_transaction_leaves_nothing(store):
    store.pend(PRODUCER, "g", [("t", 0, at(9))])
    assert store.group_ids() == {"g"}
    store.end_transaction(PRODUCER, False)
    assert store.group_ids() == set()
    assert not store.has_open_transaction("g")


def test_the_last_of_several_commits_in_a_transaction_counts(store):
    store.pend(PRODUCER, "g", [("t", 0, at(8))])
    store.pend(PRODUCER, "g", [("t", 0, at(9))])
    store.end_transaction(PRODUCER, True)
    assert store.get("g", "t", 0) == at(9)


def test_a_plain_commit_after_a_pending_one_wins_and_leaves_it_unstable(store):
    store.pend(PRODUCER, "g", [("t", 0, at(9)), ("t", 1, at(9))])
    store.apply("g", "t", 0, at(5))
    assert store.has_pending("g", "t", 0)
    store.end_transaction(PRODUCER, True)
    assert store.all("g") == {("t", 0): at(5), ("t", 1): at(9)}


def test_of_two_transactions_the_later_record_wins_not_the_later_marker(store):
    store.pend(PRODUCER, "g", [("t", 0, at(1))])
    store.pend(OTHER_PRODUCER, "g", [("t", 0, at(2))])
    store.end_transaction(OTHER_PRODUCER, True)
    assert store.has_pending("g", "t", 0)
    store.end_transaction(PRODUCER, True)
    assert store.get("g", "t", 0) == at(2)


def test_a_later_record_is_not_held_back_by_an_earlier_marker(store):
    store.pend(PRODUCER, "g", [("t", 0, at(1))])
    store.pend(OTHER_PRODUCER, "g", [("t", 0, at(2))])
    store.end_transaction(PRODUCER, True)
    assert store.get("g", "t", 0) == at(1)
    store.end_transaction(OTHER_PRODUCER, True)
    assert store.get("g", "t", 0) == at(2)


def test_a_tombstone_takes_pending_offsets_along_but_the_transaction_is_still_open(store):
    store.pend(PRODUCER, "g", [("t", 0, at(9))])
    assert len(store.delete_records("g", [("t", 0)])) == 1
    store.forget("g", [("t", 0)])
    assert not store.has_pending("g", "t", 0)
    assert store.has_open_transaction("g")
    store.end_transaction(PRODUCER, True)
    assert store.get("g", "t", 0) is None
    assert not store.has_open_transaction("g")


def test_a_marker_without_offsets_means_nothing(store):
    store.end_transaction(PRODUCER, True)
    store.pend(PRODUCER, "g", [])
    assert store.group_ids() == set()
    assert not store.has_open_transaction("g")


# ── expiry (KIP-211) ─────────────────────────────────────────────────────────────────────────────────────────────────


def expired(store, now_ms, *, empty_since_ms=None, subscribed=()):
    return store.expired(
        "g",
        now_ms=now_ms,
        retention_ms=100,
        empty_since_ms=empty_since_ms,
        subscribed=lambda topic: topic in subscribed,
    )


def test_an_offset_expires_a_retention_after_its_commit(store):
    store.apply("g", "t", 0, at(5, commit_timestamp_ms=1000))
    store.apply("g", "t", 1, at(5, commit_timestamp_ms=1050))
    assert expired(store, 1099) == []
    assert expired(store, 1100) == [("t", 0)]
    assert expired(store, 1150) == [("t", 0), ("t", 1)]


def test_in_an_empty_group_the_time_runs_since_it_became_empty(store):
    store.apply("g", "t", 0, at(5, commit_timestamp_ms=1000))
    assert expired(store, 5000, empty_since_ms=4950) == []
    assert expired(store, 5050, empty_since_ms=4950) == [("t", 0)]


def test_a_lifetime_of_its_own_goes_before_all_else(store):
    store.apply("g", "t", 0, at(5, commit_timestamp_ms=1000, expire_timestamp_ms=9000))
    assert expired(store, 8999, empty_since_ms=0) == []
    assert expired(store, 9000, empty_since_ms=8999) == [("t", 0)]


def test_subscribed_topics_and_open_transactions_keep_their_offsets(store):
    store.apply("g", "t", 0, at(5, commit_timestamp_ms=1000))
    store.apply("g", "u", 0, at(5, commit_timestamp_ms=1000))
    store.pend(PRODUCER, "g", [("u", 0, at(6))])
    assert expired(store, 9000, subscribed={"t"}) == []
    store.end_transaction(PRODUCER, False)
    assert expired(store, 9000, subscribed={"t"}) == [("u", 0)]


def test_what_is_being_committed_anew_does_not_expire_and_goes_with_its_group(store):
    store.apply("g", "t", 0, at(5, commit_timestamp_ms=1000))
    entries = [("t", 0, at(6)), ("u", 0, at(1)), ("u", 0, at(2))]
    store.writing("g", entries)
    assert store.get("g", "u", 0) is None
    assert expired(store, 9000) == []
    assert store.partitions("g") == [("t", 0), ("u", 0)]
    assert finish(store.partitions_of_topics({"u"})) == {"g": [("u", 0)]}
    assert len(store.delete_records("g", [("u", 0)])) == 1
    store.written("g", entries)
    assert expired(store, 9000) == [("t", 0)]
    assert store.partitions("g") == [("t", 0)]


# ── a restart ────────────────────────────────────────────────────────────────────────────────────────────────────────

GROUPS = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.integers(0, 1), st.integers(0, 99)),
        st.tuples(st.just("delete"), st.sampled_from(GROUPS), st.integers(0, 1)),
        st.tuples(
            st.just("pend"), st.sampled_from((1, 2)), st.sampled_from(GROUPS), st.integers(0, 1), st.integers(0, 99)
        ),
        st.tuples(st.just("end"), st.sampled_from((1, 2)), st.booleans()),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(STEPS)
def test_a_restart_finds_the_same_as_kafka_would(steps):
    """Against Kafka's own rule, spelled out: each offset knows its place in the journal, and the highest wins."""
    journal, store = MemoryJournal(1), OffsetStore()
    requests = OffsetRequests(ShardJournal(journal, 0), store, 100)
    committed, pending = {}, {}
    for place, (step, *rest) in enumerate(steps, 1):
        if step == "commit":
            group_id, partition, offset = rest
            requests.commit(group_id, [("t", partition, at(offset))], lambda body: None)
            committed[group_id, partition] = place, offset
        elif step == "pend":
            producer_id, group_id, partition, offset = rest
            entries = [("t", partition, at(offset))]
            requests.commit(group_id, entries, lambda body: None, producer=(producer_id, 0))
            pending.setdefault(producer_id, {})[group_id, partition] = place, offset
        elif step == "delete":
            group_id, partition = rest
            requests.delete(group_id, [("t", partition)], lambda topic: False, lambda body: None)
            for offsets in (committed, *pending.values()):
                offsets.pop((group_id, partition), None)
        else:
            producer_id, commits = rest
            journal.mark(0, producer_id, 0, COMMIT if commits else ABORT)
            store.end_transaction(producer_id, commits)
            for key, value in pending.pop(producer_id, {}).items():
                if commits and value > committed.get(key, (0, 0)):
                    committed[key] = value
    for found in (store, read_again(journal)):
        for group_id in GROUPS:
            expected = {("t", key[1]): at(value[1]) for key, value in committed.items() if key[0] == group_id}
            assert found.all(group_id) == expected
            for partition in range(2):
                waits = any((group_id, partition) in offsets for offsets in pending.values())
                assert found.has_pending(group_id, "t", partition) == waits


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def journal():
    return MemoryJournal(1)


@pytest.fixture
def requests(journal, store):
    return OffsetRequests(ShardJournal(journal, 0), store, 10)


def told(body):
    return [
        (topic["name"], each["partition_index"], each["error_code"])
        for topic in body["topics"]
        for each in topic["partitions"]
    ]


def test_a_commit_is_answered_and_seen_when_it_is_written(requests, journal, store):
    answers = []
    journal.holds = True
    requests.commit("g", [("t", 0, at(5)), ("t", 1, at(6)), ("u", 0, at(7))], answers.append)
    assert answers == []
    assert store.all("g") == {}
    journal.release()
    assert answers == [[0, 0, 0]]
    assert len(store.all("g")) == 3


def test_a_commit_that_is_not_written_is_not_seen(requests, journal, store):
    answers = []
    journal.fails = True
    requests.commit("g", [("t", 0, at(5))], answers.append)
    requests.commit("g" * 40_000, [("t", 0, at(5))], answers.append)
    assert answers == [[codes.NOT_COORDINATOR], [codes.UNKNOWN_SERVER_ERROR]]
    assert store.group_ids() == set()


def test_what_a_client_did_wrong_is_told_to_it(requests, journal, monkeypatch):
    fenced = PeerError(codes.INVALID_PRODUCER_EPOCH, "old")
    monkeypatch.setattr(journal, "append", lambda partition, records, done, *, producer: done(fenced))
    answers = []
    requests.commit("g", [("t", 0, at(5))], answers.append, producer=(1, 0))
    assert answers == [[codes.INVALID_PRODUCER_EPOCH]]


def test_metadata_that_is_too_long_costs_its_own_partition_only(requests, store):
    answers = []
    long, just, astral = at(1, metadata="x" * 11), at(2, metadata="é" * 10), at(3, metadata="😀" * 6)
    requests.commit("g", [("t", 0, long), ("t", 1, just), ("t", 2, astral)], answers.append)
    requests.commit("g", [("t", 0, long)], answers.append)
    too_large = codes.OFFSET_METADATA_TOO_LARGE
    assert answers == [[too_large, 0, too_large], [too_large]]
    assert store.all("g") == {("t", 1): just}


def test_a_refused_commit_writes_nothing(requests, journal, store):
    answers = []
    requests.commit("g", [("t", 0, at(1, metadata="x" * 99))], answers.append, refusal=codes.ILLEGAL_GENERATION)
    assert answers == [[codes.ILLEGAL_GENERATION]]
    assert list(journal.read_all(0)) == []


def fetched(body):
    return [
        (topic["name"], each["partition_index"], each["committed_offset"], each["error_code"])
        for topic in body["topics"]
        for each in topic["partitions"]
    ]


def test_fetching_what_is_asked_for_or_all_there_is(requests, store):
    store.apply("g", "u", 0, at(7, leader_epoch=2, metadata="m"))
    store.apply("g", "t", 1, at(5))
    store.pend(PRODUCER, "g", [("t", 1, at(8)), ("t", 2, at(9))])
    assert fetched(finish(requests.fetch("g", [("t", [1, 4])], require_stable=False))) == [
        ("t", 1, 5, 0),
        ("t", 4, -1, 0),
    ]
    assert fetched(finish(requests.fetch("g", None, require_stable=False))) == [("t", 1, 5, 0), ("u", 0, 7, 0)]
    unstable = codes.UNSTABLE_OFFSET_COMMIT
    wanted = [("t", [1, 2, 3])]
    assert fetched(finish(requests.fetch("g", wanted, require_stable=True))) == [
        ("t", 1, -1, unstable),
        ("t", 2, -1, unstable),
        ("t", 3, -1, 0),
    ]
    assert fetched(finish(requests.fetch("g", None, require_stable=True))) == [("t", 1, -1, unstable), ("u", 0, 7, 0)]
    (partition,) = finish(requests.fetch("g", [("u", [0])], require_stable=True))["topics"][0]["partitions"]
    assert (partition["committed_leader_epoch"], partition["metadata"]) == (2, "m")


def test_deleting_spares_topics_that_somebody_uses(requests, journal, store):
    answers = []
    store.apply("g", "t", 0, at(5))
    store.apply("g", "u", 0, at(5))
    requests.delete("g", [("t", 0), ("u", 0), ("u", 1)], lambda topic: topic == "t", answers.append)
    assert told(answers[0]) == [("t", 0, codes.GROUP_SUBSCRIBED_TO_TOPIC), ("u", 0, 0), ("u", 1, 0)]
    assert store.all("g") == {("t", 0): at(5)}
    requests.delete("g", [("u", 0)], lambda topic: False, answers.append)
    assert answers[1]["error_code"] == 0
    journal.fails = True
    requests.delete("g", [("t", 0)], lambda topic: False, answers.append)
    assert answers[2] == {"error_code": codes.NOT_COORDINATOR, "topics": []}
    assert store.all("g") == {("t", 0): at(5)}
