"""Which segments have outlived their topic's settings. Decides only; it reads no clock and touches no file."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.config import LogConfig


class Age(NamedTuple):
    """What the decision needs to know of a segment."""

    end_offset: int  # where the next segment begins, or the log ends
    size: int
    timestamp_ms: int  # the largest in it, or the time of its last change if it has none


def expired(segments: Sequence[Age], config: LogConfig, *, start_offset: int, high_watermark: int, now_ms: int) -> int:
    """How many of the oldest segments are to be deleted. If it is all of them, the log must be rolled first."""
    count = 0
    surplus_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    for segment in segments:
        if segment.end_offset > high_watermark or segment.size == 0:
            break  # not yet visible, or the empty active segment: both stay
        below_start = segment.end_offset <= start_offset
        too_old = config.cleanup_delete and 0 <= config.retention_ms < now_ms - segment.timestamp_ms
        too_much = config.cleanup_delete and config.retention_bytes >= 0 and surplus_bytes >= segment.size
        if not (below_start or too_old or too_much):
            break
        surplus_bytes -= segment.size
        count += 1
    return count
