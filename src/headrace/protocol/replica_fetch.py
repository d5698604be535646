"""Fetch (1), version 17, as a follower sends it and reads its answer. Bytes in, values out.

By hand, as the leader's side of it: the records of an answer stay where they were received, and are written from there.
A follower names itself and its incarnation in a tagged field; the partitions have no directory, which a leader does not
need. Tested against kio byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from headrace.protocol.wire import (
    I16,
    I32,
    MalformedError,
    compact_string,
    read_uvarint,
    skip_tags,
    string,
    uvarint,
)

KEY: Final = 1
VERSION: Final = 17
NO_RECORDS: Final = -1  # as the start of a partition's records

_HEADER: Final = Struct(">hhi")
_HEAD: Final = Struct(">iiibii")
_PARTITION: Final = Struct(">iiqiqi")
_REPLICA: Final = Struct(">iq")
_FETCHED: Final = Struct(">ihqqq")
_EPOCH_END: Final = Struct(">iq")
_LEADER: Final = Struct(">ii")

FULL_SESSION: Final = 0  # the epoch of a request that begins a session


class Wanted(NamedTuple):
    """A partition from an offset on."""

    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int  # of the last batch that the follower has; -1 if it has none
    start_offset: int


class Told(NamedTuple):
    """What the answer says of a partition; its records lie in [start, end) of the frame."""

    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    start_offset: int
    start: int
    end: int
    diverging: tuple[int, int] | None  # the largest epoch that both may have, and where it ends at the leader
    leader: tuple[int, int] | None  # who leads now, and in which epoch


class Answer(NamedTuple):
    correlation_id: int
    error: int
    session_id: int
    partitions: list[Told]


def encode(
    *,
    correlation_id: int,
    client_id: str,
    broker: int,
    incarnation: int,
    wait_ms_max: int,
    bytes_min: int,
    bytes_max: int,
    partition_bytes_max: int,
    session: tuple[int, int],
    wanted: Mapping[bytes, Iterable[Wanted]],
    forgotten: Mapping[bytes, Iterable[int]],
    rack: str = "",
) -> bytes:
    """A whole frame, its length in front."""
    out = bytearray(4)
    out += _HEADER.pack(KEY, VERSION, correlation_id) + string(client_id) + b"\0"
    out += _HEAD.pack(wait_ms_max, bytes_min, bytes_max, 0, *session)
    out += uvarint(len(wanted) + 1)
    for topic_id, partitions in wanted.items():
        found = list(partitions)
        out += topic_id + uvarint(len(found) + 1)
        for index, epoch, offset, last_epoch, start_offset in found:
            out += _PARTITION.pack(index, epoch, offset, last_epoch, start_offset, partition_bytes_max) + b"\0"
        out += b"\0"
    out += uvarint(len(forgotten) + 1)
    for topic_id, indexes in forgotten.items():
        gone = list(indexes)
        out += topic_id + uvarint(len(gone) + 1) + b"".join([I32.pack(each) for each in gone]) + b"\0"
    out += compact_string(rack)
    out += b"\x01\x01\x0d" + _REPLICA.pack(broker, incarnation) + b"\0"  # one tagged field, number 1, of 13 bytes
    I32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def decode(data: memoryview) -> Answer:
    """The answer in a frame without its length."""
    try:
        return _decode(data)
    except (struct_error, IndexError) as error:
        raise MalformedError(f"an answer to a fetch of {len(data)} bytes is cut short: {error}") from None


def _decode(data: memoryview) -> Answer:
    correlation_id = I32.unpack_from(data, 0)[0]
    at = skip_tags(data, 4) + 4  # the throttle time is not for brokers
    error = I16.unpack_from(data, at)[0]
    session_id = I32.unpack_from(data, at + 2)[0]
    count, at = read_uvarint(data, at + 6)
    found: list[Told] = []
    for _ in range(count - 1):
        topic_id = bytes(data[at : at + 16])
        partition_count, at = read_uvarint(data, at + 16)
        for _ in range(partition_count - 1):
            told, at = _partition(data, at, topic_id)
            found.append(told)
        at = skip_tags(data, at)
    skip_tags(data, at)
    return Answer(correlation_id, error, session_id, found)


def _partition(data: memoryview, at: int, topic_id: bytes) -> tuple[Told, int]:
    index, error, high_watermark, _, start_offset = _FETCHED.unpack_from(data, at)
    aborted, at = read_uvarint(data, at + 30)
    for _ in range(aborted - 1):
        at = skip_tags(data, at + 16)
    size, at = read_uvarint(data, at + 4)
    start = end = NO_RECORDS
    if size > 0:
        start, end = at, at + size - 1
        if end > len(data):
            raise MalformedError(f"an answer to a fetch has {len(data)} bytes, its records reach byte {end}")
        at = end
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    count, at = read_uvarint(data, at)
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        length, at = read_uvarint(data, at)
        if tag == 0:
            diverging = _EPOCH_END.unpack_from(data, at)
        elif tag == 1:
            leader = _LEADER.unpack_from(data, at)
        at += length
    return Told(topic_id, index, error, high_watermark, start_offset, start, end, diverging, leader), at


BATCH_HEAD_BYTES: Final = 12  # of which the length of a batch is known


def batches(data: memoryview, start: int, end: int) -> list[tuple[int, int]]:
    """Where each whole batch of the records begins and ends; a leader may cut off the last one."""
    found: list[tuple[int, int]] = []
    at = start
    while end - at >= BATCH_HEAD_BYTES:
        size = I32.unpack_from(data, at + 8)[0] + BATCH_HEAD_BYTES
        if size <= BATCH_HEAD_BYTES or at + size > end:
            break
        found.append((at, at + size))
        at += size
    return found
