"""Transactions over every version: what producers ask, what readers see, and what an administrator is told."""

import itertools

import pytest
import raw
import raw_groups
from raw import FETCH, INIT_PRODUCER_ID, LIST_OFFSETS, PRODUCE, Client, ErrorCode
from raw_groups import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    END_TXN,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
    Member,
    TransactionalProducer,
    committed,
    describe_transaction,
)
from waits import NEVER_MS, eventually

each_init = pytest.mark.parametrize("version", raw_groups.versions(INIT_PRODUCER_ID))
each_add = pytest.mark.parametrize("version", raw_groups.versions(ADD_PARTITIONS_TO_TXN))
each_add_offsets = pytest.mark.parametrize("version", raw_groups.versions(ADD_OFFSETS_TO_TXN))
each_end = pytest.mark.parametrize("version", raw_groups.versions(END_TXN))
each_offset_commit = pytest.mark.parametrize("version", raw_groups.versions(TXN_OFFSET_COMMIT))
each_produce = pytest.mark.parametrize("version", raw.versions(PRODUCE))
each_fetch = pytest.mark.parametrize("version", raw.versions(FETCH))
each_list = pytest.mark.parametrize("version", raw_groups.versions(LIST_TRANSACTIONS))
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


pytestmark = pytest.mark.usefixtures("warm_coordinators")


@pytest.fixture
def topic(client):
    return raw.make_topic(client, partitions=2)


@pytest.fixture
def producer(client):
    return TransactionalProducer(client).started()


def fetched(client, topic, isolation=READ_COMMITTED, version=16, offset=0):
    """The one partition's answer, records and all."""
    body = raw.fetch_body((topic, 0, offset), max_wait=0, isolation_level=isolation)
    return client.call(FETCH, version, body).responses[0].partitions[0]


def read_committed(client, topic):
    """What a client shows: batches of aborted transactions and control batches are left out."""
    found = fetched(client, topic)
    starts = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
    aborted, seen = set(), []
    for batch in raw.batches(found.records):
        while starts and starts[0][0] <= batch.base_offset:
            aborted.add(starts.pop(0)[1])
        if batch.attributes & raw.CONTROL:
            aborted.discard(batch.producer_id)
        elif not (batch.attributes & raw.TRANSACTIONAL and batch.producer_id in aborted):
            seen += [record.value for record in batch.records()]
    return seen


def end_of_log(client, topic, isolation, partition=0):
    asked = [{"partition_index": partition, "timestamp": -1}]
    body = {"replica_id": -1, "isolation_level": isolation, "topics": [topic.ref | {"partitions": asked}]}
    return client.call(LIST_OFFSETS, 8, body).topics[0].partitions[0].offset


# InitProducerId


@each_init
def test_each_start_of_a_transactional_id_has_the_same_producer_id_and_a_new_epoch(client, version):
    producer = TransactionalProducer(client)
    first, second = producer.init(version), producer.init(version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.error_code, second.producer_id, second.producer_epoch) == (0, first.producer_id, 1)


@each_init
def test_an_id_that_makes_no_sense_is_refused(client, version):
    producer = TransactionalProducer(client)
    assert producer.init(version, transactional_id="").error_code == ErrorCode.invalid_request
    invalid = ErrorCode.invalid_transaction_timeout
    assert producer.init(version, transaction_timeout=0).error_code == invalid
    assert producer.init(version, transaction_timeout=900_001).error_code == invalid
    if version >= 3:
        assert producer.init(version, producer_id=5, producer_epoch=-1).error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_bumps_its_own_epoch_and_a_zombie_is_fenced(client, version):
    producer = TransactionalProducer(client).started()
    mine = {"producer_id": producer.producer_id, "producer_epoch": 0}
    assert producer.init(version, **mine).producer_epoch == 1
    assert producer.init(version, **mine).producer_epoch == 1, "asked again after a lost answer"
    TransactionalProducer(client, producer.name).started()
    fenced = ErrorCode.producer_fenced if version >= 4 else ErrorCode.invalid_producer_epoch
    assert producer.init(version, **mine).error_code == fenced


