"""Produce, versions 3 to 13, by hand: the hottest request of all.

v3  one batch of magic 2 a partition · v5 log start offset in the answer · v8 record errors and an error message
v9  flexible · v10 the current leader as a tagged field (this node is the leader, so it is never sent)
v11, v12 transactions, same bytes · v13 topic ids in place of names
Byte for byte what kio reads and writes; the tests hold it to that.
"""

import functools
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from headrace.protocol.wire import (
    I16,
    I32,
    NAME_CHARACTERS_MAX,
    MalformedError,
    compact_nullable_string,
    compact_string,
    nullable_string,
    read_compact_string,
    read_uvarint,
    skip_tags,
    string,
    text,
    too_many,
    uvarint,
)

KEY: Final = 0
LOW: Final = 3
HIGH: Final = 13
FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
# Topics, and partitions in all of them, in one request: it is read at once. A Java producer's largest, 1 MB by default,
# has no room for more batches.
BEGIN_BYTES_MAX: Final = 1024  # of a request, that are remembered: its names may be as long as a request is
NAMED_MAX: Final = 10_000

_ACKS_TIMEOUT: Final = Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii")
_LENGTH_ID: Final = Struct(">ii")
_INDEX_SIZE: Final = Struct(">ii")
_ANSWER: Final = Struct(">ihqq")
_ANSWER_V5: Final = Struct(">ihqqq")

TopicKey = str | bytes  # a name, or from v13 on the sixteen bytes of an id
Wanted = tuple[TopicKey, list[tuple[int, int, int]]]  # topic, [(partition, start and end of its batch)]


ProduceRequest = tuple[str | None, int, int, list[Wanted]]  # transactional id, acks, timeout in ms, topics
Numbers = tuple[int, int, int, int, int]  # partition, error, base offset, append time, log start offset


class Refusal(NamedTuple):
    """Why a batch was not taken, for the versions that can say so."""

    message: str | None
    record_errors: tuple[tuple[int, str | None], ...] = ()


Answer = tuple[TopicKey, Numbers, Refusal | None]  # what became of one partition's batch
_TAKEN: Final = Refusal(None)


def refused(key: TopicKey, partition: int, error: int, refusal: Refusal) -> Answer:
    return key, (partition, error, -1, -1, -1), refusal


class ProduceDecoder:
    """Decodes the requests of one connection, most of which begin as the one before did.

    A request for one partition of one topic is its predecessor's beginning, byte for byte, then the partition and its
    batch: comparing is a fraction of the work of parsing.
    """

    __slots__ = ("_begin", "_begin_bytes", "_known", "_version")

    def __init__(self) -> None:
        self._begin = b""
        self._begin_bytes = 0
        self._version = -1
        self._known: tuple[str | None, int, int, TopicKey] = (None, 0, 0, "")

    def decode(self, data: memoryview, at: int, end: int, version: int) -> ProduceRequest:
        size = self._begin_bytes
        if version == self._version and at + size + 8 <= end and data[at : at + size] == self._begin:
            transactional_id, acks, timeout_ms, key = self._known
            first = at + size
            if version < FLEXIBLE_FROM:
                index, length = _INDEX_SIZE.unpack_from(data, first)
                if length > 0 and first + 8 + length == end:
                    return transactional_id, acks, timeout_ms, [(key, [(index, first + 8, end)])]
            else:
                index = I32.unpack_from(data, first)[0]
                length, start = read_uvarint(data, first + 4)
                if length > 1 and start + length + 2 == end and data[end - 3 : end].tobytes() == b"\0\0\0":
                    return transactional_id, acks, timeout_ms, [(key, [(index, start, end - 3)])]
        request = decode(data, at, end, version)
        self._remember(data, at, version, request)
        return request

    def _remember(self, data: memoryview, at: int, version: int, request: ProduceRequest) -> None:
        transactional_id, acks, timeout_ms, topics = request
        self._version = -1
        if len(topics) == 1 and len(topics[0][1]) == 1:
            key, ((_, start, end),) = topics[0]
            length_bytes = 4 if version < FLEXIBLE_FROM else len(uvarint(end - start + 1))
            behind = start - length_bytes - 4
            if behind - at > BEGIN_BYTES_MAX:
                return
            self._begin = bytes(data[at:behind])
            self._begin_bytes = len(self._begin)
            self._known = (transactional_id, acks, timeout_ms, key)
            self._version = version


def decode(data: memoryview, at: int, end: int, version: int) -> ProduceRequest:
    try:
        if version >= FLEXIBLE_FROM:
            request, at = _flexible(data, at, version)
        else:
            request, at = _plain(data, at)
    except (struct_error, IndexError) as error:
        raise MalformedError(f"a Produce request cut short: {error}") from None
    if at > end:
        raise MalformedError(f"a Produce request reaches {at - end} bytes beyond its frame")
    return request


def _plain(data: memoryview, at: int) -> tuple[ProduceRequest, int]:
    size = I16.unpack_from(data, at)[0]
    at += 2
    transactional_id = None
    if size >= 0:
        transactional_id = text(data, at, at + size)
        at += size
    acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT.unpack_from(data, at)
    at += 10
    topics: list[Wanted] = []
    named = 0
    for _ in range(_bounded(count, 0)):
        size = I16.unpack_from(data, at)[0]
        if size < 0:
            raise MalformedError("a topic without a name")
        at += 2
        name = text(data, at, at + size)
        at += size
        partition_count = I32.unpack_from(data, at)[0]
        named = _bounded(partition_count, named)
        at += 4
        partitions = []
        for _ in range(partition_count):
            index, size = _INDEX_SIZE.unpack_from(data, at)
            at += 8
            stop = at + size if size > 0 else at
            partitions.append((index, at, stop))
            at = stop
        topics.append((name, partitions))
    return (transactional_id, acks, timeout_ms, topics), at


