"""What compaction leaves of one batch: all of it, a part, an empty header, or nothing.

Of each key the last record stays. A tombstone stays until the horizon that the first compaction to see it wrote into
its batch (attribute 0x40; the base timestamp then is the horizon). Offsets, producer fields and the last offset delta
of a batch never change, so a sequence is found where it was. A batch that holds a producer's last sequence stays,
if need be without records; so does the last batch of each new segment, that segments end where the next begins.

Pure: bytes in, bytes out. All of it is Apache Kafka's rule, except that Kafka keeps the last batch of a whole
compaction and not of each segment: here recovery tells by it that nothing is missing.
"""

from collections.abc import Mapping

from headrace.log.compaction.map import KeyMap
from headrace.log.compaction.transactions import CleanedTransactions
from headrace.log.transactions import Aborted, read_marker
from headrace.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
)
from headrace.protocol.compression import compress
from headrace.protocol.record_check import check_stored
from headrace.protocol.record_spans import Span, inflate, spans
from headrace.protocol.records import sealed
from headrace.protocol.zigzag import varint

Producers = Mapping[int, tuple[int, int]]  # last offset with records, or -1, and epoch, by id


class BatchFilter:
    """For one compaction of one log; `filter` is called for each of its batches, in order."""

    __slots__ = ("_delete_retention_ms", "_keys", "_now_ms", "_transactions", "kept", "producers", "retired", "seen")

    def __init__(
        self, keys: KeyMap, transactions: CleanedTransactions, *, now_ms: int, delete_retention_ms: int
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.producers: Producers = {}  # those who are active; changed between segments
        self.retired: list[Aborted] = []  # aborted transactions of which records stay; whoever writes takes them
        self.seen = 0
        self.kept = 0

    def filter(self, header: BatchHeader, batch: memoryview, *, is_last: bool) -> bytes | memoryview | None:
        """What stays of it, None for nothing."""
        control = bool(header.attributes & CONTROL)
        if control:
            can_go = self._marker_can_go(header, batch)
            drops_all = can_go and self._horizon(header) is not None and self._is_past(header)
        else:
            transactional = bool(header.attributes & TRANSACTIONAL)
            can_go = drops_all = self._transactions.batch(
                header.producer_id, header.last_offset, transactional=transactional
            )
        stays = is_last or self._holds_last_sequence(header, control)
        self.seen += header.record_count
        if drops_all or not header.record_count:
            return _emptied(header, batch) if stays else None
        data = inflate(header, batch)
        found = list(spans(data, header.record_count))
        kept = found if control else self._kept(header, found)
        if not kept:
            return _emptied(header, batch) if stays else None
        self.kept += len(kept)
        horizon = self._horizon(header)
        if horizon is None and (can_go or any(span[7] for span in kept)):
            horizon = self._now_ms + self._delete_retention_ms
        elif len(kept) == len(found):
            return batch
        check_stored(header, data)  # nonsense gets no CRC of ours
        return _rewritten(header, data, kept, horizon)

    def _kept(self, header: BatchHeader, found: list[Span]) -> list[Span]:
        get, base_offset = self._keys.get, header.base_offset
        latest_delta = self._keys.latest_offset - base_offset
        drops_tombstones = self._horizon(header) is not None and self._is_past(header)
        kept = []
        for span in found:
            _, _, _, _, _, offset_delta, key, is_tombstone = span
            if offset_delta <= latest_delta:
                if key is None or (is_tombstone and drops_tombstones):
                    continue
                if base_offset + offset_delta < get(key):
                    continue  # written again since
            kept.append(span)
        return kept

    def _marker_can_go(self, header: BatchHeader, batch: memoryview) -> bool:
        marker = read_marker(batch, header.producer_id, header.producer_epoch) if header.record_count else None
        if marker is None and header.record_count:
            return False  # a control record of another kind
        can_go, entry = self._transactions.marker(header.producer_id, header.last_offset, marker)
        if entry is not None:
            self.retired.append(entry)
        return can_go

    def _horizon(self, header: BatchHeader) -> int | None:
        return header.base_timestamp if header.attributes & DELETE_HORIZON else None

    def _is_past(self, header: BatchHeader) -> bool:
        return header.base_timestamp <= self._now_ms

    def _holds_last_sequence(self, header: BatchHeader, control: bool) -> bool:
        last = self.producers.get(header.producer_id)
        if last is None or header.producer_id < 0:
            return False
        last_offset, epoch = last
        return header.last_offset == last_offset if last_offset >= 0 else control and header.producer_epoch == epoch


def _emptied(header: BatchHeader, batch: memoryview) -> bytes | memoryview:
    """The header alone, which still tells offsets and sequences."""
    if not header.record_count:
        return batch
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _sealed(header, attributes, -1, header.max_timestamp, 0, b"")


def _rewritten(header: BatchHeader, data: bytes, kept: list[Span], horizon: int | None) -> bytes:
    """The batch with these records, packed as it was."""
    stamped = bool(header.attributes & LOG_APPEND_TIME)
    base, largest = header.base_timestamp, header.max_timestamp
    first = largest if stamped else base + kept[0][4]
    new_base = first if horizon is None else horizon
    if not stamped:
        largest = base + max(span[4] for span in kept)
    pieces = []
    for start, body, rest, end, timestamp_delta, _, _, _ in kept:
        delta = (largest if stamped else base + timestamp_delta) - new_base
        if delta == timestamp_delta:
            pieces.append(data[start:end])
        else:
            stamp = varint(delta)
            pieces += (varint(end - rest + len(stamp) + 1), data[body : body + 1], stamp, data[rest:end])
    codec = header.attributes & CODEC_MASK
    records = b"".join(pieces)
    attributes = header.attributes | (0 if horizon is None else DELETE_HORIZON)
    return _sealed(header, attributes, new_base, largest, len(kept), compress(codec, records) if codec else records)


def _sealed(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, blob: bytes
) -> bytes:
    batch = bytearray(HEADER_BYTES)
    batch += blob
    HEADER.pack_into(
        batch, 0, header.base_offset, len(batch) - LENGTH_PREFIX_BYTES, header.leader_epoch, MAGIC, 0, attributes,
        header.last_offset_delta, base_timestamp, max_timestamp, header.producer_id, header.producer_epoch,
        header.base_sequence, count,
    )  # fmt: skip
    return bytes(sealed(batch))