# The older form: a transaction names its partitions and groups before it writes.


@each_add
def test_partitions_are_added_and_written_and_seen_after_the_commit(client, topic, producer, version):
    for round_number in range(2):
        assert producer.add_partitions(version, topic, 0, 1) == [0, 0]
        assert producer.produce(11, topic, b"%d" % round_number).error_code == 0
        assert producer.produce(11, topic, b"x", partition=1).error_code == 0
        assert read_committed(client, topic) == [b"0"][:round_number]
        assert producer.end(4, commit=True).error_code == 0
        raw.eventually(lambda at=round_number: read_committed(client, topic) == [b"0", b"1"][: at + 1])


@each_add
def test_partitions_that_do_not_exist_are_refused_and_none_added(client, topic, producer, version):
    errors = producer.add_partitions(version, topic, 0, 7)
    assert errors == [ErrorCode.operation_not_attempted, ErrorCode.unknown_topic_or_partition]
    assert describe_transaction(client, producer.name).topics == {}


@each_add
def test_an_older_epoch_adds_no_partitions(client, topic, producer, version):
    TransactionalProducer(client, producer.name).started()
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert producer.add_partitions(version, topic, 0) == [fenced]
    unknown = producer.add_partitions(version, topic, 0, producer_id=producer.producer_id + 99999)
    assert unknown == [ErrorCode.invalid_producer_id_mapping]


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_asks_only_whether_partitions_were_added(client, topic, producer, version):
    not_added = ErrorCode.transaction_abortable
    assert producer.add_partitions(version, topic, 0, verify_only=True) == [not_added]
    assert producer.add_partitions(3, topic, 0) == [0]
    assert producer.add_partitions(version, topic, 0, 1, verify_only=True) == [0, not_added]


@each_produce
def test_a_partition_that_was_not_added_is_written_by_newer_versions_only(client, topic, producer, version):
    refused = ErrorCode.transaction_abortable if version == 11 else ErrorCode.invalid_txn_state
    assert producer.produce(version, topic, b"x").error_code == (0 if version >= 12 else refused)
    ended = producer.end(5 if version >= 12 else 4, commit=True).error_code
    assert ended == (0 if version >= 12 else ErrorCode.invalid_txn_state)
    raw.eventually(lambda: read_committed(client, topic) == ([b"x"] if version >= 12 else []))


@each_produce
def test_a_zombie_of_an_older_epoch_does_not_write(client, topic, producer, version):
    zombie = TransactionalProducer(client, producer.name)
    zombie.take(producer.producer_id, producer.epoch)
    producer.started()
    assert producer.add_partitions(3, topic, 0) == [0]
    assert producer.produce(11, topic, b"mine").error_code == 0
    assert zombie.produce(version, topic, b"zombie").error_code == ErrorCode.invalid_producer_epoch
    producer.end(4, commit=True)
    raw.eventually(lambda: read_committed(client, topic) == [b"mine"])


# EndTxn


@each_end
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_is_committed_or_aborted(client, topic, producer, version, commit):
    before = (producer.producer_id, producer.epoch)
    assert producer.add_partitions(3, topic, 0) == [0]
    assert producer.produce(11, topic, b"a", b"b").error_code == 0
    answer = producer.end(version, commit=commit)
    assert answer.error_code == 0
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (before[0], before[1] + 1)
    raw.eventually(lambda: end_of_log(client, topic, READ_COMMITTED) == 3)
    assert read_committed(client, topic) == ([b"a", b"b"] if commit else [])
    # The producer did not hear the answer and asks again.
    again = producer.end(version, commit=commit, producer_epoch=before[1])
    assert again.error_code == 0
    if version >= 5:
        assert (again.producer_id, again.producer_epoch) == (before[0], before[1] + 1)
    other = producer.end(version, commit=not commit, producer_epoch=before[1])
    assert other.error_code == ErrorCode.invalid_txn_state


