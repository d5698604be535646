"""The two sparse indexes of a segment, made again from its batches, with entries where appending puts them."""

from headrace.log.segment import Segment
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY
from headrace.log.survey import RELATIVE_OFFSET_MAX, Damage, Surveyor
from headrace.protocol.batch import BatchHeader


class IndexBuilder:
    __slots__ = (
        "_base_offset",
        "_interval",
        "_largest",
        "_largest_offset",
        "_marked",
        "_times",
        "offsets",
        "since_entry",
    )

    def __init__(self, base_offset: int, index_interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        self._largest = self._marked = -1
        self._largest_offset = base_offset
        self._times = bytearray()
        self.offsets = bytearray()
        self.since_entry = 0

    def add(self, header: BatchHeader, position: int) -> None:
        """The next good batch. Where damaged bytes lie before it, an entry leads behind them all the sooner."""
        relative = header.last_offset - self._base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            return
        if self.since_entry > self._interval and position:
            self.since_entry = 0
            self.offsets += OFFSET_ENTRY.pack(relative, position)
            self._mark_time()
        if header.max_timestamp > self._largest:
            self._largest, self._largest_offset = header.max_timestamp, header.last_offset
        self.since_entry += header.size

    def _mark_time(self) -> None:
        if self._largest > self._marked:
            self._marked = self._largest
            self._times += TIME_ENTRY.pack(self._largest, self._largest_offset - self._base_offset)

    @property
    def times(self) -> bytes:
        """With an entry for the largest timestamp of all, as when a segment is sealed."""
        self._mark_time()
        return bytes(self._times)


def rebuild(segment: Segment, end_offset: int, index_interval_bytes: int) -> list[Damage]:
    """Looks at every batch of a segment and makes its indexes again; returns what is damaged of its batches."""
    builder = IndexBuilder(segment.base_offset, index_interval_bytes)
    damages = []
    for found in Surveyor(segment.reading(), segment.size, segment.base_offset, end_offset).run():
        if isinstance(found, Damage):
            damages.append(found)
        else:
            builder.add(*found)
    segment.use_indexes(bytes(builder.offsets), builder.times, builder.since_entry)
    return damages
