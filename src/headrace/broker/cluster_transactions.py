"""Transactions over several brokers: markers go to whoever leads a partition, questions to whoever coordinates an id.

The coordinator of a transaction writes its end to every partition that took part (WriteTxnMarkers); the leader of a
partition asks the coordinator whether a batch is in an open transaction, or has it added (AddPartitionsToTxn). What
could not be done is tried again by whoever wanted it: by then another broker may lead.
"""

from collections.abc import Callable
from typing import Any, Final

from headrace.broker.peers import Peers
from headrace.broker.topics import Topics
from headrace.coordinator.journal import AllOf, Done
from headrace.coordinator.topic_view import TopicPartition
from headrace.coordinator.transactions.markers import MarkerPort, TransactionEnd
from headrace.core.errors import StorageError
from headrace.protocol.error_codes import COORDINATOR_NOT_AVAILABLE, NONE
from headrace.replication.image import NO_LEADER, ClusterImage

WRITE_TXN_MARKERS: Final = 27
MARKERS_VERSION: Final = 1
ADD_PARTITIONS: Final = 24
ADD_VERSION: Final = 5

Decided = Callable[[int], None]


class ClusterMarkers:
    """The port by which a coordinator reaches all partitions."""

    def __init__(self, local: MarkerPort, topics: Topics, image: Callable[[], ClusterImage], peers: Peers) -> None:
        self._local = local
        self._topics = topics
        self._image = image
        self._peers = peers

    def write(self, end: TransactionEnd, partitions: list[TopicPartition], done: Done) -> None:
        waiting = AllOf(done)
        own: list[TopicPartition] = []
        elsewhere: dict[int, list[TopicPartition]] = {}
        image = self._image()
        for topic, index in partitions:
            partition = self._topics.partition(topic, index)
            found = image.partition(topic, index)
            if partition is None or found is None or partition.led is not None:
                own.append((topic, index))
            else:
                elsewhere.setdefault(image.live_leader(found), []).append((topic, index))
        if own:
            waiting.expect()
            self._local.write(end, own, waiting.told)
        for leader, theirs in elsewhere.items():
            waiting.expect()
            self._send(leader, end, theirs, waiting.told)
        waiting.told(None)

    def _send(self, leader: int, end: TransactionEnd, partitions: list[TopicPartition], done: Done) -> None:
        if leader == NO_LEADER:
            done(StorageError(f"{partitions[0][0]}-{partitions[0][1]}: it has no leader now"))
            return

        def told(body: Any, error: StorageError | None) -> None:
            if error is None:
                error = _failed(body, partitions)
            done(error)

        marker = {
            "producer_id": end.producer_id,
            "producer_epoch": end.producer_epoch,
            "transaction_result": end.commit,
            "topics": [{"name": name, "partition_indexes": found} for name, found in _by_topic(partitions).items()],
            "coordinator_epoch": end.coordinator_epoch,
        }
        self._peers.ask(leader, WRITE_TXN_MARKERS, MARKERS_VERSION, {"markers": [marker]}, told)


def _failed(body: Any, partitions: list[TopicPartition]) -> StorageError | None:
    codes = {
        (topic.name, each.partition_index): int(each.error_code)
        for marker in body.markers
        for topic in marker.topics
        for each in topic.partitions
    }
    for topic, index in partitions:
        code = codes.get((topic, index), COORDINATOR_NOT_AVAILABLE)
        if code != NONE:
            return StorageError(f"{topic}-{index}: its leader answered a marker with error {code}")
    return None


class RemoteTransactions:
    """The port by which a leader reaches the coordinator of a transaction."""

    def __init__(self, peers: Peers, coordinator_of: Callable[[str], int]) -> None:
        """`coordinator_of` says which broker coordinates a transactional id; NO_LEADER while none does."""
        self._peers = peers
        self._coordinator_of = coordinator_of

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        decided: Decided,
        *,
        adds: bool,
    ) -> None:
        """Whether these partitions are in the open transaction of that producer, with `adds` from now on; as an error
        code for all of them."""
        coordinator = self._coordinator_of(transactional_id)
        if coordinator == NO_LEADER:
            decided(COORDINATOR_NOT_AVAILABLE)
            return

        def told(body: Any, error: StorageError | None) -> None:
            if error is not None:
                decided(COORDINATOR_NOT_AVAILABLE)
                return
            codes = [int(body.error_code)] + [
                int(each.partition_error_code)
                for transaction in body.results_by_transaction
                for topic in transaction.topic_results
                for each in topic.results_by_partition
            ]
            decided(next((code for code in codes if code != NONE), NONE))

        transaction = {
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "verify_only": not adds,
            "topics": [{"name": name, "partitions": found} for name, found in _by_topic(partitions).items()],
        }
        self._peers.ask(coordinator, ADD_PARTITIONS, ADD_VERSION, {"transactions": [transaction]}, told)


def _by_topic(partitions: list[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