@each_end
def test_a_transaction_that_is_not_open_or_not_ones_own_is_not_ended(client, producer, version):
    assert producer.end(version, commit=True).error_code == ErrorCode.invalid_txn_state
    unknown = ErrorCode.invalid_producer_id_mapping
    assert producer.end(version, commit=True, producer_id=producer.producer_id + 99999).error_code == unknown
    assert producer.end(version, commit=True, transactional_id=raw.fresh_name("missing")).error_code == unknown
    TransactionalProducer(client, producer.name).started()
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert producer.end(version, commit=True).error_code == fenced


def test_an_abort_of_nothing_is_fine_for_the_newest_version(producer):
    before = producer.epoch
    answer = producer.end(5, commit=False)
    assert (answer.error_code, answer.producer_epoch) == (0, before + 1)


def test_a_new_start_aborts_what_the_former_left_open(client, topic, producer):
    assert producer.produce(13, topic, b"left open").error_code == 0
    assert end_of_log(client, topic, READ_COMMITTED) == 0
    TransactionalProducer(client, producer.name).started()
    raw.eventually(lambda: end_of_log(client, topic, READ_COMMITTED) == 2)
    assert read_committed(client, topic) == []


# Offsets in a transaction.


@each_add_offsets
def test_a_group_is_added_to_a_transaction(client, topic, producer, version):
    group = raw.fresh_name("group")
    assert producer.add_offsets(version, group) == 0
    assert producer.commit_offsets(4, group, topic, {0: 5}) == [0]
    assert committed(client, 8, group, topic).offset == -1
    assert producer.end(4, commit=True).error_code == 0
    raw.eventually(lambda: committed(client, 8, group, topic).offset == 5)
    TransactionalProducer(client, producer.name).started()
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert producer.add_offsets(version, group) == fenced


@each_offset_commit
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_offsets_wait_for_the_end_of_their_transaction(client, topic, producer, version, commit):
    group = raw.fresh_name("group")
    assert raw_groups.commit(client, 8, group, topic, {0: 1}) == [0]
    if version < 5:
        assert producer.add_offsets(4, group) == 0
    assert producer.commit_offsets(version, group, topic, {0: 5, 1: 6}) == [0, 0]
    assert committed(client, 8, group, topic).offset == 1
    unstable = committed(client, 8, group, topic, require_stable=False)
    assert unstable.offset == 1
    asked = [{"group_id": group, "topics": [topic.ref | {"partition_indexes": [0]}]}]
    stable = client.call(raw_groups.OFFSET_FETCH, 8, {"groups": asked, "require_stable": True})
    part = stable.groups[0].topics[0].partitions[0]
    assert (part.error_code, part.committed_offset) == (ErrorCode.unstable_offset_commit, -1)
    assert producer.end(5 if version >= 5 else 4, commit=commit).error_code == 0
    expected = (5, 6) if commit else (1, -1)

    def found():
        return tuple(committed(client, 8, group, topic, partition).offset for partition in range(2))

    def is_stable():
        answer = client.call(raw_groups.OFFSET_FETCH, 8, {"groups": asked, "require_stable": True})
        return answer.groups[0].topics[0].partitions[0].error_code == 0

    raw.eventually(is_stable)
    assert found() == expected


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_of_a_member_that_is_none_are_refused(bootstrap, client, topic, producer, version):
    with Member(bootstrap, raw.fresh_name("group")) as member:
        member.settle()
        assert producer.add_offsets(4, member.group) == 0
        mine = {"generation_id": member.generation, "member_id": member.id}
        for fields, error in (
            ({"generation_id": 9}, ErrorCode.illegal_generation),
            ({"member_id": "never seen"}, ErrorCode.unknown_member_id),
        ):
            assert producer.commit_offsets(version, member.group, topic, {0: 5}, **(mine | fields)) == [error]
        assert producer.commit_offsets(version, member.group, topic, {0: 5}, **mine) == [0]
        producer.end(5, commit=True)


