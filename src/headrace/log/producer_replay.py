"""What batches that are read again mean for their producers: sequences, open transactions, aborted ones."""

from headrace.log.producer_state import ProducerState
from headrace.log.scanning import segment_headers
from headrace.log.segment import AstrayError, Segment
from headrace.log.transactions import Aborted, read_marker
from headrace.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader


def replay_producers(segments: list[Segment], state: ProducerState, start: int, end: int) -> None:
    """Headers between the snapshot and the recovery point, for what producers did there."""
    if start >= end:
        return
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and following.base_offset <= start:
            continue
        if segment.base_offset >= end:
            break
        try:
            found = segment.locate(start, segment.size)
            begin = found[0] if found else segment.size
        except AstrayError:
            begin = 0
        for header, position in segment_headers(segment, begin):
            if header.base_offset >= end:
                break
            if header.producer_id >= 0 and header.base_offset >= start:
                record_batch(state, header, segment, position, known=True)


def record_batch(
    state: ProducerState, header: BatchHeader, segment: Segment, position: int, *, known: bool = False
) -> None:
    """What a batch means for its producer. `known`: it lies below the recovery point, so the index has it already."""
    if header.attributes & CONTROL:
        marker = read_marker(segment.head(position, header.size), header.producer_id, header.producer_epoch)
        if marker is not None:
            entry = state.get(marker.producer_id)
            if not known and not marker.commit and entry is not None and entry.txn_first_offset >= 0:
                others = {pid: first for pid, first in state.open_transactions().items() if pid != marker.producer_id}
                stable = min(others.values(), default=header.last_offset + 1)
                segment.aborted.append(Aborted(marker.producer_id, entry.txn_first_offset, header.last_offset, stable))
            state.end_transaction(*marker[:3], header.max_timestamp)
        return
    sequence = header.base_sequence
    state.record(
        header.producer_id,
        header.producer_epoch,
        sequence,
        (sequence + header.last_offset_delta) & 0x7FFFFFFF if sequence >= 0 else -1,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        bool(header.attributes & TRANSACTIONAL),
    )
