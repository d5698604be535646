"""What idempotence remembers in one partition: for each producer its epoch and its last five batches.

A batch is appended if it continues its producer's sequence, answered from memory if it is one of the last
five again, and refused otherwise. A producer that is not known is taken at any sequence: its state may have
expired, and only its first batch after that could be a duplicate. A new epoch begins at sequence 0; an old
one is fenced.

Sans-IO; entries are immutable and replaced, so that a failed write is undone by putting the previous one
back. `check` runs for each idempotent batch: it looks at one entry, and in the usual case at its last batch
only.
"""

import struct
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    INVALID_PRODUCER_EPOCH,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)

SEQUENCE_MAX: Final = (1 << 31) - 1
BATCHES_KEPT_MAX: Final = 5  # what a client may have in flight
PRODUCERS_MAX: Final = 100_000

_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEADER: Final = struct.Struct(">hIi")  # version, CRC of all that follows it, number of entries
_CRC_END: Final = 6
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of
# the open transaction
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")


class Duplicate(NamedTuple):
    """What the first copy of a batch was answered with."""

    base_offset: int
    last_offset: int
    timestamp: int


class BatchSpan(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    epoch: int
    batches: tuple[BatchSpan, ...]  # oldest first
    last_timestamp: int
    coordinator_epoch: int = -1
    txn_first_offset: int = -1  # of the open transaction


class ProducerState:
    __slots__ = ("_entries", "_producers_max")

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._entries: dict[int, ProducerEntry] = {}  # least recently written first
        self._producers_max = producers_max

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(self, producer_id: int, epoch: int, base_sequence: int, last_sequence: int) -> Duplicate | None:
        """None: append it. A `Duplicate`: answer it with that. `PeerError`: it is refused."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        if epoch == entry.epoch:
            batches = entry.batches
            last = batches[-1].last_sequence if batches else -1
            if base_sequence == (last + 1 if last != SEQUENCE_MAX else 0):
                return None
            for batch in batches:
                if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
            raise PeerError(
                OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id}: sequence {base_sequence} does not follow {last}, the last written; "
                f"send {last + 1 if last != SEQUENCE_MAX else 0}, or begin again with a new epoch",
            )
        if epoch < entry.epoch:
            raise PeerError(
                INVALID_PRODUCER_EPOCH,
                f"producer {producer_id}: epoch {epoch} is older than {entry.epoch}, the last one seen; "
                "another producer has taken over",
            )
        if base_sequence != 0:
            raise PeerError(
                OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id}: sequence {base_sequence} in new epoch {epoch} (was {entry.epoch}); "
                "an epoch begins at sequence 0",
            )
        return None

    def record(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool = False,
    ) -> ProducerEntry | None:
        """Remember a batch that passed `check`; returns the entry before it, for `restore`.

        A transactional one opens a transaction, unless one is open. A batch without a sequence (the broker's own)
        leaves the sequence as it was.
        """
        entries = self._entries
        span = BatchSpan(base_sequence, last_sequence, base_offset, last_offset, timestamp)
        previous = entries.pop(producer_id, None)  # and in again, at the end: the order is that of last use
        if base_sequence < 0:
            kept = previous or ProducerEntry(epoch, (), timestamp)
            first = kept.txn_first_offset if kept.txn_first_offset >= 0 or not transactional else base_offset
            batches = kept.batches if kept.epoch == epoch else ()
            entries[producer_id] = ProducerEntry(epoch, batches, timestamp, kept.coordinator_epoch, first)
            return previous
        if previous is None:
            entries[producer_id] = ProducerEntry(epoch, (span,), timestamp, -1, base_offset if transactional else -1)
            if len(entries) > self._producers_max:
                self._evict()
            return None
        batches = (*previous.batches, span)[-BATCHES_KEPT_MAX:] if epoch == previous.epoch else (span,)
        first = previous.txn_first_offset
        if transactional and first < 0:
            first = base_offset
        entries[producer_id] = ProducerEntry(epoch, batches, timestamp, previous.coordinator_epoch, first)
        return previous

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, epoch_bumped: bool) -> None:
        """Whether another broker or an administrator may end this producer's transaction; `PeerError` if not.

        `epoch_bumped`: the epoch is the one after the transaction's (transaction version 2), so an open transaction of
        the same epoch is a later one, which the marker does not mean. Without an open one it is a marker sent again.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        late = epoch_bumped and epoch == entry.epoch and entry.txn_first_offset >= 0
        if epoch < entry.epoch or late:
            raise PeerError(
                INVALID_PRODUCER_EPOCH,
                f"producer {producer_id}: a marker of epoch {epoch}, but {entry.epoch} is the last one seen; "
                "the transaction that it was to end is over",
            )
        self.check_coordinator(producer_id, coordinator_epoch)

    def check_coordinator(self, producer_id: int, coordinator_epoch: int) -> None:
        """`PeerError` if a later coordinator has ended a transaction of this producer: an earlier one was deposed."""
        entry = self._entries.get(producer_id)
        if entry is not None and coordinator_epoch < entry.coordinator_epoch:
            raise PeerError(
                TRANSACTION_COORDINATOR_FENCED,
                f"producer {producer_id}: a marker of coordinator epoch {coordinator_epoch}, but "
                f"{entry.coordinator_epoch} is the last one seen; another coordinator has taken over",
            )

    def end_transaction(self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """A marker is in the log. Its epoch may be a new one, which then begins at sequence 0."""
        entry = self._entries.get(producer_id)
        batches = entry.batches if entry is not None and epoch == entry.epoch else ()
        self._entries[producer_id] = ProducerEntry(epoch, batches, timestamp, coordinator_epoch, -1)

    def open_transactions(self) -> dict[int, int]:
        """Producer id and first offset of each open transaction."""
        return {pid: entry.txn_first_offset for pid, entry in self._entries.items() if entry.txn_first_offset >= 0}

    def items(self) -> Iterable[tuple[int, ProducerEntry]]:
        return self._entries.items()

    def restore(self, producer_id: int, previous: ProducerEntry | None) -> None:
        """Undo `record`, the newest first where there were several.

        A producer that was not known before is known from now on: what it sent behind the batch that failed must not
        get into the log before it, as it could if any sequence were welcome again.
        """
        if previous is not None:
            self._entries[producer_id] = previous
            return
        failed = self._entries.get(producer_id)
        if failed is not None:
            batches: tuple[BatchSpan, ...] = ()
            if failed.batches and failed.batches[0].base_sequence > 0:
                before = failed.batches[0].base_sequence - 1
                batches = (BatchSpan(before, before, -1, -1, failed.last_timestamp),)
            self._entries[producer_id] = ProducerEntry(failed.epoch, batches, failed.last_timestamp)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget who has written nothing for `expiration_ms`, by its batches' timestamps, as in Kafka."""
        gone = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)

    def truncate_from_end(self, offset: int) -> None:
        """The log now ends at `offset`.

        A producer of whom no batch is left is forgotten; to know what it did before them, load an older
        snapshot and record the batches after it again.
        """
        for producer_id, entry in list(self._entries.items()):
            batches = tuple(batch for batch in entry.batches if batch.last_offset < offset)
            txn_first_offset = entry.txn_first_offset if entry.txn_first_offset < offset else -1
            if entry.batches and not batches:
                del self._entries[producer_id]
            elif batches != entry.batches:
                self._entries[producer_id] = entry._replace(
                    batches=batches, last_timestamp=batches[-1].timestamp, txn_first_offset=txn_first_offset
                )

    def clear(self) -> None:
        self._entries.clear()

    def encode_snapshot(self) -> bytes:
        """The content of Kafka's `.snapshot` file, which keeps the last batch of each producer."""
        out = bytearray(_SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, 0, len(self._entries)))
        for producer_id, entry in self._entries.items():
            sequence, offset, delta = -1, -1, 0
            if entry.batches:
                last = entry.batches[-1]
                sequence, offset, delta = (
                    last.last_sequence,
                    last.last_offset,
                    last.last_offset - last.base_offset,
                )
            out += _SNAPSHOT_ENTRY.pack(
                producer_id, entry.epoch, sequence, offset, delta,
                entry.last_timestamp, entry.coordinator_epoch, entry.txn_first_offset,
            )  # fmt: skip
        with memoryview(out) as view:
            crc = crc32c(view[_CRC_END:])
        _SNAPSHOT_HEADER.pack_into(out, 0, _SNAPSHOT_VERSION, crc, len(self._entries))
        return bytes(out)

    @classmethod
    def decode_snapshot(cls, data: bytes, producers_max: int = PRODUCERS_MAX) -> "ProducerState":
        """The state that `encode_snapshot` wrote; ValueError if the bytes are not one, or have changed."""
        if len(data) < _SNAPSHOT_HEADER.size:
            raise ValueError(f"producer snapshot of {len(data)} bytes; its header has {_SNAPSHOT_HEADER.size}")
        version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise ValueError(f"producer snapshot of version {version}; {_SNAPSHOT_VERSION} is known")
        size = _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size
        if count < 0 or len(data) != size:
            raise ValueError(f"producer snapshot of {len(data)} bytes with {count} entries")
        if crc32c(memoryview(data)[_CRC_END:]) != crc:
            raise ValueError(f"producer snapshot of {count} entries does not match its CRC {crc}")
        state = cls(producers_max)
        for (
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset,
        ) in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEADER.size :]):  # fmt: skip
            batches: tuple[BatchSpan, ...] = ()
            if offset >= 0:
                base_sequence = (sequence - delta) & SEQUENCE_MAX  # sequences wrap from 2**31 - 1 to 0
                batches = (BatchSpan(base_sequence, sequence, offset - delta, offset, timestamp),)
            state._entries[producer_id] = ProducerEntry(epoch, batches, timestamp, coordinator_epoch, txn_first_offset)
        while len(state._entries) > producers_max and state._evict():
            pass
        return state

    def _evict(self) -> int:
        """Forget the least recently written hundredth: in bulk, as a dict finds its first key slowly."""
        count = max(len(self._entries) - self._producers_max, self._producers_max // 100)
        idle = (producer_id for producer_id, entry in self._entries.items() if entry.txn_first_offset < 0)
        gone = list(islice(idle, count))
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)