# What readers see.


@each_fetch
def test_a_fetch_names_the_aborted_transactions_and_ends_at_the_last_stable_offset(client, version):
    topic = raw.make_topic(client)
    names = itertools.cycle([True, False, False])
    for number in range(6):
        one = TransactionalProducer(client).started()
        assert one.produce(13, topic, b"%d" % number).error_code == 0
        assert one.end(5, commit=next(names)).error_code == 0
        # Apache Kafka may answer before the marker is written.
        raw.eventually(lambda at=2 * number + 2: end_of_log(client, topic, READ_COMMITTED) == at)
    raw.produce(client, topic, raw.batch(raw.values(b"plain")))
    still_open = TransactionalProducer(client).started()
    assert still_open.produce(13, topic, b"open").error_code == 0
    raw.produce(client, topic, raw.batch(raw.values(b"after")))
    assert end_of_log(client, topic, READ_COMMITTED) == 13

    everything = fetched(client, topic, READ_UNCOMMITTED, version)
    assert (everything.high_watermark, everything.last_stable_offset) == (15, 13)
    assert everything.aborted_transactions is None
    assert raw.batches(everything.records)[-1].base_offset == 14
    stable = fetched(client, topic, READ_COMMITTED, version)
    assert (stable.high_watermark, stable.last_stable_offset) == (15, 13)
    assert sorted(each.first_offset for each in stable.aborted_transactions) == [2, 4, 8, 10]
    assert raw.batches(stable.records)[-1].base_offset == 12
    assert read_committed(client, topic) == [b"0", b"3", b"plain"]
    controls = [each for each in raw.batches(stable.records) if each.attributes & raw.CONTROL]
    kinds = [each.records()[0].key for each in controls]
    abort, commit = b"\0\0\0\0", b"\0\0\0\1"
    assert kinds == [commit, abort, abort, commit, abort, abort]
    # Only what concerns the part that is fetched.
    later = fetched(client, topic, READ_COMMITTED, version, offset=6)
    assert sorted(each.first_offset for each in later.aborted_transactions) == [8, 10]
    assert still_open.end(5, commit=True).error_code == 0
    raw.eventually(lambda: fetched(client, topic, READ_COMMITTED, version, offset=13).last_stable_offset == 16)


@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
def test_the_latest_offset_of_a_committed_reader_is_the_last_stable_one(client, topic, producer, isolation):
    raw.produce(client, topic, raw.batch(raw.values(b"plain")))
    assert producer.produce(13, topic, b"open").error_code == 0
    assert end_of_log(client, topic, isolation) == (1 if isolation else 2)


def test_a_fetch_that_waits_is_answered_when_the_transaction_ends(bootstrap, client, topic, producer):
    assert producer.produce(13, topic, b"x").error_code == 0
    with Client(bootstrap) as waiting:
        waiting.send(FETCH, 16, raw.fetch_body((topic, 0, 0), isolation_level=READ_COMMITTED))
        assert producer.end(5, commit=True).error_code == 0
        found = waiting.read().responses[0].partitions[0]
    assert raw.values_of(found.records)[0] == b"x"


def test_clients_write_no_control_batches(client, topic, producer):
    record = raw.Record(b"\0\0\0\0\0\0", key=b"\0\0\0\1", timestamp=raw.now_ms())
    kind = raw.TRANSACTIONAL | raw.CONTROL
    forged = raw.batch([record], attributes=kind, producer=(producer.producer_id, producer.epoch, -1))
    body = raw.produce_body((topic, 0, forged)) | {"transactional_id": producer.name}
    answer = client.call(PRODUCE, 13, body).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.invalid_record


# What an administrator is told.