def _flexible(data: memoryview, at: int, version: int) -> tuple[ProduceRequest, int]:
    size, at = read_uvarint(data, at)
    transactional_id = None
    if size:
        transactional_id = text(data, at, at + size - 1)
        at += size - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(data, at)
    count, at = read_uvarint(data, at + 6)
    topics: list[Wanted] = []
    named = 0
    for _ in range(_bounded(count - 1, 0)):
        key: TopicKey
        if version >= TOPIC_IDS_FROM:
            key = bytes(data[at : at + 16])
            at += 16
        else:
            key, at = read_compact_string(data, at)
        partition_count, at = read_uvarint(data, at)
        named = _bounded(partition_count - 1, named)
        partitions = []
        for _ in range(partition_count - 1):
            index = I32.unpack_from(data, at)[0]
            size, at = read_uvarint(data, at + 4)
            stop = at + size - 1 if size > 1 else at
            partitions.append((index, at, stop))
            at = stop + 1 if data[stop] == 0 else skip_tags(data, stop)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        topics.append((key, partitions))
    return (transactional_id, acks, timeout_ms, topics), skip_tags(data, at)


def _bounded(count: int, before: int) -> int:
    """So many more, with those before."""
    named = before + count if count > 0 else before
    if named > NAMED_MAX:
        raise MalformedError(too_many(named, NAMED_MAX))
    return named


def encode(version: int, correlation_id: int, answers: list[Answer], throttle_ms: int = 0) -> bytes:
    """The whole answer, with its length in front. Answers of one topic stand together."""
    if len(answers) == 1 and answers[0][2] is None and len(answers[0][0]) <= NAME_CHARACTERS_MAX:
        # Most answers are of one topic and one partition, and differ from each other in a few numbers only. The others
        # are not kept: a client may name a topic of megabytes.
        key, numbers, _ = answers[0]
        frame, size, head, tail, end = _frame_of_one(version, key)
        told = numbers if version >= 5 else numbers[:4]
        return frame.pack(size, correlation_id, head, *told, tail, throttle_ms, end)
    topics: dict[TopicKey, list[Answer]] = {}
    for answer in answers:
        topics.setdefault(answer[0], []).append(answer)
    out = bytearray(8)
    (_encode_flexible if version >= FLEXIBLE_FROM else _encode_plain)(out, version, topics, throttle_ms)
    _LENGTH_ID.pack_into(out, 0, len(out) - 4, correlation_id)
    return bytes(out)


def _encode_plain(out: bytearray, version: int, topics: dict[TopicKey, list[Answer]], throttle_ms: int) -> None:
    out += I32.pack(len(topics))
    for key, answers in topics.items():
        out += string(str(key))
        out += I32.pack(len(answers))
        for _, numbers, refusal in answers:
            out += _ANSWER_V5.pack(*numbers) if version >= 5 else _ANSWER.pack(*numbers[:4])
            if version >= 8:
                message, record_errors = refusal or _TAKEN
                out += I32.pack(len(record_errors))
                for record_index, record_message in record_errors:
                    out += I32.pack(record_index) + nullable_string(record_message)
                out += nullable_string(message)
    out += I32.pack(throttle_ms)


def _encode_flexible(out: bytearray, version: int, topics: dict[TopicKey, list[Answer]], throttle_ms: int) -> None:
    out += b"\0"  # no tagged fields in the header
    out += uvarint(len(topics) + 1)
    for key, answers in topics.items():
        out += key if isinstance(key, bytes) else compact_string(key)
        out += uvarint(len(answers) + 1)
        for _, numbers, refusal in answers:
            message, record_errors = refusal or _TAKEN
            out += _ANSWER_V5.pack(*numbers)
            out += uvarint(len(record_errors) + 1)
            for record_index, record_message in record_errors:
                out += I32.pack(record_index) + compact_nullable_string(record_message) + b"\0"
            out += compact_nullable_string(message) + b"\0"
        out += b"\0"
    out += I32.pack(throttle_ms) + b"\0"  # no tagged fields


@functools.lru_cache(maxsize=1024)
def _frame_of_one(version: int, key: TopicKey) -> tuple[Struct, int, bytes, bytes, bytes]:
    """The shape of such an answer, its length, what stands before and behind the numbers, and behind the throttle
    time."""
    if version >= FLEXIBLE_FROM:
        name = key if isinstance(key, bytes) else compact_string(key)
        head, tail, end = b"\0\2" + name + b"\2", b"\1\0\0\0", b"\0"
    else:
        one = I32.pack(1)
        head = one + string(str(key)) + one
        tail, end = b"\0\0\0\0\xff\xff" if version >= 8 else b"", b""
    frame = Struct(f">ii{len(head)}s{'ihqqq' if version >= 5 else 'ihqq'}{len(tail)}si{len(end)}s")
    return frame, frame.size - 4, head, tail, end
