"""Records of KIP-848 groups: what Apache Kafka 4.3.1 wrote is read, and written again the same."""

import uuid

import pytest

from headrace.coordinator.consumer import records
from headrace.coordinator.group_records import decode, encode
from headrace.protocol.record_bytes import RecordError

TOPIC_ID = uuid.UUID("89d3e180-4177-4628-ac26-2d2cf0d30e6c")
FIRST, SECOND, CLASSIC = "kQ7mVtPWQ9mUeJk9v3RrDA", "b7mVtPWQ9mUeJk9v3RrDAx", "h91bQXzLQCu2ooRkArahWQ"
SUBSCRIPTION = bytes.fromhex("00000000000100017400000000")


def held(*partitions, epoch):
    return records.HeldPartitions(TOPIC_ID, partitions, (epoch,) * len(partitions))


# Taken from the files of a real broker, but for the partition metadata, which Kafka wrote before 4.1 only.
BY_KAFKA = {
    "a group's epoch": (
        "000300026367",
        "000000000002010008bce4978bb7027a87",
        records.ConsumerGroupMetadataRecord("cg", records.ConsumerGroupMetadata(2, -4835573473562428793)),
    ),
    "what a group knew of its topics": (
        "000400026367",
        "00000289d3e18041774628ac262d2cf0d30e6c027400000002020000000002037231000000",
        records.ConsumerGroupPartitionMetadataRecord(
            "cg", records.ConsumerGroupPartitionMetadata((records.TopicMetadata(TOPIC_ID, "t", 2, ((0, ("r1",)),)),))
        ),
    ),
    "a static member with a rack": (
        "00050002636700166b51376d5674505751396d55654a6b39763352724441",
        "0000036931037231047261770b2f3132372e302e302e3102027401000493e00001000100",
        records.ConsumerGroupMemberMetadataRecord(
            "cg",
            FIRST,
            records.ConsumerGroupMemberMetadata("i1", "r1", "raw", "/127.0.0.1", ("t",), "", 300000, None),
        ),
    ),
    "a member with a regular expression": (
        "000500026367001662376d5674505751396d55654a6b3976335272444178",
        "00000000047261770b2f3132372e302e302e310104742e2a000493e008756e69666f726d01000100",
        records.ConsumerGroupMemberMetadataRecord(
            "cg",
            SECOND,
            records.ConsumerGroupMemberMetadata(None, None, "raw", "/127.0.0.1", (), "t.*", 300000, "uniform"),
        ),
    ),
    "a member that speaks the classic protocol": (
        "000500036d697800166839316251587a4c514375326f6f526b417261685751",
        "00000000046b70300b2f3132372e302e302e3102027401000493e0000100360100002710030672616e67650e000000000001000174000000"
        "00000b726f756e64726f62696e0e000000000001000174000000000000",
        records.ConsumerGroupMemberMetadataRecord(
            "mix",
            CLASSIC,
            records.ConsumerGroupMemberMetadata(
                None,
                None,
                "kp0",
                "/127.0.0.1",
                ("t",),
                "",
                300000,
                None,
                records.ClassicMemberMetadata(
                    10000,
                    (
                        records.ClassicProtocol("range", SUBSCRIPTION),
                        records.ClassicProtocol("roundrobin", SUBSCRIPTION),
                    ),
                ),
            ),
        ),
    ),
    "the epoch of the target": (
        "000600026367",
        "000000000002010008000001a1e2bc235c",
        records.TargetAssignmentMetadataRecord("cg", records.TargetAssignmentMetadata(2, 1794805343068)),
    ),
    "a member's target": (
        "00070002636700166b51376d5674505751396d55654a6b39763352724441",
        "00000289d3e18041774628ac262d2cf0d30e6c0300000000000000010000",
        records.TargetAssignmentMemberRecord(
            "cg", FIRST, records.TargetAssignmentMember((records.TopicPartitions(TOPIC_ID, (0, 1)),))
        ),
    ),
    "a member that has what it should": (
        "00080002636700166b51376d5674505751396d55654a6b39763352724441",
        "00000000000200000000000289d3e18041774628ac262d2cf0d30e6c0300000000000000010100090300000002000000020100",
        records.CurrentMemberAssignmentRecord(
            "cg", FIRST, records.CurrentMemberAssignment(2, 0, 0, (held(0, 1, epoch=2),))
        ),
    ),
    "a member that must give something up": (
        "00080002636700166b51376d5674505751396d55654a6b39763352724441",
        "00000000000200000002010289d3e18041774628ac262d2cf0d30e6c020000000001000502000000020289d3e18041774628ac262d2cf0d"
        "30e6c0200000001010005020000000200",
        records.CurrentMemberAssignmentRecord(
            "cg",
            FIRST,
            records.CurrentMemberAssignment(2, 2, 1, (held(0, epoch=2),), (held(1, epoch=2),)),
        ),
    ),
    "a member that has nothing yet": (
        "000800026367001662376d5674505751396d55654a6b3976335272444178",
        "0000000000030000000202010100",
        records.CurrentMemberAssignmentRecord("cg", SECOND, records.CurrentMemberAssignment(3, 2, 2, ())),
    ),
    "what a regular expression stands for": (
        "0010000263670003742e2a",
        "0000020274000000000000013b000001a1e2bc255700",
        records.RegularExpressionRecord("cg", "t.*", records.RegularExpression(("t",), 315, 1794805343575)),
    ),
}


