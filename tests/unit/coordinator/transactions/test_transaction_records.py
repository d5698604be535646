"""The records of `__transaction_state`: bytes that Apache Kafka 4.3.1 wrote, and what they mean."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.transactions.records import decode_key, decode_value, encode_key, encode_value
from headrace.coordinator.transactions.transaction import Transaction, TransactionState

# Values from the log of a real Kafka: the Java client (transaction version 2) and librdkafka (version 1).
WRITTEN_BY_KAFKA = {
    "first epoch": "000100000000000000010000000075300000000001a1e2bf0630ffffffffffffffff0100080000000000000001",
    "one partition": (
        "000100000000000000010000000075300102076f7264657273020000000100000001a1e2bf068b000001a1e2bf068b"
        "020008000000000000000102020002"
    ),
    "decided, with offsets": (
        "00010000000000000001000300007530020404706179020000000000076f7264657273020000000100135f5f636f6e73756d65725f6f"
        "666673657473020000002a00000001a1e2bf0a4b000001a1e2bf0756020008000000000000000102020002"
    ),
    "complete": "000100000000000000010001000075300401000001a1e2bf06ed000001a1e2bf068b020008000000000000000102020002",
    "abort of nothing": (
        "0001000000000000000200010000ea600301000001a1e2c7f8c2000001a1e2c7f8c2020008000000000000000202020002"
    ),
    "version 1 client": (
        "0001000000000000000000000000ea60010304706179020000000100076f726465727303000000000000000200000001a1e2bef6b7"
        "000001a1e2bef6b70100080000000000000000"
    ),
    "a new producer id is next": (
        "000100000000000000077fff0000ea6002010000018bcfe5687b0000018bcfe568000300080000000000000007010800000000000003"
        "ef02020002"
    ),
}
PLAIN = "0000000000000000000700030000ea60010000000200066f7264657273000000020000000000000002000370617900000001000000010000018bcfe5687b0000018bcfe56800"  # noqa: E501
PLAIN_EMPTY = "0000000000000000000700030000ea6000ffffffff0000018bcfe5687b0000018bcfe56800"
FROM_LATER = (
    "000100000000000000077fff0000ea6002010000018bcfe5687b0000018bcfe56800"
    "0400080000000000000007010800000000000003ef0202000203020005"
)


@pytest.mark.parametrize("name", WRITTEN_BY_KAFKA)
def test_what_kafka_wrote_is_written_again_byte_for_byte(name):
    data = bytes.fromhex(WRITTEN_BY_KAFKA[name])
    assert encode_value(decode_value("t", data)) == data


def test_a_key_is_its_version_and_the_transactional_id():
    data = bytes.fromhex("000000076a6176612dc3a9")
    assert decode_key(data) == "java-é"
    assert encode_key("java-é") == data


def test_every_field_of_a_decided_transaction_is_read():
    found = decode_value("t", bytes.fromhex(WRITTEN_BY_KAFKA["decided, with offsets"]))
    assert found == Transaction(
        transactional_id="t",
        producer_id=1,
        previous_producer_id=1,
        producer_epoch=3,
        timeout_ms=30000,
        state=TransactionState.PREPARE_COMMIT,
        partitions=dict.fromkeys([("pay", 0), ("orders", 1), ("__consumer_offsets", 42)]),
        started_ms=1794805532502,
        updated_ms=1794805533259,
        client_version=2,
    )


def test_the_producer_id_that_comes_next_is_read():
    found = decode_value("t", bytes.fromhex(WRITTEN_BY_KAFKA["a new producer id is next"]))
    assert (found.producer_id, found.producer_epoch, found.next_producer_id) == (7, 32767, 1007)


@pytest.mark.parametrize("data", [PLAIN, PLAIN_EMPTY])
def test_version_0_is_read_and_written(data):
    found = decode_value("t", bytes.fromhex(data))
    assert (found.producer_id, found.previous_producer_id, found.client_version) == (7, -1, 0)
    assert encode_value(found, version=0).hex() == data


def test_a_tagged_field_of_a_later_kafka_is_passed_over():
    found = decode_value("t", bytes.fromhex(FROM_LATER))
    assert encode_value(found).hex() == WRITTEN_BY_KAFKA["a new producer id is next"]


def test_a_version_that_is_not_known_is_nothing():
    assert decode_key(b"\x00\x01\x00\x01t") is None
    assert decode_value("t", b"\x00\x02" + bytes(40)) is None


@given(st.integers(0, 10_000), st.sampled_from([*WRITTEN_BY_KAFKA.values(), PLAIN]))
def test_a_value_that_is_cut_off_is_a_value_error(cut, data):
    whole = bytes.fromhex(data)
    with pytest.raises(ValueError, match="transaction t"):
        decode_value("t", whole[: cut % len(whole)])


@given(st.binary(max_size=80))
def test_garbage_is_a_value_error_or_a_transaction(data):
    for prefix in (b"\x00\x00", b"\x00\x01"):
        with contextlib.suppress(ValueError):
            assert decode_value("t", prefix + data).transactional_id == "t"
    with contextlib.suppress(ValueError):
        decode_key(data)


NAMES = st.text(max_size=20)
IDS = st.integers(-1, 2**63 - 1)


@given(
    st.builds(
        Transaction,
        transactional_id=NAMES,
        producer_id=IDS,
        previous_producer_id=IDS,
        next_producer_id=IDS,
        producer_epoch=st.integers(-1, 32767),
        timeout_ms=st.integers(0, 2**31 - 1),
        state=st.sampled_from([each for each in TransactionState if each is not TransactionState.EMPTY]),
        partitions=st.dictionaries(st.tuples(NAMES, st.integers(0, 2**31 - 1)), st.none(), max_size=200),
        started_ms=IDS,
        updated_ms=IDS,
        client_version=st.integers(0, 2),
    )
)
def test_any_transaction_is_read_as_it_was_written(transaction):
    assert decode_key(encode_key(transaction.transactional_id)) == transaction.transactional_id
    assert decode_value(transaction.transactional_id, encode_value(transaction)) == transaction
