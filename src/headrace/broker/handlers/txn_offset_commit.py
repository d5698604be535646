"""TxnOffsetCommit: offsets that count when a producer's transaction is committed.

v2 adds the leader epoch, v3 member id, generation and instance id, so that a zombie of the group is fenced too; before
v2 a client does not know COORDINATOR_LOAD_IN_PROGRESS. v4 may be answered TRANSACTION_ABORTABLE where older ones get
INVALID_TXN_STATE; with v5 the offsets' partition need not have been added to the transaction before. Names only: no
version has topic ids, and the records have none either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.offset_topics import Sorted, sort_partitions
from headrace.broker.handlers.soon import Body, Soon
from headrace.coordinator.offset_requests import by_topic
from headrace.coordinator.offset_store import CommittedOffset
from headrace.coordinator.placing import partition_for
from headrace.coordinator.transactions import OFFSETS_TOPIC
from headrace.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_GROUP_ID,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)

if TYPE_CHECKING:
    from headrace.broker.node import Node

LOADING_KNOWN_SINCE, ABORTABLE_SINCE, IMPLICIT_SINCE = 2, 4, 5
NO_GENERATION = NO_EPOCH = -1


def handle(node: Node, request: Request) -> Body | Later:
    body, version = request.body, request.version
    found = sort_partitions(node, body.topics)
    if not found.known:
        return {"topics": found.merge(())}
    if not body.group_id:
        return _refused(found, INVALID_GROUP_ID)
    now_ms = node.clock.now_ms()
    entries = [
        (
            topic.name,
            partition.partition_index,
            CommittedOffset(
                partition.committed_offset,
                getattr(partition, "committed_leader_epoch", NO_EPOCH),
                partition.committed_metadata or "",
                now_ms,
            ),
        )
        for topic, partition in found.known
    ]
    soon = Soon()

    def answer(codes: list[int]) -> None:
        if version < LOADING_KNOWN_SINCE:
            codes = [COORDINATOR_NOT_AVAILABLE if code == COORDINATOR_LOAD_IN_PROGRESS else code for code in codes]
        told = [(topic, partition, code) for (topic, partition, _), code in zip(entries, codes, strict=True)]
        soon({"topics": found.merge(by_topic(told)["topics"])})

    def decided(code: int) -> None:
        """Whether the transaction takes them; only then is the group asked, as in Kafka."""
        if code:
            answer([_told(code, version)] * len(entries))
            return
        node.groups.commit_offsets_in_transaction(
            body.producer_id,
            body.producer_epoch,
            body.group_id,
            getattr(body, "member_id", ""),
            getattr(body, "generation_id", NO_GENERATION),
            getattr(body, "group_instance_id", None),
            entries,
            answer,
            transactional_id=body.transactional_id,
            version=version,
        )

    _ask_transaction(node, body, version, decided)
    return soon.result()


def _ask_transaction(node: Node, body: Any, version: int, decided: Callable[[int], None]) -> None:
    offsets_topic = node.topics.get(OFFSETS_TOPIC)
    if offsets_topic is None:
        decided(COORDINATOR_NOT_AVAILABLE)
        return
    producer = (body.transactional_id, body.producer_id, body.producer_epoch)
    place = (OFFSETS_TOPIC, partition_for(body.group_id, len(offsets_topic.partitions)))
    if version >= IMPLICIT_SINCE:
        node.transactions.add_implicitly(*producer, [place], decided)
    else:
        decided(node.transactions.verify(*producer, *place))


def _told(code: int, version: int) -> int:
    if code == PRODUCER_FENCED:
        return INVALID_PRODUCER_EPOCH
    return INVALID_TXN_STATE if code == TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE else code


def _refused(found: Sorted, code: int) -> Body:
    refused = by_topic((topic.name, partition.partition_index, code) for topic, partition in found.known)
    return {"topics": found.merge(refused["topics"])}


API = Api(key=28, name="TxnOffsetCommit", low=0, high=5, handle=handle)
