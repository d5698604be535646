"""OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit over all versions. Expected answers are Apache Kafka's."""

import uuid

import pytest
from coordinators import coordinators, load_all, offsets_of
from sessions import asking

from headrace.broker.api import Later, Request
from headrace.broker.handlers import offset_commit, offset_delete, offset_fetch, txn_offset_commit
from headrace.broker.steps import Steps
from headrace.coordinator.group_records import CommittedOffset
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.groups import Groups
from headrace.coordinator.journal import MemoryJournal
from headrace.coordinator.offsets.requests import refused_delete, refused_fetch
from headrace.coordinator.placing import partition_for
from headrace.coordinator.topic_view import TopicTable
from headrace.core.steps import finish
from headrace.protocol import error_codes as codes
from headrace.protocol import messages

COMMIT, FETCH, DELETE, TXN_COMMIT = 8, 9, 47, 28
OFFSETS_TOPIC = "__consumer_offsets"
NOW_MS = 1_700_000_000_000
NOBODY = uuid.UUID(int=99)


class NoTimer:
    def cancel(self):
        pass


class FakeTransactions:
    """Says yes, or what it was told to say, and remembers what it was asked."""

    def __init__(self):
        self.code = codes.NONE
        self.verified, self.added = [], []

    def verify(self, *asked):
        self.verified.append(asked)
        return self.code

    def add_implicitly(self, transactional_id, producer_id, producer_epoch, partitions, decided):
        self.added.append((transactional_id, producer_id, producer_epoch, *partitions))
        decided(self.code)


class RefusingGroups:
    """Answers everything with one error, as groups do."""

    def __init__(self, code):
        self.code = code

    def commit_offsets(self, group_id, member_id, generation, instance_id, entries, answer, *, version, producer=None):
        self.asked = (group_id, member_id, generation, instance_id, version)
        answer([self.code] * len(entries))

    def fetch_offsets(self, group_id, member_id, member_epoch, wanted, require_stable):
        self.asked = (group_id, member_id, member_epoch)
        yield
        return refused_fetch(group_id, self.code)

    def delete_offsets(self, group_id, partitions, answer):
        answer(refused_delete(self.code))


@pytest.fixture
def journal():
    return MemoryJournal(50)


@pytest.fixture
def node(node, client, journal, monkeypatch):
    for handler in (offset_commit, offset_fetch, offset_delete, txn_offset_commit):
        monkeypatch.setitem(client.ask.__globals__["APIS"], handler.API.key, handler.API)
    client.create(node, "t", 2)
    client.create(node, "u", 1)
    if node.topics.get(OFFSETS_TOPIC) is None:
        client.create(node, OFFSETS_TOPIC, 50)
    coordinators(node).groups = Groups(
        journal, node.clock, lambda seconds, callback: NoTimer(), GroupSettings(), TopicTable()
    )
    load_all(node.parts.groups, journal.partition_count)
    coordinators(node).transactions = FakeTransactions()
    return node


@pytest.fixture
def topic_id(node):
    return node.topics.get("t").id


def topics(node, *parts):
    """(topic, partition, what) as a request has them: by name and by id, the version takes what it has."""
    asked = []
    for name, *partitions in parts:
        topic = node.topics.get(name)
        asked.append({"name": name, "topic_id": NOBODY if topic is None else topic.id, "partitions": partitions})
    return asked


def at(partition, offset, metadata="", epoch=-1):
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


@pytest.fixture
def commit(node, client):
    def call(*parts, version=9, group="g", generation=-1, member="", **rest):
        body = {"group_id": group, "generation_id_or_member_epoch": generation, "member_id": member, **rest}
        body |= {"retention_time": rest.get("retention_time", -1)}
        answer = client.ask(node, COMMIT, version, topics=topics(node, *parts), **body)
        return told(answer)

    return call


