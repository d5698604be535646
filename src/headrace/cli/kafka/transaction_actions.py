"""What `kafka-transactions.sh` does: one function for each of its commands, in Kafka's words."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headrace.cli.kafka.cluster import TRANSACTION, Cluster
from headrace.cli.kafka.kafka_errors import KafkaError, check
from headrace.cli.kafka.offset_lookup import Place, leaders
from headrace.cli.kafka.options import Given
from headrace.cli.kafka.tool import ToolError

INIT_PRODUCER_ID, WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 22, 27, 61, 65, 66
_BATCH_MAX = 500
_EPOCH = datetime.fromtimestamp(0, UTC)
_UNKNOWN_TOPIC_OR_PARTITION, _TRANSACTIONAL_ID_NOT_FOUND = 3, 105


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
    places: tuple[Place, ...]


def list_them(cluster: Cluster, given: Given) -> None:
    duration = given.one("duration-filter")
    try:
        found = _listed(
            cluster, duration=-1 if duration is None else duration, pattern=given.one("transactional-id-pattern")
        )
    except KafkaError as error:
        raise _failed("Failed to list transactions", error) from error
    _print_table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), found)


def _listed(
    cluster: Cluster, producers: Iterable[int] = (), duration: int = -1, pattern: str | None = None
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


def describe(cluster: Cluster, given: Given) -> None:
    name = given.one("transactional-id")
    try:
        facts = _described(cluster, name)
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


def _described(cluster: Cluster, name: str) -> TransactionFacts:
    node, connection = cluster.coordinator(name, TRANSACTION)

    def ask() -> TransactionFacts:
        (found,) = connection.call(DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]}).transaction_states
        if found.error_code == _TRANSACTIONAL_ID_NOT_FOUND:
            why = f"DescribeTransactions request for transactionalId `{name}` failed because the ID could not be found"
            raise KafkaError(_TRANSACTIONAL_ID_NOT_FOUND, why)
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


def describe_producers(cluster: Cluster, given: Given) -> None:
    place = (given.one("topic"), given.one("partition"))
    broker = given.one("broker-id")
    try:
        producers = _producers(cluster, [place], broker)[place]
    except KafkaError as error:
        where = "leader" if broker is None else f"broker {broker}"
        raise _failed(f"Failed to describe producers for partition {place[0]}-{place[1]} on {where}", error) from error
    titles = ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp")
    rows = [(*each[:5], "None" if each.transaction_start is None else each.transaction_start) for each in producers]
    _print_table((*titles, "CurrentTransactionStartOffset"), rows)


def _producers(
    cluster: Cluster, places: Sequence[Place], broker: int | None = None
) -> dict[Place, list[ProducerFacts]]:
    by_node: dict[int, list[Place]] = {}
    known = leaders(cluster, (topic for topic, _ in places)) if broker is None else {}
    for place in places:
        node = known.get(place) if broker is None else broker
        if node is None:
            raise KafkaError(_UNKNOWN_TOPIC_OR_PARTITION)
        by_node.setdefault(node, []).append(place)
    found: dict[Place, list[ProducerFacts]] = {}
    for node, here in by_node.items():
        for at in range(0, len(here), _BATCH_MAX):
            found |= _ask_producers(cluster.at(node), here[at : at + _BATCH_MAX])
    return found


def _ask_producers(connection: Any, places: Sequence[Place]) -> dict[Place, list[ProducerFacts]]:
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


def abort(cluster: Cluster, given: Given) -> None:
    place = (given.one("topic"), given.one("partition"))
    name = f"{place[0]}-{place[1]}"
    if given.has("start-offset"):
        start = given.one("start-offset")
        try:
            producers = _producers(cluster, [place])[place]
        except KafkaError as error:
            raise _failed(f"Failed to validate producer state for partition {name}", error) from error
        found = next((each for each in producers if each.transaction_start == start), None)
        if found is None:
            raise ToolError(f"Could not find any open transactions starting at offset {start} on partition {name}")
        producer, epoch, coordinator_epoch = found.id, found.epoch, found.coordinator_epoch
    else:
        producer, epoch = given.one("producer-id"), given.one("producer-epoch")
        coordinator_epoch = given.one("coordinator-epoch")
    marker = {
        "producer_id": producer,
        "producer_epoch": epoch,
        "transaction_result": False,
        "topics": [{"name": place[0], "partition_indexes": [place[1]]}],
        # A producer's first transaction has no coordinator's epoch yet; none is older than 0.
        "coordinator_epoch": max(0, coordinator_epoch),
    }
    try:
        node = leaders(cluster, [place[0]]).get(place)
        if node is None:
            raise KafkaError(_UNKNOWN_TOPIC_OR_PARTITION)
        for each in cluster.at(node).call(WRITE_TXN_MARKERS, {"markers": [marker]}).markers:
            for topic in each.topics:
                for part in topic.partitions:
                    check(part.error_code)
    except KafkaError as error:
        spec = (
            f"AbortTransactionSpec(topicPartition={name}, producerId={producer}, producerEpoch={epoch}, "
            f"coordinatorEpoch={max(0, coordinator_epoch)})"
        )
        raise _failed(f"Failed to abort transaction {spec}", error) from error


def find_hanging(cluster: Cluster, given: Given) -> None:
    broker, topic, number = given.one("broker-id"), given.one("topic"), given.one("partition")
    places = [(topic, number)] if number is not None else _replicas(cluster, topic, broker)
    age_ms = given.one("max-transaction-timeout") * 60_000
    now = _now_ms()
    try:
        candidates = [
            (place, producer)
            for place, producers in _producers(cluster, places, broker).items()
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


def _replicas(cluster: Cluster, topic: str | None, broker: int | None) -> list[Place]:
    found = cluster.metadata(None if topic is None else [topic]).topics
    for each in found:
        check(each.error_code)
    return [
        (each.name, part.partition_index)
        for each in found
        for part in each.partitions
        if broker is None or broker in part.replica_nodes
    ]


def _names_of(cluster: Cluster, producers: set[int]) -> dict[int, str]:
    if not producers:
        return {}
    return {producer: name for name, _, producer, _ in _listed(cluster, producers) if producer in producers}


def _awaited(cluster: Cluster, name: str) -> set[Place]:
    try:
        return set(_described(cluster, name).places)
    except KafkaError as error:
        if error.code == _TRANSACTIONAL_ID_NOT_FOUND:
            return set()
        raise


def force_terminate(cluster: Cluster, given: Given) -> None:
    """A new producer with the same id fences the old one, and its transaction is aborted."""
    name = given.one("transactionalId")
    try:
        timeout_ms = _described(cluster, name).timeout_ms
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
