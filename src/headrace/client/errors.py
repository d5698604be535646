"""What a client of a cluster can meet: a bad address, a broker that is gone, an error that a broker answered with.

Kafka's error codes are spelled as its Java tools print them: the name of the exception, and what it says by default. A
broker that sends a message of its own is quoted. Only what an administering client can meet has an entry. The numbers
are written out: `streaming` takes its errors from here, and may not import `protocol`, not even its table of codes.
"""

from headrace.core.errors import HeadraceError

_PACKAGE = "org.apache.kafka.common.errors."
_KNOWN: dict[int, tuple[str, str]] = {
    -1: ("UnknownServerException", "The server experienced an unexpected error when processing the request."),
    1: (
        "OffsetOutOfRangeException",
        "The requested offset is not within the range of offsets maintained by the server.",
    ),
    3: ("UnknownTopicOrPartitionException", "This server does not host this topic-partition."),
    5: (
        "LeaderNotAvailableException",
        "There is no leader for this topic-partition as we are in the middle of a leadership election.",
    ),
    7: ("TimeoutException", "The request timed out."),
    13: ("NetworkException", "The server disconnected before a response was received."),
    14: ("CoordinatorLoadInProgressException", "The coordinator is loading and hence can't process requests."),
    15: ("CoordinatorNotAvailableException", "The coordinator is not available."),
    16: ("NotCoordinatorException", "This is not the correct coordinator."),
    17: ("InvalidTopicException", "The request attempted to perform an operation on an invalid topic."),
    24: ("InvalidGroupIdException", "The group id is invalid."),
    25: ("UnknownMemberIdException", "The coordinator is not aware of this member."),
    29: ("TopicAuthorizationException", "Topic authorization failed."),
    30: ("GroupAuthorizationException", "Group authorization failed."),
    31: ("ClusterAuthorizationException", "Cluster authorization failed."),
    33: ("UnsupportedSaslMechanismException", "The broker does not support the requested SASL mechanism."),
    35: ("UnsupportedVersionException", "The version of API is not supported."),
    36: ("TopicExistsException", "Topic with this name already exists."),
    37: ("InvalidPartitionsException", "Number of partitions is below 1."),
    38: (
        "InvalidReplicationFactorException",
        "Replication factor is below 1 or larger than the number of available brokers.",
    ),
    39: ("InvalidReplicaAssignmentException", "Replica assignment is invalid."),
    40: ("InvalidConfigurationException", "Configuration is invalid."),
    41: ("NotControllerException", "This is not the correct controller for this cluster."),
    42: (
        "InvalidRequestException",
        "This most likely occurs because of a request being malformed by the client library or the message was sent "
        "to an incompatible broker. See the broker logs for more details.",
    ),
    44: ("PolicyViolationException", "Request parameters do not satisfy the configured policy."),
    47: ("InvalidProducerEpochException", "Producer attempted to produce with an old epoch."),
    48: ("InvalidTxnStateException", "The producer attempted a transactional operation in an invalid state."),
    52: (
        "TransactionCoordinatorFencedException",
        "Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the current coordinator "
        "for a given producer.",
    ),
    53: ("TransactionalIdAuthorizationException", "Transactional Id authorization failed."),
    56: ("KafkaStorageException", "Disk error when trying to access log file on the disk."),
    57: ("LogDirNotFoundException", "The user-specified log directory is not found in the broker config."),
    58: ("SaslAuthenticationException", "SASL Authentication failed."),
    68: ("GroupNotEmptyException", "The group is not empty."),
    69: ("GroupIdNotFoundException", "The group id does not exist."),
    73: ("TopicDeletionDisabledException", "Topic deletion is disabled."),
    86: (
        "GroupSubscribedToTopicException",
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",
    ),
    87: ("InvalidRecordException", "This record has failed the validation on broker and hence will be rejected."),
    91: ("ResourceNotFoundException", "A request illegally referred to a resource that does not exist."),
    93: ("UnacceptableCredentialException", "Requested credential would not meet criteria for acceptability."),
    100: ("UnknownTopicIdException", "This server does not host this topic ID."),
    105: ("TransactionalIdNotFoundException", "The transactionalId could not be found."),
}


class ClientError(HeadraceError):
    """A request to a cluster that failed: the message is one line that says why and what to do."""


class AddressError(ClientError):
    """An address that is not HOST:PORT."""


class GoneError(ClientError):
    """The broker closed the connection, or did not answer in time."""


class KafkaError(ClientError):
    """An error that a broker answered with."""

    def __init__(self, code: int, message: str | None = None) -> None:
        name, usual = _KNOWN.get(code, ("ApiException", f"Kafka's error code {code}."))
        super().__init__(message or usual)
        self.code = code
        self.java = f"{_PACKAGE}{name}: {message or usual}"


def check(code: int, message: str | None = None) -> None:
    if code != 0:
        raise KafkaError(code, message)