def told(answer):
    return [
        (getattr(topic, "name", None) or topic.topic_id, each.partition_index, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]


@pytest.fixture
def fetch(node, client):
    def call(wanted=(("t", 0, 1),), version=9, group="g", stable=False, **rest):
        asked = None
        if wanted is not None:
            asked = [topic | {"partition_indexes": topic.pop("partitions")} for topic in topics(node, *wanted)]
        body = {"group_id": group, "topics": asked, "require_stable": stable}
        if version >= 8:
            body = {"groups": [{"group_id": group, "topics": asked, **rest}], "require_stable": stable}
        answer = client.ask(node, FETCH, version, **body)
        return answer.groups[0] if version >= 8 else answer

    return call


def offsets(answer):
    return {
        (getattr(topic, "name", None) or topic.topic_id, each.partition_index): (each.committed_offset, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }


# ── OffsetCommit ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(2, 11))
def test_committing_over_all_versions(node, commit, topic_id, version):
    name = topic_id if version >= 10 else "t"
    assert commit(("t", at(0, 5, "m", 3), at(1, 6, None)), version=version) == [(name, 0, 0), (name, 1, 0)]
    epoch = 3 if version >= 6 else -1
    assert offsets_of(node).get("g", "t", 0) == CommittedOffset(5, epoch, "m", NOW_MS, -1, topic_id)
    assert offsets_of(node).get("g", "t", 1).metadata == ""


@pytest.mark.parametrize("version", range(2, 11))
def test_partitions_that_do_not_exist_are_refused_first(commit, topic_id, version):
    unknown, name = codes.UNKNOWN_TOPIC_OR_PARTITION, "t"
    nope = ("nope", 0, unknown)
    if version >= 10:
        nope, name = (NOBODY, 0, codes.UNKNOWN_TOPIC_ID), topic_id
    parts = ("nope", at(0, 1)), ("t", at(0, 1), at(9, 1), at(-1, 1))
    assert commit(*parts, version=version) == [nope, (name, 9, unknown), (name, -1, unknown), (name, 0, 0)]


def test_the_group_is_not_asked_when_nothing_is_left_to_commit(node, commit):
    coordinators(node).groups = RefusingGroups(codes.ILLEGAL_GENERATION)
    assert commit() == []
    assert commit(("nope", at(0, 1))) == [("nope", 0, codes.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("version", range(2, 11))
def test_the_group_hears_who_commits_and_its_refusal_is_told(node, commit, version):
    coordinators(node).groups = RefusingGroups(codes.ILLEGAL_GENERATION)
    answer = commit(("t", at(0, 1)), version=version, generation=4, member="m", group_instance_id="i")
    assert answer[0][2] == codes.ILLEGAL_GENERATION
    assert node.parts.groups.asked == ("g", "m", 4, "i" if version >= 7 else None, version)


@pytest.mark.parametrize("version", range(2, 5))
def test_an_old_client_may_say_how_long_an_offset_is_kept(node, commit, version):
    commit(("t", at(0, 5)), version=version, retention_time=60_000)
    commit(("t", at(1, 5)), version=version, retention_time=0)
    assert offsets_of(node).get("g", "t", 0).expire_timestamp_ms == NOW_MS + 60_000
    assert offsets_of(node).get("g", "t", 1).expire_timestamp_ms == NOW_MS


def test_what_a_group_that_is_not_there_answers(commit):
    assert commit(("t", at(0, 1)), version=8, generation=1, member="m")[0][2] == codes.ILLEGAL_GENERATION
    assert commit(("t", at(0, 1)), version=9, generation=1, member="m")[0][2] == codes.GROUP_ID_NOT_FOUND
    assert commit(("t", at(0, 1)), group="")[0][2] == codes.NONE


def test_metadata_that_is_too_large(commit):
    answer = commit(("t", at(0, 1, "x" * 4097), at(1, 1, "é" * 4096)))
    assert answer == [("t", 0, codes.OFFSET_METADATA_TOO_LARGE), ("t", 1, 0)]


@pytest.mark.parametrize(
    ("handler", "version", "fields"),
    [
        (offset_commit, 9, {"generation_id_or_member_epoch": -1}),
        (txn_offset_commit, 5, {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "generation_id": -1}),
    ],
)
def test_an_answer_waits_for_the_journal(node, journal, handler, version, fields):
    journal.holds = True
    key = handler.API.key
    sent = bytearray()
    body = {
        "group_id": "g",
        "member_id": "",
        "group_instance_id": None,
        "topics": topics(node, ("t", at(0, 1))),
        **fields,
    }
    messages.compile_writer(messages._schema(key, version, "request")).write(sent, body)
    decoded = handler.API.read(version, bytes(sent), 0)
    answer = handler.API.handle(node.parts, Request(key, version, 1, asking("test"), decoded))
    assert isinstance(answer, Later)
    assert answer._done is None
    journal.release()
    told = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 0}]}]}
    done = finish(answer._done.body) if isinstance(answer._done, Steps) else answer._done
    assert done in (told, messages.encode_body(key, version, told))


@pytest.mark.parametrize("version", range(5, 11))
def test_a_long_commit_is_read_as_a_short_one(node, version):
    api = offset_commit.API
    assert api.is_read_in_steps(version)
    body = {"group_id": "g", "member_id": "m", "group_instance_id": None, "generation_id_or_member_epoch": 4}
    body["topics"] = topics(node, ("t", at(0, 1), at(1, 2**40, "x" * 50, 7)), ("nope", at(5, 6)), ("u",))
    sent = bytearray()
    messages.compile_writer(messages._schema(COMMIT, version, "request")).write(sent, body)
    general = messages.decode_request(COMMIT, version, bytes(sent), 0)
    assert finish(api.from_body(general, version)) == api.read(version, bytes(sent), 0)


