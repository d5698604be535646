"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and what shows transactions, as clients see them."""

from types import SimpleNamespace

import pytest
from coordinators import coordinators, load_all
from node_clients import connected
from sessions import asking

from headrace.broker.api import Later, Request
from headrace.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)
from headrace.broker.handlers.transaction_errors import for_produce
from headrace.broker.steps import Steps
from headrace.coordinator.journal import MemoryJournal
from headrace.coordinator.placing import partition_for
from headrace.coordinator.transactions import coordinator as transactions_module
from headrace.coordinator.transactions.coordinator import Transactions
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.core.errors import StorageError
from headrace.core.steps import finish
from headrace.log.transactions import Marker
from headrace.protocol import error_codes as codes
from headrace.protocol import messages
from headrace.protocol.message_reader import compile_reader
from headrace.protocol.message_writer import compile_writer
from headrace.protocol.records import Record, build_batch

HANDLERS = (
    init_producer_id,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    describe_producers,
    describe_transactions,
    list_transactions,
    write_txn_markers,
)
APIS = {each.API.key: each.API for each in HANDLERS}
INIT, ADD, OFFSETS, END, MARKERS, PRODUCERS, DESCRIBE, LIST = 22, 24, 25, 26, 27, 61, 65, 66


class Client:
    def __init__(self, node):
        self.node = node
        self.journal = MemoryJournal(4)
        coordinators(node).transactions = Transactions(
            self.journal,
            node.clock,
            lambda seconds, callback: None,
            TransactionSettings(),
            node.producer_ids.next,
            SimpleNamespace(write=lambda end, partitions, done: done(None)),
            lambda group_id: partition_for(group_id, 50),
        )
        load_all(node.parts.transactions, 4)

    def ask(self, key, version=None, **body):
        """Through bytes there and back."""
        api = APIS[key]
        version = api.high if version is None else version
        sent = bytearray()
        compile_writer(messages._schema(key, version, "request")).write(sent, body)
        decoded = messages.decode_request(key, version, bytes(sent), 0)
        answer = api.handle(self.node.parts, Request(key, version, 1, asking("test"), decoded))
        if isinstance(answer, Steps):
            answer = finish(answer.body)
        if isinstance(answer, Later):
            return answer
        received = messages.encode_response(key, version, 1, answer)
        schema = messages._schema(key, version, "response")
        entity, end = compile_reader(schema).read(received, 5 if schema.__flexible__ else 4)
        assert end == len(received)
        return entity

    def init(self, name="t", version=5, timeout=60_000, **producer):
        if version >= 3:
            producer = {"producer_id": -1, "producer_epoch": -1} | producer
        return self.ask(INIT, version, transactional_id=name, transaction_timeout=timeout, **producer)

    def add(self, version, producer, *partitions, name="t", verify_only=False):
        """Codes by partition."""
        topics = [{"name": topic, "partitions": [index]} for topic, index in partitions]
        if version < 4:
            results = self.ask(
                ADD,
                version,
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=topics,
            ).results_by_topic_v3_and_below
        else:
            transaction = {
                "transactional_id": name,
                "producer_id": producer[0],
                "producer_epoch": producer[1],
                "verify_only": verify_only,
                "topics": topics,
            }
            [result] = self.ask(ADD, version, transactions=[transaction]).results_by_transaction
            assert result.transactional_id == name
            results = result.topic_results
        return {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in results
            for each in topic.results_by_partition
        }

    def end(self, version, producer, committed=True, name="t"):
        return self.ask(
            END,
            version,
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )

    def add_offsets(self, version, producer):
        body = {"transactional_id": "t", "producer_id": producer[0], "producer_epoch": producer[1], "group_id": "g1"}
        return self.ask(OFFSETS, version, **body).error_code


@pytest.fixture
def txn(node, client):
    client.create(node, "x", 2)
    return Client(node)


