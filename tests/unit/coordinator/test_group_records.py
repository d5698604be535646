"""Records of classic groups and offsets: what Apache Kafka 4.3.1 wrote is read, and written again the same."""

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator import group_records as records
from headrace.coordinator.group_records import CommittedOffset, GroupMetadata, MemberMetadata, OffsetCommitRecord
from headrace.core.errors import InvariantError, PeerError
from headrace.protocol.record_bytes import RecordError

TOPIC_ID = uuid.UUID("89d3e180-4177-4628-ac26-2d2cf0d30e6c")
SUBSCRIPTION = bytes.fromhex("00000000000100017400000000")

# Taken from the files of a real broker.
BY_KAFKA = {
    "a commit": (
        "0001000673696d706c6500017400000000",
        "00040000000000000005ffffffff026d000001a1e2bb63b901001089d3e18041774628ac262d2cf0d30e6c",
        OffsetCommitRecord("simple", "t", 0, CommittedOffset(5, -1, "m", 1794805294009, -1, TOPIC_ID)),
    ),
    "a commit in a transaction, which has no topic id": (
        "00010002636700017400000000",
        "00040000000000000005ffffffff026d000001a1e2bcfd9100",
        OffsetCommitRecord("cg", "t", 0, CommittedOffset(5, -1, "m", 1794805398929)),
    ),
    "a commit with a lifetime of its own": (
        "000100056b6570743400017400000000",
        "0001000000000000000500016d000001a1e2bb632b000001a1e2bb76b3",
        OffsetCommitRecord("kept4", "t", 0, CommittedOffset(5, -1, "m", 1794805293867, 1794805298867)),
    ),
    "a deleted commit of the group without a name": (
        "0001000000017400000000",
        None,
        OffsetCommitRecord("", "t", 0, None),
    ),
    "a new group": (
        "00020007636c6173736963",
        "0003000000000000ffffffff000001a1e2bd606000000000",
        records.GroupMetadataRecord("classic", GroupMetadata("", 0, None, None, 1794805424224, ())),
    ),
    "a group of two static members": (
        "00020007636c6173736963",
        "00030008636f6e73756d657200000002000572616e6765002a696e7374312d33633136306432642d666263632d346131312d393139332d"
        "363966373061636232336338000001a1e2bd6cb800000002002a696e7374312d33633136306432642d666263632d346131312d39313933"
        "2d3639663730616362323363380005696e73743100036b7031000a2f3132372e302e302e31000493e0000027100000000d000000000001"
        "0001740000000000000015000000000001000174000000010000000100000000002a696e7374302d66613463336433372d623834652d34"
        "3162652d396466312d6534646332633263363134620005696e73743000036b7030000a2f3132372e302e302e31000493e0000027100000"
        "000d0000000000010001740000000000000015000000000001000174000000010000000000000000",
        records.GroupMetadataRecord(
            "classic",
            GroupMetadata(
                "consumer",
                2,
                "range",
                "inst1-3c160d2d-fbcc-4a11-9193-69f70acb23c8",
                1794805427384,
                (
                    MemberMetadata(
                        "inst1-3c160d2d-fbcc-4a11-9193-69f70acb23c8",
                        "kp1",
                        "/127.0.0.1",
                        300000,
                        10000,
                        SUBSCRIPTION,
                        bytes.fromhex("000000000001000174000000010000000100000000"),
                        "inst1",
                    ),
                    MemberMetadata(
                        "inst0-fa4c3d37-b84e-41be-9df1-e4dc2c2c614b",
                        "kp0",
                        "/127.0.0.1",
                        300000,
                        10000,
                        SUBSCRIPTION,
                        bytes.fromhex("000000000001000174000000010000000000000000"),
                        "inst0",
                    ),
                ),
            ),
        ),
    ),
    "a deleted group": ("000200046b657074", None, records.GroupMetadataRecord("kept", None)),
}


@pytest.mark.parametrize("name", BY_KAFKA)
def test_what_kafka_wrote_is_read_and_written_again_the_same(name):
    key, value, record = BY_KAFKA[name]
    pair = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert records.decode(*pair) == record
    assert records.encode(record) == pair


# Older Kafkas' values, by their schemas: offset 5, leader epoch 3, metadata "m", committed at 7, expiring at 9.
OLDER_OFFSETS = {
    "0000 0000000000000005 0001 6d 0000000000000007": CommittedOffset(5, -1, "m", 7),
    "0001 0000000000000005 0001 6d 0000000000000007 0000000000000009": CommittedOffset(5, -1, "m", 7, 9),
    "0001 0000000000000005 0001 6d 0000000000000007 ffffffffffffffff": CommittedOffset(5, -1, "m", 7),
    "0002 0000000000000005 0001 6d 0000000000000007": CommittedOffset(5, -1, "m", 7),
    "0003 0000000000000005 00000003 0001 6d 0000000000000007": CommittedOffset(5, 3, "m", 7),
    "0004 0000000000000005 00000003 02 6d 0000000000000007 01 05 02 abcd": CommittedOffset(5, 3, "m", 7),
}