def test_a_long_commit_with_a_lifetime_beyond_the_calendar_is_left_to_the_quick_decoder():
    assert not any(offset_commit.API.is_read_in_steps(version) for version in (2, 3, 4))


# ── OffsetFetch ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(1, 11))
def test_fetching_over_all_versions(commit, fetch, topic_id, version):
    commit(("t", at(0, 5, "m", 3)))
    name = topic_id if version >= 10 else "t"
    answer = fetch((("t", 0, 1, 9),), version)
    assert offsets(answer) == {(name, 0): (5, 0), (name, 1): (-1, 0), (name, 9): (-1, 0)}
    first, second, _ = answer.topics[0].partitions
    assert (first.metadata, second.metadata) == ("m", "")
    if version >= 5:
        assert (first.committed_leader_epoch, second.committed_leader_epoch) == (3, -1)


@pytest.mark.parametrize("version", range(2, 11))
def test_fetching_all_that_there_is(commit, fetch, topic_id, version):
    commit(("t", at(1, 5)))
    assert offsets(fetch(None, version)) == {(topic_id if version >= 10 else "t", 1): (5, 0)}
    assert fetch(None, version, group="never").topics == ()


def test_unknown_names_have_no_offset_and_unknown_ids_are_errors_behind_the_rest(commit, fetch, topic_id):
    commit(("t", at(0, 5)))
    assert offsets(fetch((("nope", 0),), 9)) == {("nope", 0): (-1, 0)}
    answer = fetch((("nope", 0), ("t", 0)), 10)
    assert list(offsets(answer).items()) == [((topic_id, 0), (5, 0)), ((NOBODY, 0), (-1, codes.UNKNOWN_TOPIC_ID))]


@pytest.mark.parametrize("version", range(1, 11))
def test_an_error_of_the_group_stands_where_the_version_has_room_for_it(node, fetch, version):
    coordinators(node).groups = RefusingGroups(codes.STALE_MEMBER_EPOCH)
    answer = fetch((("t", 0), ("nope", 0)), version, member_id="m", member_epoch=4)
    if version == 1:
        stale = (-1, codes.STALE_MEMBER_EPOCH)
        assert offsets(answer) == {("t", 0): stale, ("nope", 0): stale}
    else:
        assert (answer.error_code, answer.topics) == (codes.STALE_MEMBER_EPOCH, ())
    assert node.parts.groups.asked == (("g", "m", 4) if version >= 9 else ("g", None, -1))


@pytest.mark.parametrize("version", range(7, 11))
def test_a_partition_with_an_open_transaction_is_unstable_for_who_asks(node, commit, fetch, topic_id, version):
    commit(("t", at(0, 5)))
    offsets_of(node).pend(1, "g", [("t", 0, CommittedOffset(9))])
    at_0 = (topic_id if version >= 10 else "t", 0)
    assert offsets(fetch((("t", 0),), version)) == {at_0: (5, 0)}
    assert offsets(fetch((("t", 0),), version, stable=True)) == {at_0: (-1, codes.UNSTABLE_OFFSET_COMMIT)}
    offsets_of(node).end_transaction(1, True)
    assert offsets(fetch((("t", 0),), version, stable=True)) == {at_0: (9, 0)}


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_are_answered_in_order(node, client, commit, version):
    commit(("t", at(0, 5)), group="b")
    asked = [{"group_id": each, "topics": None} for each in ("a", "b", "a")]
    answer = client.ask(node, FETCH, version, groups=asked, require_stable=False)
    assert [(each.group_id, len(each.topics)) for each in answer.groups] == [("a", 0), ("b", 1), ("a", 0)]
    assert client.ask(node, FETCH, version, groups=[], require_stable=False).groups == ()


def test_a_group_that_is_named_again_and_again_is_not_told_without_end(node, client, commit, monkeypatch):
    monkeypatch.setattr(offset_fetch, "REPEATED_MAX", 10)
    commit(("t", at(0, 5), at(1, 6)), group="b")
    whole, one = {"group_id": "b", "topics": None}, {"group_id": "b", "topics": topics(node, ("t", 0))}
    one["topics"][0]["partition_indexes"] = one["topics"][0].pop("partitions")
    answer = client.ask(node, FETCH, 9, groups=[whole] * 100 + [one] * 3, require_stable=False)
    assert len(answer.groups) == 1 + 4 + 3
    assert {each.group_id for each in answer.groups} == {"b"}


# ── OffsetDelete ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def delete(node, client):
    def call(*parts, group="g"):
        asked = topics(node, *((name, *({"partition_index": each} for each in indexes)) for name, *indexes in parts))
        answer = client.ask(node, DELETE, 0, group_id=group, topics=asked)
        return answer.error_code, told(answer)

    return call


