"""TxnOffsetCommit: offsets that count when a producer's transaction is committed.

v2 adds the leader epoch, v3 member id, generation and instance id, so that a zombie of the group is fenced too; before
v2 a client does not know COORDINATOR_LOAD_IN_PROGRESS. v4 may be answered TRANSACTION_ABORTABLE where older ones get
INVALID_TXN_STATE; with v5 the offsets' partition need not have been added to the transaction before. Names only: no
version has topic ids, and the records have none either.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.commit_slices import OFFSETS_PER_SLICE, CommitSlices
from headrace.broker.handlers.offset_topics import Sorted, refuse_all, sort_partitions
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.rights import READ_GROUP, WRITE_TRANSACTION
from headrace.broker.steps import Steps, stepped, up_to_few
from headrace.coordinator.offsets.requests import add_by_topic
from headrace.coordinator.offsets.store import CommittedOffset, Entry
from headrace.coordinator.placing import OFFSETS_TOPIC, partition_for
from headrace.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_GROUP_ID,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
)

if TYPE_CHECKING:
    from headrace.broker.parts import TransactionOffsetParts

LOADING_KNOWN_SINCE, ABORTABLE_SINCE, IMPLICIT_SINCE = 2, 4, 5
NO_GENERATION = NO_EPOCH = -1


def handle(parts: TransactionOffsetParts, request: Request) -> Body | Later | Steps:
    count = up_to_few(len(topic.partitions) for topic in request.body.topics)
    return stepped(_answer(parts, request), count, must_end=True)


def _answer(parts: TransactionOffsetParts, request: Request) -> Generator[None, None, Body | Later]:
    body, version = request.body, request.version
    rights, session = parts.rights, request.session
    code = rights.refusal(session, WRITE_TRANSACTION, body.transactional_id)
    code = code or rights.refusal(session, READ_GROUP, body.group_id)
    if code:
        named = (({"name": each.name}, [at.partition_index for at in each.partitions]) for each in body.topics)
        return (yield from refuse_all(named, code))
    found = yield from sort_partitions(parts, session, body.topics)
    if not found.known:
        return {"topics": (yield from found.merge_in_steps(()))}
    if not body.group_id:
        return (yield from _refused(found, INVALID_GROUP_ID))
    soon = Soon()

    def decided(code: int) -> None:
        """Whether the transaction takes them; only then is the group asked, as in Kafka."""
        soon(Steps(_refused(found, _told(code, version)) if code else _commit(parts, body, version, found)))

    _ask_transaction(parts, body, version, decided)
    return (yield from soon.steps())


def _commit(
    parts: TransactionOffsetParts, body: Any, version: int, found: Sorted
) -> Generator[None, None, Body | Later]:
    slices = CommitSlices(found)
    is_open = True
    for first in range(0, len(found.known), OFFSETS_PER_SLICE):
        now_ms = parts.clock.now_ms()
        entries: list[Entry] = []
        for topic, partition in found.known[first : first + OFFSETS_PER_SLICE]:
            entry = (topic.name, partition.partition_index, _committed(partition, now_ms))
            if parts.topics.get(topic.name) is topic:
                entries.append(entry)
            else:  # deleted since it was looked up
                slices.refuse([entry], UNKNOWN_TOPIC_OR_PARTITION)
        if first:  # others were served since the transaction took them, and one of them may have ended it
            is_open = is_open and _verify(parts, body) == NONE
        if is_open:
            _commit_slice(parts, body, version, entries, slices)
        else:
            slices.refuse(entries, _told(TRANSACTION_ABORTABLE, version))
        yield
    slices.end()
    return (yield from slices.soon.steps())


def _commit_slice(
    parts: TransactionOffsetParts, body: Any, version: int, entries: list[Entry], slices: CommitSlices
) -> None:
    told = slices.expect(entries)

    def answer(codes: list[int]) -> None:
        if version < LOADING_KNOWN_SINCE:
            codes = [COORDINATOR_NOT_AVAILABLE if code == COORDINATOR_LOAD_IN_PROGRESS else code for code in codes]
        told(codes)

    parts.groups.commit_offsets(
        body.group_id,
        getattr(body, "member_id", ""),
        getattr(body, "generation_id", NO_GENERATION),
        getattr(body, "group_instance_id", None),
        entries,
        answer,
        version=version,
        producer=(body.producer_id, body.producer_epoch),
    )


def _committed(partition: Any, now_ms: int) -> CommittedOffset:
    epoch = getattr(partition, "committed_leader_epoch", NO_EPOCH)
    return CommittedOffset(partition.committed_offset, epoch, partition.committed_metadata or "", now_ms)


def _verify(parts: TransactionOffsetParts, body: Any) -> int:
    producer = (body.transactional_id, body.producer_id, body.producer_epoch)
    return parts.coordination.verify_again(*producer, *_place(parts, body))


def _place(parts: TransactionOffsetParts, body: Any) -> tuple[str, int]:
    """The partition of the offsets' topic that has the group."""
    offsets_topic = parts.topics.get(OFFSETS_TOPIC)
    return OFFSETS_TOPIC, partition_for(body.group_id, 1 if offsets_topic is None else len(offsets_topic.partitions))


def _ask_transaction(parts: TransactionOffsetParts, body: Any, version: int, decided: Callable[[int], None]) -> None:
    if parts.topics.get(OFFSETS_TOPIC) is None:
        decided(COORDINATOR_NOT_AVAILABLE)
    else:
        producer = (body.transactional_id, body.producer_id, body.producer_epoch)
        parts.coordination.ask_transaction(*producer, [_place(parts, body)], decided, adds=version >= IMPLICIT_SINCE)


def _told(code: int, version: int) -> int:
    if code == PRODUCER_FENCED:
        return INVALID_PRODUCER_EPOCH
    return INVALID_TXN_STATE if code == TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE else code


def _refused(found: Sorted, code: int) -> Generator[None, None, Body]:
    refused: list[dict[str, Any]] = []
    for topic, partition in found.known:
        add_by_topic(refused, [(topic.name, partition.partition_index, code)])
        yield
    return {"topics": (yield from found.merge_in_steps(refused))}


API = Api(key=28, name="TxnOffsetCommit", low=0, high=5, handle=handle)
