"""Apache Kafka's own decoder reads every record of `__consumer_offsets` as we write it, field by field.

The segment is made here, without a broker: each record type once with a value and once as a tombstone.
"""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest
from java import JavaTools

from headrace.coordinator.consumer import records as modern
from headrace.coordinator.group_records import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    GroupRecord,
    MemberMetadata,
    OffsetCommitRecord,
    encode,
)
from headrace.protocol.records import Record, build_batch

pytestmark = pytest.mark.xdist_group("java")

DUMP = "org.apache.kafka.tools.DumpLogSegments"
TOPIC_ID = uuid.UUID("89d3e180-4177-4628-ac26-2d2cf0d30e6c")
KAFKA_ID = "idPhgEF3RiisJi0s8NMObA"  # the same, as Kafka prints it
DECODED = re.compile(r"key: (\{.*\}) payload: (.*)$")

GROUP, MEMBER = {"groupId": "g"}, {"groupId": "g", "memberId": "m"}
HELD = {"topicId": KAFKA_ID, "partitions": [0, 2], "assignmentEpochs": [4, 5]}

# The record; its type, key, version and value as Kafka prints them.
EXPECTED: list[tuple[GroupRecord, int, dict[str, object], int, dict[str, object]]] = [
    (
        OffsetCommitRecord("g", "t", 3, CommittedOffset(5, 2, "é", 7, -1, TOPIC_ID)),
        1,
        {"group": "g", "topic": "t", "partition": 3},
        4,
        {"offset": 5, "leaderEpoch": 2, "metadata": "é", "commitTimestamp": 7, "topicId": KAFKA_ID},
    ),
    (
        OffsetCommitRecord("g", "t", 4, CommittedOffset(5, -1, "", 7, 9)),
        1,
        {"group": "g", "topic": "t", "partition": 4},
        1,
        {"offset": 5, "metadata": "", "commitTimestamp": 7, "expireTimestamp": 9},
    ),
    (
        GroupMetadataRecord(
            "g", GroupMetadata("consumer", 3, "range", "m", 7, (MemberMetadata("m", "c", "/h", 1, 2, b"s", b"a", "i"),))
        ),
        2,
        {"group": "g"},
        3,
        {
            "protocolType": "consumer",
            "generation": 3,
            "protocol": "range",
            "leader": "m",
            "currentStateTimestamp": 7,
            "members": [
                {
                    "memberId": "m",
                    "groupInstanceId": "i",
                    "clientId": "c",
                    "clientHost": "/h",
                    "rebalanceTimeout": 1,
                    "sessionTimeout": 2,
                    "subscription": "cw==",
                    "assignment": "YQ==",
                }
            ],
        },
    ),
    (
        modern.ConsumerGroupMetadataRecord("g", modern.ConsumerGroupMetadata(4, -5)),
        3,
        GROUP,
        0,
        {"epoch": 4, "metadataHash": -5},
    ),
    (
        modern.ConsumerGroupPartitionMetadataRecord(
            "g", modern.ConsumerGroupPartitionMetadata((modern.TopicMetadata(TOPIC_ID, "t", 2, ((0, ("r",)),)),))
        ),
        4,
        GROUP,
        0,
        {
            "topics": [
                {
                    "topicId": KAFKA_ID,
                    "topicName": "t",
                    "numPartitions": 2,
                    "partitionMetadata": [{"partition": 0, "racks": ["r"]}],
                }
            ]
        },
    ),
    (
        modern.ConsumerGroupMemberMetadataRecord(
            "g",
            "m",
            modern.ConsumerGroupMemberMetadata(
                "i",
                "r",
                "c",
                "/h",
                ("t",),
                "t.*",
                1,
                "uniform",
                modern.ClassicMemberMetadata(2, (modern.ClassicProtocol("range", b"s"),)),
            ),
        ),
        5,
        MEMBER,
        0,
        {
            "instanceId": "i",
            "rackId": "r",
            "clientId": "c",
            "clientHost": "/h",
            "subscribedTopicNames": ["t"],
            "subscribedTopicRegex": "t.*",
            "rebalanceTimeoutMs": 1,
            "serverAssignor": "uniform",
            "classicMemberMetadata": {
                "sessionTimeoutMs": 2,
                "supportedProtocols": [{"name": "range", "metadata": "cw=="}],
            },
        },
    ),
    (
        modern.TargetAssignmentMetadataRecord("g", modern.TargetAssignmentMetadata(4, 7)),
        6,
        GROUP,
        0,
        {"assignmentEpoch": 4, "assignmentTimestamp": 7},
    ),
    (
        modern.TargetAssignmentMemberRecord(
            "g", "m", modern.TargetAssignmentMember((modern.TopicPartitions(TOPIC_ID, (0, 2)),))
        ),
        7,
        MEMBER,
        0,
        {"topicPartitions": [{"topicId": KAFKA_ID, "partitions": [0, 2]}]},
    ),
    (
        modern.CurrentMemberAssignmentRecord(
            "g",
            "m",
            modern.CurrentMemberAssignment(5, 4, 1, (), (modern.HeldPartitions(TOPIC_ID, (0, 2), (4, 5)),)),
        ),
        8,
        MEMBER,
        0,
        {
            "memberEpoch": 5,
            "previousMemberEpoch": 4,
            "state": 1,
            "assignedPartitions": [],
            "partitionsPendingRevocation": [HELD],
        },
    ),
    (
        modern.RegularExpressionRecord("g", "t.*", modern.RegularExpression(("t",), 6, 7)),
        16,
        {"groupId": "g", "regularExpression": "t.*"},
        0,
        {"topics": ["t"], "version": 6, "timestamp": 7},
    ),
]


def test_kafka_reads_every_record_of_a_group_as_we_write_it(java: JavaTools, tmp_path: Path) -> None:
    pairs = [encode(record) for record, *_ in EXPECTED]
    pairs += [encode(record._replace(value=None)) for record, *_ in EXPECTED]  # type: ignore[union-attr, call-arg]
    segment = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(build_batch(Record(offset, 7, key, value) for offset, (key, value) in enumerate(pairs)))
    printed = java.ok(DUMP, "--offsets-decoder", "--files", segment).lines
    found = [match.groups() for line in printed if (match := DECODED.search(line))]
    keys = [{"type": str(kind), "data": key} for _, kind, key, _, _ in EXPECTED]
    values = [{"version": str(version), "data": value} for _, _, _, version, value in EXPECTED]
    assert [json.loads(key) for key, _ in found] == keys + keys
    assert [json.loads(value) for _, value in found[: len(values)]] == values
    assert {value for _, value in found[len(values) :]} == {"<DELETE>"}
