"""The one description of the internal topics' records, against what the coordinators write: all bytes, all fields."""

from __future__ import annotations

import base64
import re
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.kafka import internal_records
from headrace.cli.kafka.internal_records import group_record, transaction_record
from headrace.cli.kafka.internal_schemas import KEYS, TRANSACTION_VALUES, VALUES, Array, Struct
from headrace.client.topics import kafka_uuid
from headrace.coordinator import group_records
from headrace.coordinator.consumer import records
from headrace.coordinator.group_records import encode
from headrace.coordinator.transactions.records import encode_key, encode_value
from headrace.coordinator.transactions.transaction import Transaction, TransactionState

RECORDS = {
    group_records.OFFSET_COMMIT: group_records.OffsetCommitRecord,
    group_records.GROUP_METADATA: group_records.GroupMetadataRecord,
    records.CONSUMER_GROUP_METADATA: records.ConsumerGroupMetadataRecord,
    records.CONSUMER_GROUP_PARTITION_METADATA: records.ConsumerGroupPartitionMetadataRecord,
    records.CONSUMER_GROUP_MEMBER_METADATA: records.ConsumerGroupMemberMetadataRecord,
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: records.TargetAssignmentMetadataRecord,
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: records.TargetAssignmentMemberRecord,
    records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: records.CurrentMemberAssignmentRecord,
    records.CONSUMER_GROUP_REGULAR_EXPRESSION: records.RegularExpressionRecord,
}
OURS = {  # where a field of ours has another name than Kafka's, but for its unit
    "group": "group_id",
    "topic_name": "name",
    "num_partitions": "partition_count",
    "partition_metadata": "partition_racks",
}
WIDTHS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def numbers(kind: str) -> st.SearchStrategy[int]:
    top = 1 << WIDTHS[kind]
    return st.integers(-top, top - 1)


def our_name(kafkas: str, ours: Any) -> str:
    snake = re.sub(r"(?=[A-Z])", "_", kafkas).lower()
    snake = OURS.get(snake, snake)
    return snake if snake in ours._fields else f"{snake}_ms"


def shown(kind: Any, version: int, value: Any) -> Any:
    """What of ours the tools must show."""
    if value is None:
        return None
    if isinstance(kind, Struct):
        if not hasattr(value, "_fields"):  # a pair: the racks of a partition
            return {
                field.name: shown(field.kind, version, part) for field, part in zip(kind.fields, value, strict=True)
            }
        fields = [
            (field, shown(field.kind, version, getattr(value, our_name(field.name, value))))
            for field in kind.fields
            if field.first <= version <= field.last
        ]
        return {field.name: each for field, each in fields if field.tag is None or each != field.default}
    if isinstance(kind, Array):
        return [shown(kind.item, version, each) for each in value]
    if kind == "uuid":
        return kafka_uuid(value)
    return base64.b64encode(value).decode() if kind.startswith("bytes") else value


def values(kind: Any, sample: Any) -> Any:
    """Any value of the kind of `sample`, which is one of ours."""
    if isinstance(kind, Struct):
        if not hasattr(sample, "_fields"):
            return st.tuples(*(values(field.kind, part) for field, part in zip(kind.fields, sample, strict=True)))
        fields = {our_name(field.name, sample): field for field in kind.fields}
        return st.builds(
            type(sample),
            **{
                name: st.just(-1) if fields[name].last < 99 else values(fields[name].kind, getattr(sample, name))
                for name in sample._fields
            },
        )
    if isinstance(kind, Array):
        return st.lists(values(kind.item, sample[0]), max_size=3).map(tuple)
    if kind == "uuid":
        return st.uuids(version=4)
    if kind in WIDTHS:
        return st.integers(0, 127) if kind == "int8" else numbers(kind)  # the one of 8 bits is a member's state
    plain = st.binary(max_size=9) if kind.startswith("bytes") else st.text(max_size=9)
    return st.none() | plain if kind.endswith("?") else plain


