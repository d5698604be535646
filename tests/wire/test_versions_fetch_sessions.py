"""Fetch sessions: a full fetch opens one, and from then on only what has changed crosses the wire."""

import uuid

import pytest
import raw
from raw import FETCH, Client, ErrorCode, Topic, batch, fetch_body, make_topic, values

each_version = pytest.mark.parametrize("version", range(7, raw.latest(FETCH) + 1))


class Session:
    """Sends the fetches of one session with the epochs in order, and keeps the answers short."""

    def __init__(self, client, version):
        self.client, self.version, self.id, self.epoch = client, version, 0, 0

    def fetch(self, *parts, forget=(), **fields):
        """(error, {(topic, partition): (error, high watermark, number of records)})"""
        forgotten = [topic.ref | {"partitions": [index]} for topic, index in forget]
        usual = {"session_id": self.id, "session_epoch": self.epoch, "max_wait": 0}
        body = fetch_body(*parts, forgotten_topics_data=forgotten, **(usual | fields))
        answer = self.client.call(FETCH, self.version, body)
        if answer.error_code == 0 and not fields:
            assert answer.session_id == self.id or self.epoch == 0
            self.id, self.epoch = answer.session_id, self.epoch + 1
        self.answered_id = answer.session_id
        found = {
            (each.topic_id if self.version >= 13 else each.topic, data.partition_index): (
                data.error_code,
                data.high_watermark,
                len(raw.records_of(data.records)),
            )
            for each in answer.responses
            for data in each.partitions
        }
        return answer.error_code, found

    def key(self, topic, partition=0):
        return (topic.id if self.version >= 13 else topic.name), partition


@pytest.fixture
def topic(client):
    return make_topic(client, partitions=3)


@pytest.fixture
def session(client, version):
    opened = Session(client, version)
    yield opened
    opened.fetch(session_epoch=-1)  # a broker holds only so many sessions


@each_version
def test_epoch_0_opens_a_session_and_answers_every_partition(session, topic):
    code, found = session.fetch((topic, 0, 0), (topic, 1, 0))
    assert (code, found) == (0, {session.key(topic, 0): (0, 0, 0), session.key(topic, 1): (0, 0, 0)})
    assert session.id > 0


@each_version
def test_incremental_fetch_answers_only_partitions_with_news(client, session, topic):
    session.fetch((topic, 0, 0), (topic, 1, 0))
    assert session.fetch() == (0, {})
    raw.produce(client, topic, batch(values(b"x")), partition=1)
    assert session.fetch() == (0, {session.key(topic, 1): (0, 1, 1)})
    assert session.fetch() == (0, {session.key(topic, 1): (0, 1, 1)}), "the reader has not moved on"
    assert session.fetch((topic, 1, 1)) == (0, {})
    assert session.fetch() == (0, {})


@each_version
def test_partitions_are_added_to_a_session(session, client, topic):
    second = make_topic(client)
    session.fetch((topic, 0, 0))
    added = {session.key(topic, 2): (0, 0, 0), session.key(second): (0, 0, 0)}
    assert session.fetch((topic, 2, 0), (second, 0, 0)) == (0, added)
    assert session.fetch() == (0, {})
    raw.produce(client, second, batch(values(b"x", b"y")))
    assert session.fetch() == (0, {session.key(second): (0, 2, 2)})


@each_version
def test_forgotten_partitions_are_no_longer_fetched(session, client, topic):
    session.fetch((topic, 0, 0), (topic, 1, 0))
    assert session.fetch(forget=[(topic, 1)]) == (0, {})
    for partition in range(2):
        raw.produce(client, topic, batch(values(b"x")), partition=partition)
    assert session.fetch() == (0, {session.key(topic, 0): (0, 1, 1)})


@each_version
def test_new_log_start_is_news(session, client, topic):
    raw.produce(client, topic, batch(values(b"x")))
    session.fetch((topic, 0, 0))
    cut = [topic.ref | {"partitions": [{"partition_index": 0, "offset": 1}]}]
    client.call(raw.DELETE_RECORDS, 2, {"topics": cut, "timeout": 10000})
    assert session.fetch((topic, 0, 1)) == (0, {session.key(topic): (0, 1, 0)})
    assert session.fetch() == (0, {})


@each_version
@pytest.mark.parametrize("step", [-1, 1, 10])
def test_wrong_epoch_is_refused_and_the_session_goes_on(session, topic, step):
    session.fetch((topic, 0, 0))
    session.fetch()
    refused = session.fetch(session_epoch=session.epoch + step)
    assert refused == (ErrorCode.invalid_fetch_session_epoch, {})
    assert session.answered_id == 0
    assert session.fetch() == (0, {})


