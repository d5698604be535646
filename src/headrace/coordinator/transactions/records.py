"""The records of `__transaction_state`, byte for byte as Apache Kafka 4.3 writes them.

A key is its version (0) and the transactional id. A value is its version and one transaction: v0 plain, v1 (what
transaction version 1 and later writes) flexible, with tagged fields for the previous producer id, the next one and
the client's transaction version. `Empty` has no list of partitions (null), a finished transaction an empty one.
Partitions are a set: they are written in the order in which they are held, grouped by topic, and Kafka's own order
is that of a Java hash table. Bytes from the disk are not trusted: what is not such a record is a `ValueError`.
"""

import struct
from collections.abc import Mapping, Sequence

from headrace.coordinator.transactions.transaction import (
    BY_NUMBER,
    NO_PRODUCER_ID,
    VERSION_0,
    Partitions,
    Transaction,
    TransactionState,
)
from headrace.protocol.wire import (
    I16,
    I32,
    I64,
    MalformedError,
    compact_string,
    read_compact_string,
    read_string,
    read_uvarint,
    string,
    uvarint,
)

KEY_VERSION = 0
VALUE_VERSION = 1

_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2  # tags; 3, a next epoch, is not written yet
_FIXED = struct.Struct(">hqhib")  # version, producer id, epoch, timeout, state
_TIMES = struct.Struct(">qq")  # last change, start
_TAG_I64, _TAG_I16 = struct.Struct(">BBq"), struct.Struct(">BBh")


def encode_key(transactional_id: str) -> bytes:
    return I16.pack(KEY_VERSION) + string(transactional_id)


def decode_key(data: bytes) -> str | None:
    """The transactional id; None where the key is of a version that is not known, and to be passed over."""
    try:
        if I16.unpack_from(data)[0] != KEY_VERSION:
            return None
        return read_string(memoryview(data), 2)[0]
    except (struct.error, IndexError, MalformedError) as error:
        raise ValueError(f"key of {len(data)} bytes in __transaction_state: {error}") from None


def encode_value(transaction: Transaction, version: int = VALUE_VERSION) -> bytes:
    flexible = version >= 1
    out = bytearray(
        _FIXED.pack(
            version,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.state.number,
        )
    )
    if transaction.state is TransactionState.EMPTY:
        out += b"\x00" if flexible else b"\xff\xff\xff\xff"
    else:
        out += _partitions(transaction.partitions, flexible)
    out += _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    if flexible:
        tags = []
        if transaction.previous_producer_id != NO_PRODUCER_ID:
            tags.append(_TAG_I64.pack(_PREVIOUS_PRODUCER_ID, 8, transaction.previous_producer_id))
        if transaction.next_producer_id != NO_PRODUCER_ID:
            tags.append(_TAG_I64.pack(_NEXT_PRODUCER_ID, 8, transaction.next_producer_id))
        if transaction.client_version != VERSION_0:
            tags.append(_TAG_I16.pack(_CLIENT_VERSION, 2, transaction.client_version))
        out += uvarint(len(tags)) + b"".join(tags)
    return bytes(out)


def decode_value(transactional_id: str, data: bytes) -> Transaction | None:
    """None where the value is of a version that is not known, and to be passed over."""
    try:
        version, producer_id, epoch, timeout_ms, number = _FIXED.unpack_from(data)
        if not 0 <= version <= VALUE_VERSION:
            return None
        view = memoryview(data)
        read = _read_partitions_flexible if version >= 1 else _read_partitions
        partitions, at = read(view, _FIXED.size)
        updated_ms, started_ms = _TIMES.unpack_from(data, at)
        tags = _read_tags(view, at + _TIMES.size) if version >= 1 else {}
        return Transaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            previous_producer_id=_tag(tags, _PREVIOUS_PRODUCER_ID, I64, NO_PRODUCER_ID),
            next_producer_id=_tag(tags, _NEXT_PRODUCER_ID, I64, NO_PRODUCER_ID),
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            state=BY_NUMBER[number],
            partitions=partitions,
            started_ms=started_ms,
            updated_ms=updated_ms,
            client_version=_tag(tags, _CLIENT_VERSION, I16, VERSION_0),
        )
    except (struct.error, IndexError, KeyError, MalformedError) as error:
        raise ValueError(f"transaction {transactional_id} of {len(data)} bytes: {error}") from None


def by_topic(partitions: Partitions) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _partitions(partitions: Partitions, flexible: bool) -> bytes:
    grouped = by_topic(partitions)
    if not flexible:
        return I32.pack(len(grouped)) + b"".join(
            string(topic) + I32.pack(len(ids)) + _ids(ids) for topic, ids in grouped.items()
        )
    return uvarint(len(grouped) + 1) + b"".join(
        compact_string(topic) + uvarint(len(ids) + 1) + _ids(ids) + b"\x00" for topic, ids in grouped.items()
    )


def _ids(ids: Sequence[int]) -> bytes:
    return struct.pack(f">{len(ids)}i", *ids)


def _read_partitions(data: memoryview, at: int) -> tuple[Partitions, int]:
    partitions: dict[tuple[str, int], None] = {}
    count, at = I32.unpack_from(data, at)[0], at + 4
    for _ in range(count):  # null is -1
        topic, at = read_string(data, at)
        size, at = I32.unpack_from(data, at)[0], at + 4
        at = _read_ids(data, at, topic, size, partitions)
    return partitions, at


def _read_partitions_flexible(data: memoryview, at: int) -> tuple[Partitions, int]:
    partitions: dict[tuple[str, int], None] = {}
    count, at = read_uvarint(data, at)
    for _ in range(count - 1):  # null is 0
        topic, at = read_compact_string(data, at)
        size, at = read_uvarint(data, at)
        at = _read_ids(data, at, topic, size - 1, partitions)
        _, at = _read_tags_at(data, at)
    return partitions, at


def _read_ids(data: memoryview, at: int, topic: str, count: int, into: dict[tuple[str, int], None]) -> int:
    if count < 0 or at + 4 * count > len(data):
        raise MalformedError(f"{count} partitions of {topic} at byte {at} of {len(data)}")
    for partition in struct.unpack_from(f">{count}i", data, at):
        into[topic, partition] = None
    return at + 4 * count


def _read_tags(data: memoryview, at: int) -> Mapping[int, memoryview]:
    return _read_tags_at(data, at)[0]


def _read_tags_at(data: memoryview, at: int) -> tuple[dict[int, memoryview], int]:
    count, at = read_uvarint(data, at)
    tags: dict[int, memoryview] = {}
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if at + size > len(data):
            raise MalformedError(f"tagged field of {size} bytes at byte {at} of {len(data)}")
        tags[tag] = data[at : at + size]
        at += size
    return tags, at


def _tag(tags: Mapping[int, memoryview], tag: int, kind: struct.Struct, default: int) -> int:
    value: int = kind.unpack(tags[tag])[0] if tag in tags else default
    return value