def test_deleting_offsets(node, commit, delete):
    commit(("t", at(0, 5), at(1, 6)))
    unknown = codes.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(("t", 0, 9), ("nope", 0)) == (0, [("t", 9, unknown), ("t", 0, 0), ("nope", 0, unknown)])
    assert offsets_of(node).all("g").keys() == {("t", 1)}
    assert delete(("t", 0)) == (0, [("t", 0, 0)])
    assert delete() == (0, [])


def test_deleting_from_a_group_that_refuses(node, delete):
    assert delete(("t", 0), group="") == (codes.INVALID_GROUP_ID, [])
    assert delete(("t", 0), ("nope", 0), group="never") == (codes.GROUP_ID_NOT_FOUND, [])
    assert delete(group="never") == (codes.GROUP_ID_NOT_FOUND, [])
    coordinators(node).groups = RefusingGroups(codes.NON_EMPTY_GROUP)
    assert delete(("t", 0), ("nope", 0)) == (codes.NON_EMPTY_GROUP, [])


# ── TxnOffsetCommit ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def commit_in_transaction(node, client):
    def call(*parts, version=5, group="g", generation=-1, member="", instance=None):
        who = {"generation_id": generation, "member_id": member, "group_instance_id": instance}
        body = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 1, "group_id": group, **who}
        return told(client.ask(node, TXN_COMMIT, version, topics=topics(node, *parts), **body))

    return call


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_transaction_count_when_it_is_committed(node, commit_in_transaction, version):
    assert commit_in_transaction(("t", at(0, 5, "m", 3)), version=version) == [("t", 0, 0)]
    assert offsets_of(node).get("g", "t", 0) is None
    place = partition_for("g", 50)
    node.parts.groups.transaction_ended(7, place, True)
    expected = CommittedOffset(5, 3 if version >= 2 else -1, "m", NOW_MS)
    assert offsets_of(node).get("g", "t", 0) == expected
    verified, added = node.parts.transactions.verified, node.parts.transactions.added
    if version >= 5:
        assert (verified, added) == ([], [("x", 7, 1, (OFFSETS_TOPIC, place))])
    else:
        assert (verified, added) == ([("x", 7, 1, OFFSETS_TOPIC, place)], [])


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_that_does_not_take_them(node, commit_in_transaction, version):
    node.parts.transactions.code = codes.TRANSACTION_ABORTABLE
    told_code = codes.TRANSACTION_ABORTABLE if version >= 4 else codes.INVALID_TXN_STATE
    answer = commit_in_transaction(("t", at(0, 5), at(9, 1)), version=version)
    assert answer == [("t", 9, codes.UNKNOWN_TOPIC_OR_PARTITION), ("t", 0, told_code)]
    node.parts.transactions.code = codes.PRODUCER_FENCED
    assert commit_in_transaction(("t", at(0, 5)), version=version) == [("t", 0, codes.INVALID_PRODUCER_EPOCH)]
    node.parts.transactions.code = codes.INVALID_PRODUCER_ID_MAPPING
    assert commit_in_transaction(("t", at(0, 5)), version=version)[0][2] == codes.INVALID_PRODUCER_ID_MAPPING
    assert offsets_of(node).group_ids() == set()


@pytest.mark.parametrize("version", range(6))
def test_the_group_hears_who_commits_in_a_transaction(node, commit_in_transaction, version):
    coordinators(node).groups = RefusingGroups(codes.ILLEGAL_GENERATION)
    answer = commit_in_transaction(("t", at(0, 1)), version=version, generation=4, member="m", instance="i")
    assert answer == [("t", 0, codes.ILLEGAL_GENERATION)]
    assert node.parts.groups.asked == (("g", "m", 4, "i", version) if version >= 3 else ("g", "", -1, None, version))


@pytest.mark.parametrize("version", range(6))
def test_old_producers_are_not_told_of_loading(node, commit_in_transaction, version):
    coordinators(node).groups = RefusingGroups(codes.COORDINATOR_LOAD_IN_PROGRESS)
    loading = codes.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else codes.COORDINATOR_NOT_AVAILABLE
    assert commit_in_transaction(("t", at(0, 1)), version=version) == [("t", 0, loading)]


def test_a_transaction_must_name_a_group_and_known_topics(node, commit_in_transaction):
    parts = ("nope", at(0, 1)), ("t", at(0, 1), at(1, 1))
    unknown, invalid = codes.UNKNOWN_TOPIC_OR_PARTITION, codes.INVALID_GROUP_ID
    assert commit_in_transaction(*parts, group="") == [("nope", 0, unknown), ("t", 0, invalid), ("t", 1, invalid)]
    assert commit_in_transaction(("nope", at(0, 1))) == [("nope", 0, unknown)]
    assert node.parts.transactions.added == []