@pytest.mark.parametrize(("value", "committed"), OLDER_OFFSETS.items())
@pytest.mark.parametrize("key", ["0000 0001 67 0001 74 00000002", "0001 0001 67 0001 74 00000002"])
def test_older_keys_values_and_unknown_tags_are_read(key, value, committed):
    record = records.decode(bytes.fromhex(key), bytes.fromhex(value))
    assert record == OffsetCommitRecord("g", "t", 2, committed)


MEMBER = ("0001 6d", "ffff", "0001 63", "0001 68", "0000000a", "00000014", "00000001 aa", "00000001 bb")


def older_group(version):
    """A group in generation 4 with protocol "p" and leader "m", who is its one member."""
    member_id, instance_id, client, host, rebalance, session, subscription, assignment = MEMBER
    member = [member_id, instance_id if version >= 3 else "", client, host, rebalance if version >= 1 else ""]
    since = "0000000000000007" if version >= 2 else ""
    group = [f"{version:04x}", "0001 74", "00000004", "0001 70", "0001 6d", since, "00000001"]
    return bytes.fromhex(" ".join([*group, *member, session, subscription, assignment]))


@pytest.mark.parametrize("version", range(4))
def test_older_group_metadata_is_read(version):
    member = MemberMetadata("m", "c", "h", 10 if version >= 1 else -1, 20, b"\xaa", b"\xbb")
    expected = GroupMetadata("t", 4, "p", "m", 7 if version >= 2 else -1, (member,))
    assert records.decode_group_metadata(older_group(version)) == expected


def test_group_metadata_of_the_flexible_version_is_read():
    value = "0004 0274 00000004 0270 00 0000000000000007 02 026d 0269 0263 0268 0000000a 00000014 02aa 02bb 00 00"
    member = MemberMetadata("m", "c", "h", 10, 20, b"\xaa", b"\xbb", "i")
    assert records.decode_group_metadata(bytes.fromhex(value)) == GroupMetadata("t", 4, "p", None, 7, (member,))


def test_a_lifetime_costs_the_leader_epoch_and_the_topic_id():
    value = records.encode_committed_offset(CommittedOffset(5, 3, "m", 7, 9, TOPIC_ID))
    assert records.decode_committed_offset(value) == CommittedOffset(5, -1, "m", 7, 9)


def test_the_id_of_no_topic_is_not_written():
    without = records.encode_committed_offset(CommittedOffset(5))
    assert records.encode_committed_offset(CommittedOffset(5, topic_id=uuid.UUID(int=0))) == without


def test_types_that_are_not_ours_are_passed_over():
    share_group = bytes.fromhex("000b 0001 67")
    assert records.decode(share_group, b"\x00\x00") == records.UnknownRecord(11)
    with pytest.raises(InvariantError):
        records.encode(records.UnknownRecord(11))


def test_a_name_that_no_key_can_hold_is_refused():
    with pytest.raises(PeerError):
        records.encode_offset_commit("g" * 0x8000, "t", 0, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", None),
        ("0001 0001 67 0001", None),
        ("0001 ffff 0001 74 00000000", None),
        ("0001 0001 ff 0001 74 00000000", None),
        ("0002 0001 67", "0005"),
        ("0002 0001 67", "0003 0001 74 00000004 ffff ffff 0000000000000007 7fffffff"),
        ("0002 0001 67", "0003 0001 74 00000004 ffff ffff 0000000000000007 ffffffff"),
        ("0001 0001 67 0001 74 00000000", "0005"),
        ("0001 0001 67 0001 74 00000000", "ffff"),
        ("0001 0001 67 0001 74 00000000", "0004 0000000000000005 00000003 ffffffffffff"),
        ("0001 0001 67 0001 74 00000000", "0004 0000000000000005 00000003 00 0000000000000007 00"),
    ],
)
def test_broken_records_are_named_as_such(key, value):
    with pytest.raises(RecordError):
        records.decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(key, value):
    with contextlib.suppress(RecordError):
        records.decode(key, value)


@given(
    st.text(max_size=20),
    st.integers(0, 2**31 - 1),
    st.builds(
        CommittedOffset,
        offset=st.integers(-(2**63), 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=st.text(max_size=200),
        commit_timestamp_ms=st.integers(0, 2**62),
        expire_timestamp_ms=st.just(-1),
        topic_id=st.none() | st.uuids(),
    ),
)
def test_every_committed_offset_comes_back(name, partition, committed):
    record = OffsetCommitRecord(name, name, partition, committed)
    assert records.decode(*records.encode(record)) == record
