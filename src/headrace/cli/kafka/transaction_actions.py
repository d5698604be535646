"""What `kafka-transactions.sh` does: one function for each of its commands, in Kafka's words."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.cli.kafka.options import GivenOptions
from headrace.cli.kafka.tool import ToolError
from headrace.client.cluster import TRANSACTION, ClusterClient
from headrace.client.errors import KafkaError, check
from headrace.client.offsets import PartitionName, leaders
from headrace.client.transactions import described, listed, producers_of
from headrace.protocol.api_keys import INIT_PRODUCER_ID, WRITE_TXN_MARKERS
from headrace.protocol.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_PRODUCER_EPOCH,
    TRANSACTION_COORDINATOR_FENCED,
    TRANSACTIONAL_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION,
)


def list_them(cluster: ClusterClient, given: GivenOptions) -> None:
    duration = given.one("duration-filter")
    try:
        found = listed(
            cluster, duration=-1 if duration is None else duration, pattern=given.one("transactional-id-pattern")
        )
    except KafkaError as error:
        raise _failed("Failed to list transactions", error) from error
    _print_table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), found)


def describe(cluster: ClusterClient, given: GivenOptions) -> None:
    name = given.one("transactional-id")
    try:
        facts = described(cluster, name)
    except KafkaError as error:
        raise _failed(f"Failed to describe transaction state of transactional-id `{name}`", error) from error
    since = "None" if facts.start_ms is None else facts.start_ms
    lasted = "None" if facts.start_ms is None else _now_ms() - facts.start_ms
    places = ",".join(f"{topic}-{number}" for topic, number in facts.places)
    titles = (
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions"),
    )
    row = (facts.coordinator, name, facts.producer_id, facts.producer_epoch, facts.state)
    _print_table(titles, [(*row, facts.timeout_ms, since, lasted, places)])


def describe_producers(cluster: ClusterClient, given: GivenOptions) -> None:
    place = (given.one("topic"), given.one("partition"))
    broker = given.one("broker-id")
    try:
        producers = producers_of(cluster, [place], broker)[place]
    except KafkaError as error:
        where = "leader" if broker is None else f"broker {broker}"
        raise _failed(f"Failed to describe producers for partition {place[0]}-{place[1]} on {where}", error) from error
    titles = ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp")
    rows = [(*each[:5], "None" if each.transaction_start is None else each.transaction_start) for each in producers]
    _print_table((*titles, "CurrentTransactionStartOffset"), rows)


class Abort(NamedTuple):
    """Which transaction to end in a partition; printed as Java prints its own."""

    place: PartitionName
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    def __str__(self) -> str:
        return (
            f"AbortTransactionSpec(topicPartition={self.place[0]}-{self.place[1]}, producerId={self.producer_id}, "
            f"producerEpoch={self.producer_epoch}, coordinatorEpoch={self.coordinator_epoch})"
        )


def abort(cluster: ClusterClient, given: GivenOptions) -> None:
    place = (given.one("topic"), given.one("partition"))
    if given.has("start-offset"):
        wanted = _open_at(cluster, place, given.one("start-offset"))
    else:
        wanted = Abort(place, given.one("producer-id"), given.one("producer-epoch"), given.one("coordinator-epoch"))
    try:
        cluster.patiently(lambda: _write_marker(cluster, wanted))
    except KafkaError as error:
        raise _failed(f"Failed to abort transaction {wanted}", error) from error


def _open_at(cluster: ClusterClient, place: PartitionName, start: int) -> Abort:
    name = f"{place[0]}-{place[1]}"
    try:
        producers = producers_of(cluster, [place])[place]
    except KafkaError as error:
        raise _failed(f"Failed to validate producer state for partition {name}", error) from error
    found = next((each for each in producers if each.transaction_start == start), None)
    if found is None:
        raise ToolError(f"Could not find any open transactions starting at offset {start} on partition {name}")
    # A producer's first transaction has no coordinator's epoch yet; none is older than 0.
    return Abort(place, found.id, found.epoch, max(0, found.coordinator_epoch))


def _write_marker(cluster: ClusterClient, wanted: Abort) -> None:
    marker = {
        "producer_id": wanted.producer_id,
        "producer_epoch": wanted.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": wanted.place[0], "partition_indexes": [wanted.place[1]]}],
        "coordinator_epoch": wanted.coordinator_epoch,
    }
    node = leaders(cluster, [wanted.place[0]]).get(wanted.place)
    if node is None:
        raise KafkaError(UNKNOWN_TOPIC_OR_PARTITION)
    for each in cluster.at(node).call(WRITE_TXN_MARKERS, {"markers": [marker]}).markers:
        for topic in each.topics:
            for part in topic.partitions:
                _check_marker(part.error_code, wanted)


def _check_marker(code: int, wanted: Abort) -> None:
    said = f"WriteTxnMarkers request with {wanted} failed"
    if code == INVALID_PRODUCER_EPOCH:
        raise KafkaError(code, f"{said} due an invalid producer epoch")
    if code == TRANSACTION_COORDINATOR_FENCED:
        epoch = wanted.coordinator_epoch
        raise KafkaError(
            code, f"{said} since the provided coordinator epoch {epoch} has been fenced by the active coordinator"
        )
    if code == CLUSTER_AUTHORIZATION_FAILED:
        raise KafkaError(code, f"{said} due to cluster authorization error")
    check(code)


def find_hanging(cluster: ClusterClient, given: GivenOptions) -> None:
    broker, topic, number = given.one("broker-id"), given.one("topic"), given.one("partition")
    places = [(topic, number)] if number is not None else _replicas(cluster, topic, broker)
    age_ms = given.one("max-transaction-timeout") * 60_000
    now = _now_ms()
    try:
        candidates = [
            (place, producer)
            for place, producers in producers_of(cluster, places, broker).items()
            for producer in producers
            if producer.transaction_start is not None and now - producer.last_timestamp > age_ms
        ]
        named = _names_of(cluster, {producer.id for _, producer in candidates})
        awaited = {name: _awaited(cluster, name) for name in set(named.values())}
    except KafkaError as error:
        raise _failed(f"Failed to describe producers for {len(places)} partitions", error) from error
    rows = []
    for place, producer in candidates:
        # Where the coordinator still knows the transaction, it will write the marker.
        if producer.id in named and place in awaited[named[producer.id]]:
            continue
        minutes = (now - producer.last_timestamp) // 60_000
        rows.append((*place, *producer[:3], producer.transaction_start, producer.last_timestamp, minutes))
    titles = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp")
    _print_table((*titles, "Duration(min)"), rows)


def _replicas(cluster: ClusterClient, topic: str | None, broker: int | None) -> list[PartitionName]:
    found = cluster.metadata(None if topic is None else [topic]).topics
    for each in found:
        check(each.error_code)
    return [
        (each.name, part.partition_index)
        for each in found
        for part in each.partitions
        if broker is None or broker in part.replica_nodes
    ]


def _names_of(cluster: ClusterClient, producers: set[int]) -> dict[int, str]:
    if not producers:
        return {}
    return {producer: name for name, _, producer, _ in listed(cluster, producers) if producer in producers}


def _awaited(cluster: ClusterClient, name: str) -> set[PartitionName]:
    try:
        return set(described(cluster, name).places)
    except KafkaError as error:
        if error.code == TRANSACTIONAL_ID_NOT_FOUND:
            return set()
        raise


def force_terminate(cluster: ClusterClient, given: GivenOptions) -> None:
    """A new producer with the same id fences the old one, and its transaction is aborted."""
    name = given.one("transactionalId")
    try:
        timeout_ms = described(cluster, name).timeout_ms
        _, connection = cluster.coordinator(name, TRANSACTION)
        body = {
            "transactional_id": name,
            "transaction_timeout": timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        }
        cluster.patiently(lambda: check(connection.call(INIT_PRODUCER_ID, body).error_code))
    except KafkaError as error:
        raise _failed(f"Failed to force terminate transactionalId `{name}`", error) from error


def _failed(what: str, error: KafkaError) -> ToolError:
    return ToolError(f"{what}: {error}. Enable debug logging for additional detail.")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    lines = [list(map(str, titles)), *(list(map(str, row)) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(titles))]
    for line in lines:
        print("".join(f"{text:<{width}}\t" for text, width in zip(line, widths, strict=True)))