ID = uuid.UUID(int=7)
HELD = records.HeldPartitions(ID, (1,), (2,))
MEMBER = group_records.MemberMetadata("m", "c", "/h", 1, 2, b"s", b"a", "i")
SAMPLES: dict[int, Any] = {
    group_records.OFFSET_COMMIT: group_records.CommittedOffset(1, 2, "m", 3, -1, ID),
    group_records.GROUP_METADATA: group_records.GroupMetadata("consumer", 1, "range", "m", 5, (MEMBER,)),
    records.CONSUMER_GROUP_METADATA: records.ConsumerGroupMetadata(1, 2),
    records.CONSUMER_GROUP_PARTITION_METADATA: records.ConsumerGroupPartitionMetadata(
        (records.TopicMetadata(ID, "t", 2, ((0, ("r",)),)),)
    ),
    records.CONSUMER_GROUP_MEMBER_METADATA: records.ConsumerGroupMemberMetadata(
        "i",
        "r",
        "c",
        "/h",
        ("t",),
        "t.*",
        1,
        "uniform",
        records.ClassicMemberMetadata(1, (records.ClassicProtocol("range", b"x"),)),
    ),
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: records.TargetAssignmentMetadata(1, 2),
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: records.TargetAssignmentMember(
        (records.TopicPartitions(ID, (1, 2)),)
    ),
    records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: records.CurrentMemberAssignment(3, 2, 1, (HELD,), (HELD,)),
    records.CONSUMER_GROUP_REGULAR_EXPRESSION: records.RegularExpression(("t",), 1, 2),
}


@pytest.fixture(autouse=True)
def read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description that leaves bytes over is wrong."""
    struct = internal_records._Reader.struct
    depth = 0

    def checked(self: Any, shape: Struct, version: int) -> dict[str, Any]:
        nonlocal depth
        depth += 1
        try:
            found = struct(self, shape, version)
        finally:
            depth -= 1
        assert depth or self._at == len(self._data), f"{len(self._data) - self._at} bytes are not described"
        return found

    monkeypatch.setattr(internal_records._Reader, "struct", checked)


def test_every_kind_of_record_that_a_group_writes_is_described() -> None:
    assert KEYS.keys() == VALUES.keys() == {*RECORDS, group_records.OFFSET_COMMIT_LEGACY}
    assert SAMPLES.keys() == RECORDS.keys()


@pytest.mark.parametrize("number", RECORDS)
@given(data=st.data())
def test_what_a_group_writes_is_shown_field_by_field(number: int, data: st.DataObject) -> None:
    kind, sample = RECORDS[number], SAMPLES[number]
    names = kind._fields[:-1]
    key = tuple(
        data.draw(numbers("int32") if name == "partition" else st.text(max_size=9), label=name) for name in names
    )
    value = data.draw(st.just(sample) | values(VALUES[number], sample), label="value")
    written = encode(kind(*key, value))
    found_number, found_key, version, found = group_record(*written)
    assert found_number == number
    assert tuple(found_key.values()) == key
    assert found == shown(VALUES[number], version, value)
    assert group_record(written[0], None)[3] is None


@given(
    transaction=st.builds(
        Transaction,
        transactional_id=st.text(max_size=9),
        producer_id=numbers("int64"),
        previous_producer_id=numbers("int64"),
        next_producer_id=numbers("int64"),
        producer_epoch=numbers("int16"),
        timeout_ms=numbers("int32"),
        state=st.sampled_from(TransactionState),
        partitions=st.dictionaries(st.tuples(st.text(max_size=5), numbers("int32")), st.none(), max_size=5),
        started_ms=numbers("int64"),
        updated_ms=numbers("int64"),
        client_version=st.sampled_from([0, 1, 2]),
    ),
    version=st.sampled_from([0, 1]),
)
def test_what_a_transaction_writes_is_shown_field_by_field(transaction: Transaction, version: int) -> None:
    if version == 0:
        transaction = replace(transaction, previous_producer_id=-1, next_producer_id=-1, client_version=0)
    _, key, found_version, found = transaction_record(
        encode_key(transaction.transactional_id), encode_value(transaction, version)
    )
    assert key == {"transactionalId": transaction.transactional_id}
    assert found_version == version
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    whole = {
        "producerId": transaction.producer_id,
        "previousProducerId": transaction.previous_producer_id,
        "nextProducerId": transaction.next_producer_id,
        "producerEpoch": transaction.producer_epoch,
        "transactionTimeoutMs": transaction.timeout_ms,
        "transactionStatus": transaction.state.number,
        "transactionPartitions": None
        if transaction.state is TransactionState.EMPTY
        else [{"topic": topic, "partitionIds": ids} for topic, ids in topics.items()],
        "transactionLastUpdateTimestampMs": transaction.updated_ms,
        "transactionStartTimestampMs": transaction.started_ms,
        "clientTransactionVersion": transaction.client_version,
    }
    tagged = {field.name: field.default for field in TRANSACTION_VALUES[0].fields if field.tag is not None}
    assert found == {name: value for name, value in whole.items() if name not in tagged or value != tagged[name]}
