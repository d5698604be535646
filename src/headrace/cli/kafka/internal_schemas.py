"""The records of Kafka's internal topics, field by field as Kafka 4.3 names them: what JSON is made of.

Where the broker reads these records for their meaning (`headrace.coordinator`), the tools show every field of every
version under Kafka's own name. One table per kind of record; `internal_records` reads by them, and a test holds what
the coordinators write equal to them.
"""

from typing import NamedTuple, Union

from headrace.coordinator.consumer.records import (
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_PARTITION_METADATA,
    CONSUMER_GROUP_REGULAR_EXPRESSION,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
)
from headrace.coordinator.group_records import GROUP_METADATA, OFFSET_COMMIT, OFFSET_COMMIT_LEGACY
from headrace.coordinator.transactions.records import KEY_VERSION

Kind = Union[str, "Struct", "Array"]


class Field(NamedTuple):
    name: str
    kind: Kind
    first: int = 0  # the first and the last version that has it
    last: int = 99
    tag: int | None = None
    default: object = None  # a tagged field that is equal to it is not shown


class Struct(NamedTuple):
    fields: tuple[Field, ...]
    flexible: int = 0  # the first version with compact lengths and tagged fields
    nullable: bool = False


class Array(NamedTuple):
    item: Kind
    nullable: bool = False


NEVER = 99  # for `flexible`

PARTITIONS = (Field("topicId", "uuid"), Field("partitions", Array("int32")))

KEYS: dict[int, Struct] = {
    number: Struct(tuple(Field(name, kind) for name, kind in fields), NEVER)
    for number, fields in {
        OFFSET_COMMIT_LEGACY: (("group", "string"), ("topic", "string"), ("partition", "int32")),
        OFFSET_COMMIT: (("group", "string"), ("topic", "string"), ("partition", "int32")),
        GROUP_METADATA: (("group", "string"),),
        CONSUMER_GROUP_METADATA: (("groupId", "string"),),
        CONSUMER_GROUP_PARTITION_METADATA: (("groupId", "string"),),
        CONSUMER_GROUP_MEMBER_METADATA: (("groupId", "string"), ("memberId", "string")),
        CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: (("groupId", "string"),),
        CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: (("groupId", "string"), ("memberId", "string")),
        CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: (("groupId", "string"), ("memberId", "string")),
        CONSUMER_GROUP_REGULAR_EXPRESSION: (("groupId", "string"), ("regularExpression", "string")),
    }.items()
}

_OFFSET = (
    Field("offset", "int64"),
    Field("leaderEpoch", "int32", 3),
    Field("metadata", "string"),
    Field("commitTimestamp", "int64"),
    Field("expireTimestamp", "int64", 1, 1),
    Field("topicId", "uuid", 4, tag=0, default="AAAAAAAAAAAAAAAAAAAAAA"),
)
_MEMBER = (
    Field("memberId", "string"),
    Field("groupInstanceId", "string?", 3),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("rebalanceTimeout", "int32", 1),
    Field("sessionTimeout", "int32"),
    Field("subscription", "bytes"),
    Field("assignment", "bytes"),
)
_GROUP = (
    Field("protocolType", "string"),
    Field("generation", "int32"),
    Field("protocol", "string?"),
    Field("leader", "string?"),
    Field("currentStateTimestamp", "int64", 2),
    Field("members", Array(Struct(_MEMBER, 4))),
)
_RACKS = (Field("partition", "int32"), Field("racks", Array("string")))
_TOPIC = (
    Field("topicId", "uuid"),
    Field("topicName", "string"),
    Field("numPartitions", "int32"),
    Field("partitionMetadata", Array(Struct(_RACKS))),
)
_PROTOCOL = (Field("name", "string"), Field("metadata", "bytes"))
_CLASSIC = (Field("sessionTimeoutMs", "int32"), Field("supportedProtocols", Array(Struct(_PROTOCOL))))
_CONSUMER_MEMBER = (
    Field("instanceId", "string?"),
    Field("rackId", "string?"),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("subscribedTopicNames", Array("string")),
    Field("subscribedTopicRegex", "string?"),
    Field("rebalanceTimeoutMs", "int32"),
    Field("serverAssignor", "string?"),
    Field(
        "classicMemberMetadata",
        Struct(_CLASSIC, nullable=True),
        tag=0,
        default={"sessionTimeoutMs": 0, "supportedProtocols": []},
    ),
)
_HELD = (*PARTITIONS, Field("assignmentEpochs", Array("int32", nullable=True), tag=0, default=[]))
_CURRENT = (
    Field("memberEpoch", "int32"),
    Field("previousMemberEpoch", "int32"),
    Field("state", "int8"),
    Field("assignedPartitions", Array(Struct(_HELD))),
    Field("partitionsPendingRevocation", Array(Struct(_HELD))),
)

VALUES: dict[int, Struct] = {
    OFFSET_COMMIT_LEGACY: Struct((_OFFSET[0], _OFFSET[2], _OFFSET[3]), NEVER),
    OFFSET_COMMIT: Struct(_OFFSET, 4),
    GROUP_METADATA: Struct(_GROUP, 4),
    CONSUMER_GROUP_METADATA: Struct((Field("epoch", "int32"), Field("metadataHash", "int64", tag=0, default=0))),
    CONSUMER_GROUP_PARTITION_METADATA: Struct((Field("topics", Array(Struct(_TOPIC))),)),
    CONSUMER_GROUP_MEMBER_METADATA: Struct(_CONSUMER_MEMBER),
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: Struct(
        (Field("assignmentEpoch", "int32"), Field("assignmentTimestamp", "int64", tag=0, default=0))
    ),
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: Struct((Field("topicPartitions", Array(Struct(PARTITIONS))),)),
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: Struct(_CURRENT),
    CONSUMER_GROUP_REGULAR_EXPRESSION: Struct(
        (Field("topics", Array("string")), Field("version", "int64"), Field("timestamp", "int64"))
    ),
}

TRANSACTION_KEYS = {KEY_VERSION: Struct((Field("transactionalId", "string"),), NEVER)}
_IN_TRANSACTION = Struct((Field("topic", "string"), Field("partitionIds", Array("int32"))), 1)
TRANSACTION_VALUES = {
    KEY_VERSION: Struct(
        (
            Field("producerId", "int64"),
            Field("previousProducerId", "int64", 1, tag=0, default=-1),
            Field("nextProducerId", "int64", 1, tag=1, default=-1),
            Field("producerEpoch", "int16"),
            Field("nextProducerEpoch", "int16", 1, tag=3, default=-1),
            Field("transactionTimeoutMs", "int32"),
            Field("transactionStatus", "int8"),
            Field("transactionPartitions", Array(_IN_TRANSACTION, nullable=True)),
            Field("transactionLastUpdateTimestampMs", "int64"),
            Field("transactionStartTimestampMs", "int64"),
            Field("clientTransactionVersion", "int16", 1, tag=2, default=0),
        ),
        1,
    )
}

# What classic consumers put into a group's metadata.
_OWNED = Struct((Field("topic", "string"), Field("partitions", Array("int32"))), NEVER)
SUBSCRIPTION = Struct(
    (
        Field("topics", Array("string")),
        Field("userData", "bytes?"),
        Field("ownedPartitions", Array(_OWNED), 1),
        Field("generationId", "int32", 2),
        Field("rackId", "string?", 3),
    ),
    NEVER,
)
ASSIGNMENT = Struct((Field("assignedPartitions", Array(_OWNED)), Field("userData", "bytes?")), NEVER)
