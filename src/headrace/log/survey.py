"""Reads a segment from end to end and tells good batches from damaged bytes. Decides only: bytes are asked for.

A batch is good if its header makes sense, its CRC matches and its offsets continue those before it. Where one is not,
the next good batch is looked for, first where the damaged one should end, then byte by byte. What lies between is one
`Damage`, with the offsets that cannot be read. Base offset, length, leader epoch and magic lie outside the CRC: where
only they are damaged, the records are whole and the damage says so.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from headrace.protocol.batch import (
    CRC_END,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
)

READ_BYTES = 1 << 20
BATCH_BYTES_MAX = 1 << 30
RESTORED_BYTES_MAX = 128 << 20  # a longer stretch of damaged bytes is not taken for one batch
RELATIVE_OFFSET_MAX = (1 << 31) - 1
UNKNOWN = -1

Read = Callable[[int, int], bytes]  # (count, position)


class Damage(NamedTuple):
    """Bytes [position, end) of a `.log` file, and the offsets [first_offset, next_offset) that they held."""

    position: int
    end: int
    first_offset: int
    next_offset: int  # of the next good batch, or where the segment must end; UNKNOWN if nobody knows
    why: str
    restorable: bool = False  # the records are whole, and their header can be written again
    at_end: bool = False  # no good batch follows in this file

    @property
    def offsets(self) -> str:
        return offsets_text(self.first_offset, self.next_offset)


Found = tuple[BatchHeader, int] | Damage  # a good batch with its position


def offsets_text(first: int, following: int) -> str:
    if following == UNKNOWN:
        return f"offsets from {first} on"
    if following <= first:
        return "no offset"
    return f"offset {first}" if following - first == 1 else f"offsets {first} to {following - 1}"


def is_gap(header: BatchHeader, offset: int, head: bytes | memoryview, limit: int, end_limit: int) -> bool:
    """Whether a base offset above the expected one is compaction's doing. One that was damaged upwards shows by the
    batch that follows, whose `head` this is. All offsets of the file lie below `limit`, those of a gap before its last
    batch below `end_limit`."""
    if not offset < header.base_offset <= header.last_offset < limit:
        return False
    if len(head) < HEADER_BYTES:
        return header.last_offset < end_limit
    following = read_header(head)
    if following.magic != MAGIC or not offset < following.base_offset < limit:
        return True  # it is the next one that is damaged
    return following.base_offset > header.last_offset


class Surveyor:
    """Over one file: `size` bytes of it, whose offsets lie in [base_offset, end_offset)."""

    def __init__(self, read: Read, size: int, base_offset: int, end_offset: int = UNKNOWN) -> None:
        self._read = read
        self._size = size
        self._limit = end_offset if end_offset != UNKNOWN else base_offset + RELATIVE_OFFSET_MAX + 1
        self._end_offset = end_offset
        self._window = memoryview(b"")
        self._at = 0  # of the window's first byte
        self.position = 0  # where the next batch begins, and its offset
        self.offset = base_offset

    def run(self, position: int = 0, offset: int = UNKNOWN) -> Iterator[Found]:
        """From `position` on, where a batch begins, whose offset is at least `offset`."""
        self.position = position
        self.offset = offset if offset != UNKNOWN else self.offset
        while self.position < self._size:
            header, why = self._look(self.position, self.offset)
            if header is not None and not why:
                at = self.position
                self.position += header.size
                self.offset = header.last_offset + 1
                yield header, at
                continue
            damage = self._damage(header, why)
            self.position = damage.end
            if damage.next_offset != UNKNOWN:
                self.offset = max(self.offset, damage.next_offset)
            yield damage

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────────────────

    def _bytes(self, position: int, count: int) -> memoryview:
        """`count` bytes, or fewer where the file ends."""
        count = min(count, self._size - position)
        local = position - self._at
        if local < 0 or local + count > len(self._window):
            self._window = memoryview(self._read(min(max(READ_BYTES, count), self._size - position), position))
            self._at, local = position, 0
        return self._window[local : local + count]

    def _look(self, position: int, offset: int) -> tuple[BatchHeader | None, str]:
        """The header, if there is one, and what is wrong with the batch; nothing if it is good."""
        head = self._bytes(position, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return None, f"{len(head)} bytes are no batch: a header has {HEADER_BYTES}"
        header = read_header(head)
        if header.magic != MAGIC:
            return header, f"magic {header.magic}, expected {MAGIC}"
        if not HEADER_BYTES <= header.size <= min(BATCH_BYTES_MAX, self._size - position):
            return header, f"its length says {header.size} bytes, of {self._size - position} in the file"
        if header.last_offset_delta < 0:
            return header, f"last offset delta {header.last_offset_delta}, which cannot be negative"
        batch = self._bytes(position, header.size)
        if len(batch) < header.size or crc32c(batch[CRC_END:]) != header.crc:
            return header, "its CRC does not match"
        if not self._continues(header, position, offset):
            return header, f"base offset {header.base_offset}, expected {offset}"
        return header, ""

    def _continues(self, header: BatchHeader, position: int, offset: int) -> bool:
        if header.base_offset == offset:
            return True
        head = self._bytes(position + header.size, HEADER_BYTES)
        return is_gap(header, offset, head, self._limit, self._limit)

    # ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _damage(self, header: BatchHeader | None, why: str) -> Damage:
        start, first = self.position, self.offset
        end, following = self._next_good(header)
        at_end = end == self._size
        next_offset = following.base_offset if following is not None else self._end_offset
        if next_offset != UNKNOWN:
            next_offset = max(next_offset, first)
        restorable = False
        if header is not None and HEADER_BYTES < end - start <= RESTORED_BYTES_MAX:
            rest = self._bytes(start, end - start)
            last = first + header.last_offset_delta
            restorable = crc32c(rest[CRC_END:]) == header.crc and (next_offset in (last + 1, UNKNOWN))
        return Damage(start, end, first, next_offset, why, restorable, at_end)

    def _next_good(self, damaged: BatchHeader | None) -> tuple[int, BatchHeader | None]:
        """Where the next good batch begins; the end of the file if there is none."""
        if damaged is not None and HEADER_BYTES <= damaged.size <= self._size - self.position:
            at = self.position + damaged.size
            if at == self._size and damaged.magic == MAGIC:
                if damaged.last_offset + 1 == self._end_offset:
                    return at, None
            else:
                header, why = self._look(at, self.offset)
                if header is not None and not why:
                    return at, header
        return self._search(self.position + 1)

    def _search(self, start: int) -> tuple[int, BatchHeader | None]:
        """Byte by byte: eight bytes of an offset that fits, sixteen bytes before a magic of 2, then all the rest."""
        high = sorted({self.offset >> 32, (self._limit - 1) >> 32})
        prefix = b"|".join(re.escape(each.to_bytes(4, "big")) for each in high)
        pattern = re.compile(b"(?=(?:" + prefix + b")[\\s\\S]{4}[\\x00-\\x40][\\s\\S]{7}\\x02)")
        while start + HEADER_BYTES <= self._size:
            piece = bytes(self._bytes(start, READ_BYTES))
            for match in pattern.finditer(piece):
                at = start + match.start()
                header = self._good_at(at)
                if header is not None:
                    return at, header
            if start + len(piece) >= self._size or len(piece) < HEADER_BYTES:
                break
            start += len(piece) - HEADER_BYTES + 1
        return self._size, None

    def _good_at(self, position: int) -> BatchHeader | None:
        if position + HEADER_BYTES > self._size:
            return None
        header, why = self._look(position, self.offset)
        return header if not why else None


def restored(data: bytes, damage: Damage) -> bytes:
    """The batch of a `restorable` damage, with the parts of its header that the CRC does not cover written again."""
    header = read_header(data)
    batch = bytearray(data)
    HEADER.pack_into(
        batch, 0, *header._replace(base_offset=damage.first_offset, length=len(data) - LENGTH_PREFIX_BYTES, magic=MAGIC)
    )
    return bytes(batch)


def filler(first: int, following: int, leader_epoch: int) -> bytes:
    """Batches without a record, as compaction leaves them, in place of the offsets [first, following): readers pass
    over them, and no offset is ever given twice."""
    out = bytearray()
    while first < following:
        last = min(following - 1, first + RELATIVE_OFFSET_MAX - 1)
        head = bytearray(HEADER_BYTES)
        fields = [first, HEADER_BYTES - LENGTH_PREFIX_BYTES, max(leader_epoch, 0), MAGIC, 0, 0, last - first]
        HEADER.pack_into(head, 0, *fields, -1, -1, -1, -1, -1, 0)
        with memoryview(head) as view:
            fields[4] = crc32c(view[CRC_END:])
        HEADER.pack_into(head, 0, *fields, -1, -1, -1, -1, -1, 0)
        out += head
        first = last + 1
    return bytes(out)