@each_version
def test_unknown_session_is_refused(session, topic):
    session.fetch((topic, 0, 0))
    refused = session.fetch((topic, 0, 0), session_id=session.id + 1, session_epoch=1)
    assert refused == (ErrorCode.fetch_session_id_not_found, {})
    assert session.answered_id == 0
    assert session.fetch((topic, 0, 0), session_id=0, session_epoch=5)[0] == ErrorCode.fetch_session_id_not_found


@each_version
def test_epoch_minus_1_closes_the_session_with_a_full_fetch(session, topic):
    session.fetch((topic, 0, 0))
    assert session.fetch((topic, 1, 0), session_epoch=-1) == (0, {session.key(topic, 1): (0, 0, 0)})
    assert session.answered_id == 0
    assert session.fetch() == (ErrorCode.fetch_session_id_not_found, {})


@each_version
def test_id_0_with_epoch_minus_1_makes_no_session(session, topic):
    full = session.fetch((topic, 0, 0), session_id=0, session_epoch=-1)
    assert full == (0, {session.key(topic): (0, 0, 0)})
    assert session.answered_id == 0


@each_version
def test_full_fetch_in_a_session_replaces_it(client, version, topic):
    session = Session(client, version)
    session.fetch((topic, 0, 0))
    first, session.epoch = session.id, 0
    assert session.fetch((topic, 1, 0)) == (0, {session.key(topic, 1): (0, 0, 0)})
    assert session.id not in (0, first)
    assert session.fetch(session_id=first, session_epoch=1) == (ErrorCode.fetch_session_id_not_found, {})


@each_version
def test_refused_partition_is_answered_until_it_is_good(session, topic):
    bad = {session.key(topic): (ErrorCode.offset_out_of_range, -1, 0)}
    assert session.fetch((topic, 0, 5)) == (0, bad)
    assert session.fetch() == (0, bad)
    assert session.fetch((topic, 0, 0)) == (0, {session.key(topic): (0, 0, 0)})
    assert session.fetch() == (0, {})


@each_version
def test_unknown_topic_and_partition_are_answered_in_every_round(session, topic, version):
    missing = Topic(raw.fresh_name("missing"), uuid.uuid4())
    code = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
    bad = {
        session.key(topic, 9): (ErrorCode.unknown_topic_or_partition, -1, 0),
        session.key(missing): (code, -1, 0),
    }
    assert session.fetch((topic, 9, 0), (missing, 0, 0)) == (0, bad)
    assert session.fetch() == (0, bad)


@each_version
def test_topic_deleted_under_a_session_is_answered_with_an_error(session, client):
    topic = make_topic(client)
    session.fetch((topic, 0, 0))
    doomed = [{"name": topic.name, "topic_id": None}]
    client.call(raw.DELETE_TOPICS, 6, {"topics": doomed, "timeout": 10000})
    gone = {ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id}

    def is_told():
        code, found = session.fetch()
        assert code == 0
        return found and found[session.key(topic)][0] in gone

    raw.eventually(is_told)


@each_version
def test_session_is_not_bound_to_its_connection(session, bootstrap, topic):
    session.fetch((topic, 0, 0))
    own = session.client
    with Client(bootstrap) as session.client:
        assert session.fetch() == (0, {})
    session.client = own
    assert session.fetch() == (0, {})


@each_version
def test_waiting_incremental_fetch_is_answered_by_a_record_in_any_of_its_partitions(session, bootstrap, topic):
    session.fetch((topic, 0, 0), (topic, 1, 0), (topic, 2, 0))
    usual = {"session_id": session.id, "session_epoch": session.epoch}
    session.client.send(FETCH, session.version, fetch_body(**usual))
    with Client(bootstrap) as other:
        raw.produce(other, topic, batch(values(b"x")), partition=2)
    (about,) = session.client.read().responses
    assert [(data.partition_index, data.high_watermark) for data in about.partitions] == [(2, 1)]


@pytest.mark.parametrize(("opened_with", "used_with"), [(12, 13), (13, 12)])
def test_session_does_not_change_between_names_and_ids(client, topic, opened_with, used_with):
    session = Session(client, opened_with)
    session.fetch((topic, 0, 0))
    session.version = used_with
    assert session.fetch() == (ErrorCode.fetch_session_topic_id_error, {})
    assert session.answered_id == 0
