"""The records of Kafka's internal topics, field by field as Kafka 4.3 names them: what JSON is made of.

Where the broker reads these records for their meaning (`headrace.coordinator`), the tools show every field of every
version under Kafka's own name. A table each; `internal_records` reads by them.
"""

from typing import NamedTuple, Union

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
        0: (("group", "string"), ("topic", "string"), ("partition", "int32")),
        1: (("group", "string"), ("topic", "string"), ("partition", "int32")),
        2: (("group", "string"),),
        3: (("groupId", "string"),),
        4: (("groupId", "string"),),
        5: (("groupId", "string"), ("memberId", "string")),
        6: (("groupId", "string"),),
        7: (("groupId", "string"), ("memberId", "string")),
        8: (("groupId", "string"), ("memberId", "string")),
        16: (("groupId", "string"), ("regularExpression", "string")),
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
    0: Struct((_OFFSET[0], _OFFSET[2], _OFFSET[3]), NEVER),
    1: Struct(_OFFSET, 4),
    2: Struct(_GROUP, 4),
    3: Struct((Field("epoch", "int32"), Field("metadataHash", "int64", tag=0, default=0))),
    4: Struct((Field("topics", Array(Struct(_TOPIC))),)),
    5: Struct(_CONSUMER_MEMBER),
    6: Struct((Field("assignmentEpoch", "int32"), Field("assignmentTimestamp", "int64", tag=0, default=0))),
    7: Struct((Field("topicPartitions", Array(Struct(PARTITIONS))),)),
    8: Struct(_CURRENT),
    16: Struct((Field("topics", Array("string")), Field("version", "int64"), Field("timestamp", "int64"))),
}

TRANSACTION_KEYS = {0: Struct((Field("transactionalId", "string"),), NEVER)}
_IN_TRANSACTION = Struct((Field("topic", "string"), Field("partitionIds", Array("int32"))), 1)
TRANSACTION_VALUES = {
    0: Struct(
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