@pytest.mark.parametrize("name", BY_KAFKA)
def test_what_kafka_wrote_is_read_and_written_again_the_same(name):
    key, value, record = BY_KAFKA[name]
    pair = bytes.fromhex(key), bytes.fromhex(value)
    assert decode(*pair) == record
    assert encode(record) == pair


@pytest.mark.parametrize("name", BY_KAFKA)
def test_each_of_them_may_be_deleted(name):
    key, _, record = BY_KAFKA[name]
    tombstone = record._replace(value=None)
    assert decode(bytes.fromhex(key), None) == tombstone
    assert encode(tombstone) == (bytes.fromhex(key), None)


@pytest.mark.parametrize("name", BY_KAFKA)
def test_each_of_them_is_refused_in_another_version_or_cut_short(name):
    key, value, _ = BY_KAFKA[name]
    raw = bytes.fromhex(value)
    with pytest.raises(RecordError):
        decode(bytes.fromhex(key), b"\x00\x01" + raw[2:])
    for end in range(len(raw)):
        with pytest.raises(RecordError):
            decode(bytes.fromhex(key), raw[:end])


def test_a_number_that_is_zero_needs_no_tag():
    for record in (
        records.ConsumerGroupMetadataRecord("g", records.ConsumerGroupMetadata(7)),
        records.TargetAssignmentMetadataRecord("g", records.TargetAssignmentMetadata(7)),
    ):
        key, value = encode(record)
        assert value == bytes.fromhex("0000 00000007 00")
        assert decode(key, value) == record


@pytest.mark.parametrize("classic", [None, records.ClassicMemberMetadata(), records.ClassicMemberMetadata(5)])
def test_no_classic_metadata_and_empty_ones_are_told_apart(classic):
    member = records.ConsumerGroupMemberMetadata(None, None, "c", "h", (), None, 1, None, classic)
    record = records.ConsumerGroupMemberMetadataRecord("g", "m", member)
    assert decode(*encode(record)) == record


@pytest.mark.parametrize("epochs", [None, (), (4, 5)])
def test_no_assignment_epochs_and_empty_ones_are_told_apart(epochs):
    current = records.CurrentMemberAssignment(1, 0, 127, (records.HeldPartitions(TOPIC_ID, (0, 1), epochs),))
    record = records.CurrentMemberAssignmentRecord("g", "m", current)
    assert decode(*encode(record)) == record