def test_a_transaction_is_described_through_its_life(client, topic, producer):
    empty = describe_transaction(client, producer.name)
    assert (empty.error, empty.state, empty.start_ms, empty.topics) == (0, "Empty", -1, {})
    before_ms = raw.now_ms()
    assert producer.add_partitions(3, topic, 0, 1) == [0, 0]
    after_ms = raw.now_ms()
    found = describe_transaction(client, producer.name)
    assert (found.error, found.name, found.state) == (0, producer.name, "Ongoing")
    assert (found.producer_id, found.epoch) == (producer.producer_id, producer.epoch)
    assert found.timeout_ms == producer.timeout_ms
    assert before_ms <= found.start_ms <= after_ms
    assert {name: sorted(partitions) for name, partitions in found.topics.items()} == {topic.name: [0, 1]}
    producer.end(4, commit=True)
    raw.eventually(lambda: describe_transaction(client, producer.name).state == "CompleteCommit")
    assert producer.add_partitions(3, topic, 0) == [0]
    producer.end(4, commit=False)
    raw.eventually(lambda: describe_transaction(client, producer.name).state == "CompleteAbort")
    missing = describe_transaction(client, raw.fresh_name("missing"))
    assert missing.error == ErrorCode.transactional_id_not_found


@each_list
def test_transactions_are_listed_by_the_filters_of_the_version(client, topic, producer, version):
    assert producer.add_partitions(3, topic, 0) == [0]

    def listed(**filters):
        answer = client.call(LIST_TRANSACTIONS, version, {"duration_filter": -1} | filters)
        assert answer.error_code == 0
        return {each.transactional_id: (each.producer_id, each.transaction_state) for each in answer.transaction_states}

    mine = {producer.name: (producer.producer_id, "Ongoing")}
    assert listed().items() >= mine.items()
    assert listed(producer_id_filters=[producer.producer_id]) == mine
    assert producer.name in listed(state_filters=["Ongoing"])
    assert producer.name not in listed(state_filters=["CompleteCommit"])
    unknown = client.call(LIST_TRANSACTIONS, version, {"state_filters": ["Ongoing", "odd"], "duration_filter": -1})
    assert unknown.unknown_state_filters == ("odd",)
    if version >= 1:
        assert producer.name not in listed(duration_filter=NEVER_MS)
        assert producer.name in listed(duration_filter=0)
    if version >= 2:
        assert listed(transactional_id_pattern=f"{producer.name[:8]}.*").keys() >= {producer.name}
        assert listed(transactional_id_pattern="no-such.*") == {}


def test_the_producers_of_a_partition_are_described(client, topic, producer):
    def described():
        body = {"topics": [{"name": topic.name, "partition_indexes": [0]}]}
        found = client.call(DESCRIBE_PRODUCERS, 0, body).topics[0].partitions[0]
        assert found.error_code == 0
        return found.active_producers

    assert described() == ()
    assert producer.produce(13, topic, b"a", b"b").error_code == 0
    (seen,) = described()
    assert (seen.producer_id, seen.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (seen.last_sequence, seen.current_txn_start_offset) == (1, 0)
    producer.end(5, commit=True)
    raw.eventually(lambda: described()[0].current_txn_start_offset == -1)
    missing = client.call(DESCRIBE_PRODUCERS, 0, {"topics": [{"name": topic.name, "partition_indexes": [9]}]})
    assert missing.topics[0].partitions[0].error_code == ErrorCode.unknown_topic_or_partition


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(client, topic):
    """Apache Kafka looks for such transactions every ten seconds."""

    def begun() -> TransactionalProducer | None:
        """One whose first record came before its time was up, however slow the machine."""
        slow = TransactionalProducer(client, timeout_ms=500).started()
        return slow if slow.produce(13, topic, b"too slow").error_code == 0 else None

    slow = eventually(begun, "a transaction with a record in it")
    assert slow is not None
    raw.eventually(lambda: end_of_log(client, topic, READ_COMMITTED) == 2)
    assert read_committed(client, topic) == []
    assert slow.end(4, commit=True).error_code == ErrorCode.producer_fenced
    assert slow.produce(13, topic, b"later").error_code == ErrorCode.invalid_producer_epoch
