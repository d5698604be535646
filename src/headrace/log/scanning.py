"""Walks over the batches of a segment: all of them or their headers only, checked or trusted."""

import logging
from collections.abc import Iterator

from crc32c import crc32c

from headrace.core.files import OpenFiles
from headrace.log.record_faults import RecordFaults
from headrace.log.segment import OFFSET_MAX, Segment
from headrace.log.survey import UNKNOWN
from headrace.protocol.batch import CRC_END, HEADER_BYTES, MAGIC, BatchHeader, read_header

READ_BYTES = 1 << 20
BATCH_BYTES_MAX = 1 << 30

logger = logging.getLogger(__name__)


def ends_at(segment: Segment, end_offset: int) -> bool:
    """Whether the last batch of a segment ends where the log was closed or the next segment begins, and the file with
    it. Only headers are read, from the last index entry on."""
    return last_end_offset(segment) == end_offset


def last_end_offset(segment: Segment) -> int:
    """The offset behind the last batch; UNKNOWN where the headers do not lead to the end of the file."""
    if not segment.size:
        return segment.base_offset
    last = segment.offsets.last()
    position, behind = (last[1], segment.base_offset + last[0]) if last is not None else (0, OFFSET_MAX)
    end_offset = UNKNOWN
    while 0 <= position < segment.size:
        head = segment.head(position, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return UNKNOWN
        header = read_header(head)
        if header.magic != MAGIC or header.size < HEADER_BYTES or not end_offset - 1 < header.last_offset <= behind:
            return UNKNOWN
        end_offset, behind = header.last_offset + 1, OFFSET_MAX
        position += header.size
    return end_offset if position == segment.size else UNKNOWN


def segment_headers(segment: Segment, position: int) -> Iterator[tuple[BatchHeader, int]]:
    """The batches' headers from `position` on, trusted as they are, up to one that cannot be a batch."""
    while position + HEADER_BYTES <= segment.size:
        header = read_header(segment.head(position, HEADER_BYTES))
        if header.size < HEADER_BYTES:
            logger.warning("%s: damaged at byte %d: no batch has %d bytes", segment.log_path, position, header.size)
            return
        yield header, position
        position += header.size


def scan(
    segment: Segment, files: OpenFiles, position: int, end: int, *, verify: bool, faults: RecordFaults | None = None
) -> Iterator[tuple[BatchHeader, int]]:
    """Whole batches from `position` to `end`, up to the first that is torn or, if asked, fails its CRC.

    `faults` looks at the records of each, too.
    """
    fd = segment.file().fd
    read = files.disk.read
    window = memoryview(b"")
    at = position  # of the window's first byte
    while position + HEADER_BYTES <= end:
        local = position - at
        if local + HEADER_BYTES > len(window):
            window, at, local = memoryview(read(fd, READ_BYTES, position)), position, 0
            if len(window) < HEADER_BYTES:
                return
        header = read_header(window, local)
        size = header.size
        if header.magic != MAGIC or not HEADER_BYTES <= size <= min(BATCH_BYTES_MAX, end - position):
            return
        if verify:
            if local + size > len(window):
                window, at, local = memoryview(read(fd, max(READ_BYTES, size), position)), position, 0
                if len(window) < size:
                    return
            if crc32c(window[local + CRC_END : local + size]) != header.crc:
                return
            if faults is not None:
                faults.look(window[local : local + size], header, position)
        yield header, position
        position += size