@pytest.fixture
def producer(txn):
    given = txn.init()
    return given.producer_id, given.producer_epoch


X = ("x", 0)


@pytest.mark.parametrize("version", range(6))
def test_each_producer_without_a_transactional_id_gets_an_id_of_its_own(txn, version):
    first, second = txn.init(None, version), txn.init(None, version)
    assert (first.error_code, first.producer_epoch) == (codes.NONE, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize("version", range(6))
def test_each_producer_of_a_transactional_id_gets_the_next_epoch(txn, version):
    first, second = txn.init(version=version), txn.init(version=version)
    assert (first.error_code, first.producer_epoch) == (codes.NONE, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)


def test_half_a_producer_is_refused(txn):
    assert txn.init(producer_id=5).error_code == codes.INVALID_REQUEST
    assert txn.init(None, producer_epoch=5).error_code == codes.INVALID_REQUEST


def test_an_empty_transactional_id_and_a_long_timeout_are_refused(txn):
    assert txn.init("").error_code == codes.INVALID_REQUEST
    assert txn.init(timeout=900_001).error_code == codes.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_id_that_cannot_be_reserved_is_an_error_of_the_disk(txn):
    def broken():
        raise StorageError("no")

    txn.node.producer_ids.next = broken
    assert txn.init(None).error_code == codes.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(("version", "code"), [(3, codes.INVALID_PRODUCER_EPOCH), (4, codes.PRODUCER_FENCED)])
def test_a_fenced_producer_is_told_so_in_words_that_it_knows(txn, producer, version, code):
    assert txn.init(version=version, producer_id=producer[0], producer_epoch=9).error_code == code


@pytest.mark.parametrize("version", range(5))
def test_what_is_fenced_has_an_older_name_in_older_versions(txn, producer, version):
    old = producer[0], producer[1] - 1
    code = codes.INVALID_PRODUCER_EPOCH if version < 2 else codes.PRODUCER_FENCED
    assert txn.add(version, old, X) == {X: code}
    assert txn.add_offsets(version, old) == code
    assert txn.end(version, old).error_code == code


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added(txn, producer, version):
    assert txn.add(version, producer, X, ("x", 1)) == {X: codes.NONE, ("x", 1): codes.NONE}
    assert txn.add(5, producer, X, verify_only=True) == {X: codes.NONE}


@pytest.mark.parametrize("version", range(6))
def test_one_partition_that_does_not_exist_keeps_the_others_out(txn, producer, version):
    assert txn.add(version, producer, X, ("y", 0), ("x", 2)) == {
        X: codes.OPERATION_NOT_ATTEMPTED,
        ("y", 0): codes.UNKNOWN_TOPIC_OR_PARTITION,
        ("x", 2): codes.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_client_may_not_add_partitions_of_internal_topics(txn, producer):
    internal = ("__consumer_offsets", 0)
    assert txn.add(3, producer, X, internal) == {
        X: codes.OPERATION_NOT_ATTEMPTED,
        internal: codes.TOPIC_AUTHORIZATION_FAILED,
    }


def test_verifying_adds_nothing(txn, producer):
    assert txn.add(5, producer, X, verify_only=True) == {X: codes.TRANSACTION_ABORTABLE}
    assert txn.add(5, producer, X, name="nobody", verify_only=True) == {X: codes.INVALID_PRODUCER_ID_MAPPING}


def test_many_transactions_are_added_to_at_a_time(txn):
    transactions = []
    for name in ("t", "u"):
        given = txn.init(name)
        transactions.append(
            {
                "transactional_id": name,
                "producer_id": given.producer_id,
                "producer_epoch": given.producer_epoch + (name == "u"),
                "verify_only": False,
                "topics": [{"name": "x", "partitions": [0]}],
            }
        )
    answer = txn.ask(ADD, transactions=transactions)
    assert [each.transactional_id for each in answer.results_by_transaction] == ["t", "u"]
    assert [
        each.topic_results[0].results_by_partition[0].partition_error_code for each in answer.results_by_transaction
    ] == [codes.NONE, codes.PRODUCER_FENCED]
    assert txn.ask(ADD, transactions=[]).results_by_transaction == ()


@pytest.mark.parametrize("version", range(5))
def test_before_version_5_an_end_keeps_the_epoch(txn, producer, version):
    txn.add(3, producer, X)
    assert txn.end(version, producer).error_code == codes.NONE
    assert txn.end(version, producer).error_code == codes.NONE
    assert txn.end(version, producer, False).error_code == codes.INVALID_TXN_STATE
    assert txn.add(3, producer, X) == {X: codes.NONE}


def test_from_version_5_on_an_end_tells_the_next_epoch(txn, producer):
    txn.add(5, producer, X)
    for _ in range(2):
        ended = txn.end(5, producer)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (codes.NONE, producer[0], 1)
    refused = txn.end(5, producer, False)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (codes.INVALID_TXN_STATE, -1, -1)


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added(txn, producer, version):
    assert txn.add_offsets(version, producer) == codes.NONE
    [state] = txn.ask(DESCRIBE, transactional_ids=["t"]).transaction_states
    assert [(each.topic, each.partitions) for each in state.topics] == [("__consumer_offsets", (42,))]


def test_an_answer_waits_for_the_journal(txn, producer):
    txn.journal.holds = True
    assert isinstance(txn.end(5, producer, False), Later)


def test_transactions_are_described_and_listed(txn, producer):
    txn.add(5, producer, X)
    known, unknown = txn.ask(DESCRIBE, transactional_ids=["t", "u"]).transaction_states
    assert (known.error_code, known.transaction_state, known.producer_id) == (codes.NONE, "Ongoing", producer[0])
    assert unknown.error_code == codes.TRANSACTIONAL_ID_NOT_FOUND
    for version in range(3):
        answer = txn.ask(LIST, version, state_filters=["Ongoing", "Bogus"], producer_id_filters=[])
        assert [each.transactional_id for each in answer.transaction_states] == ["t"]
        assert answer.unknown_state_filters == ("Bogus",)
    filters = {"state_filters": [], "producer_id_filters": []}
    assert txn.ask(LIST, 1, duration_filter=0, **filters).transaction_states == ()
    assert txn.ask(LIST, 2, transactional_id_pattern="u.*", **filters).transaction_states == ()
    assert txn.ask(LIST, 2, transactional_id_pattern="[", **filters).error_code == codes.INVALID_REGULAR_EXPRESSION


def test_an_id_without_a_transaction_is_described_without_a_start(txn, producer):
    [state] = txn.ask(DESCRIBE, transactional_ids=["t"]).transaction_states
    assert (state.transaction_state, state.topics) == ("Empty", ())
    assert state.transaction_start_time.timestamp() * 1000 == -1


def test_the_producers_of_a_partition_are_described(txn):
    txn.node.topics.get("x").partitions[0].led.producers.record(7, 3, 0, 4, 100, 104, 1234)

    def partitions(name, *indexes):
        [topic] = txn.ask(PRODUCERS, topics=[{"name": name, "partition_indexes": indexes}]).topics
        return topic.partitions

    [found] = partitions("x", 0)
    [one] = found.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp) == (7, 3, 4, 1234)
    assert (one.coordinator_epoch, one.current_txn_start_offset) == (-1, -1)
    [missing] = partitions("x", 9)
    assert (missing.error_code, missing.error_message) == (codes.UNKNOWN_TOPIC_OR_PARTITION, None)
    assert partitions("nope", 0)[0].error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert partitions("b@d", 0)[0].error_code == codes.INVALID_TOPIC_EXCEPTION


def test_a_marker_is_answered_when_it_is_written_and_not_before(txn):
    asked, told = [], []

    def write_marker(marker, topic, index, done):
        asked.append((marker, topic, index))
        told.append(done)

    coordinators(txn.node).write_marker = write_marker
    topics = [{"name": "x", "partition_indexes": [0, 0, 1, 9]}]
    one = {"producer_id": 7, "producer_epoch": 1, "transaction_result": True, "topics": topics, "coordinator_epoch": 2}
    answer = txn.ask(MARKERS, markers=[one])
    assert isinstance(answer, Later)
    assert asked == [(Marker(7, 1, 2, True), "x", 0), (Marker(7, 1, 2, True), "x", 1)]
    told[0](None)
    assert answer._done is None
    told[1](StorageError("full"))
    (found,) = finish(answer._done.body)["markers"]
    codes_by_index = {each["partition_index"]: each["error_code"] for each in found["topics"][0]["partitions"]}
    assert codes_by_index == {0: 0, 1: codes.KAFKA_STORAGE_ERROR, 9: codes.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    ("code", "version", "answered"),
    [
        (codes.NONE, 12, codes.NONE),
        (codes.PRODUCER_FENCED, 12, codes.INVALID_PRODUCER_EPOCH),
        (codes.TRANSACTION_ABORTABLE, 10, codes.INVALID_TXN_STATE),
        (codes.TRANSACTION_ABORTABLE, 11, codes.TRANSACTION_ABORTABLE),
        (codes.CONCURRENT_TRANSACTIONS, 11, codes.NOT_ENOUGH_REPLICAS),
        (codes.CONCURRENT_TRANSACTIONS, 12, codes.CONCURRENT_TRANSACTIONS),
        (codes.COORDINATOR_LOAD_IN_PROGRESS, 12, codes.NOT_ENOUGH_REPLICAS),
        (codes.INVALID_PRODUCER_ID_MAPPING, 9, codes.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_produce_answers_in_codes_that_its_version_knows(code, version, answered):
    assert for_produce(code, version) == answered


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_more_transactional_ids_are_remembered_than_the_bound(txn):
    txn.node.parts.transactions.settings = TransactionSettings(ids_max=2)
    assert [txn.init(name).error_code for name in ("a", "b", "c", "a")] == [0, 0, 44, 0]


def test_transactions_that_may_have_timed_out_are_looked_at_in_slices(txn, monkeypatch):
    later = []
    monkeypatch.setattr(transactions_module, "IDS_PER_TURN", 2)
    monkeypatch.setattr(txn.node.parts.transactions, "_call_later", lambda seconds, work: later.append(work))
    looked = []
    txn.node.parts.transactions._in_slices([1, 2, 3, 4, 5], looked.append)
    while later:
        later.pop()()
    assert looked == [[1, 2], [3, 4], [5]]


def test_one_request_cannot_write_for_two_producers_in_one_transaction(node, client):
    """Only one of them would be added to the transaction; what the other has written would hold up readers for good."""
    client.create(node, "orders", 2)
    node.coordination.make_topic("__transaction_state")
    given = []
    for name in ("other", "one"):
        node.transactions.init_producer_id(name, 60_000, None, given.append)
        node._end_of_turn()
    producers = [(each["producer_id"], each["producer_epoch"]) for each in given]
    batches = [
        build_batch(
            [Record(0, node.clock.now_ms(), None, b"x")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        for producer_id, epoch in producers
    ]
    partitions = [{"index": index, "records": bytes(each)} for index, each in enumerate(batches)]
    with connected(node) as make:
        body = {"transactional_id": "one", "acks": -1, "timeout": 1000}
        topics = [{"name": "orders", "partition_data": partitions}]
        (topic,) = make().ask(0, 12, {**body, "topic_data": topics}).responses
    assert [each.error_code for each in topic.partition_responses] == [codes.INVALID_PRODUCER_ID_MAPPING] * 2
    assert [each.led.end_offset for each in node.topics.get("orders").partitions] == [0, 0]
