"""What `kafka-transactions.sh` asks the brokers: who writes to a partition, and what a coordinator knows."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headrace.client.cluster import TRANSACTION, ClusterClient
from headrace.client.errors import KafkaError, check
from headrace.client.offsets import PartitionName, leaders
from headrace.protocol.api_keys import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS
from headrace.protocol.error_codes import TRANSACTIONAL_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION

_BATCH_MAX = 500
_EPOCH = datetime.fromtimestamp(0, UTC)


class ProducerFacts(NamedTuple):
    id: int
    epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start: int | None


class TransactionFacts(NamedTuple):
    coordinator: int
    state: str
    timeout_ms: int
    start_ms: int | None
    producer_id: int
    producer_epoch: int
    places: tuple[PartitionName, ...]


def listed(
    cluster: ClusterClient, producers: Iterable[int] = (), duration: int = -1, pattern: str | None = None
) -> list[tuple[str, int, int, str]]:
    """(transactional id, its coordinator, producer id, state) of every broker."""
    body = {
        "state_filters": [],
        "producer_id_filters": list(producers),
        "duration_filter": duration,
        "transactional_id_pattern": pattern,
    }
    rows = []
    for node in sorted(cluster.nodes()):
        connection = cluster.at(node)

        def ask(connection: Any = connection) -> Any:
            answer = connection.call(LIST_TRANSACTIONS, body)
            check(answer.error_code)
            return answer.transaction_states

        for each in cluster.patiently(ask):
            rows.append((each.transactional_id, node, each.producer_id, each.transaction_state))
    return rows


def described(cluster: ClusterClient, name: str) -> TransactionFacts:
    node, connection = cluster.coordinator(name, TRANSACTION)

    def ask() -> TransactionFacts:
        (found,) = connection.call(DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]}).transaction_states
        if found.error_code == TRANSACTIONAL_ID_NOT_FOUND:
            why = f"DescribeTransactions request for transactionalId `{name}` failed because the ID could not be found"
            raise KafkaError(TRANSACTIONAL_ID_NOT_FOUND, why)
        check(found.error_code)
        start_ms = round((found.transaction_start_time - _EPOCH).total_seconds() * 1000)
        return TransactionFacts(
            node.id,
            found.transaction_state,
            round(found.transaction_timeout.total_seconds() * 1000),
            None if start_ms < 0 else start_ms,
            found.producer_id,
            found.producer_epoch,
            tuple((topic.topic, number) for topic in found.topics for number in topic.partitions),
        )

    return cluster.patiently(ask)


def producers_of(
    cluster: ClusterClient, places: Sequence[PartitionName], broker: int | None = None
) -> dict[PartitionName, list[ProducerFacts]]:
    by_node: dict[int, list[PartitionName]] = {}
    known = leaders(cluster, (topic for topic, _ in places)) if broker is None else {}
    for place in places:
        node = known.get(place) if broker is None else broker
        if node is None:
            raise KafkaError(UNKNOWN_TOPIC_OR_PARTITION)
        by_node.setdefault(node, []).append(place)
    found: dict[PartitionName, list[ProducerFacts]] = {}
    for node, here in by_node.items():
        for at in range(0, len(here), _BATCH_MAX):
            found |= _ask_producers(cluster.at(node), here[at : at + _BATCH_MAX])
    return found


def _ask_producers(connection: Any, places: Sequence[PartitionName]) -> dict[PartitionName, list[ProducerFacts]]:
    topics: dict[str, list[int]] = {}
    for topic, number in places:
        topics.setdefault(topic, []).append(number)
    body = {"topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]}
    found = {}
    for topic in connection.call(DESCRIBE_PRODUCERS, body).topics:
        for part in topic.partitions:
            check(part.error_code, part.error_message)
            found[topic.name, part.partition_index] = [
                ProducerFacts(
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
                )
                for each in part.active_producers
            ]
    return found
