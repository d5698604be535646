"""Which part of a log is to be compacted, and when; and which of its segments become one. Decides only.

    start ── clean ──► first dirty ── dirty, sealed ──► first uncleanable ── too young, unstable or active ──► end

A log is due when its dirty share is above `min.cleanable.dirty.ratio`, or when a dirty record is older than
`max.compaction.lag.ms`. All of it below the first uncleanable offset is then written again: a key that was written
again makes older records of it disappear, also those in the clean part.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.config import NEVER, LogConfig

RELATIVE_OFFSET_MAX = (1 << 31) - 1
KEY_BYTES = 200  # what a key costs in the map, measured: two objects and its place in a table that doubles
KEYS_MIN = 1000  # a map always takes so many, or a log would be written again for nothing


class Part(NamedTuple):
    """What the decision needs to know of a sealed segment."""

    base_offset: int
    size: int
    max_timestamp: int  # asked for only where there is a min.compaction.lag.ms
    first_timestamp: int  # asked for only where there is a max.compaction.lag.ms
    index_bytes: int = 0


class Due(NamedTuple):
    """A log's need of compaction; the largest is the most urgent."""

    dirty_ratio: float
    first_dirty: int
    first_uncleanable: int  # the base offset of a segment


def keys_max(memory_bytes: int, load_factor: float) -> int:
    """How many keys one pass takes into account."""
    return max(KEYS_MIN, int(memory_bytes * load_factor) // KEY_BYTES)


def first_dirty_offset(clean_offset: int | None, start_offset: int, end_offset: int) -> int:
    """Where the last compaction came to; a log that was cut or replaced since is dirty from its start."""
    if clean_offset is None or not start_offset <= clean_offset <= end_offset:
        return start_offset
    return clean_offset


def due(
    sealed: Sequence[Part], active_base: int, config: LogConfig, *, first_dirty: int, stable_offset: int, now_ms: int
) -> Due | None:
    """None: there is nothing to compact, or not yet. `stable_offset`: what is above it may still change or be cut."""
    dirty = [part for part, end in _with_ends(sealed, active_base) if end > first_dirty]
    limit = min(stable_offset, active_base)
    if config.min_compaction_lag_ms > 0:
        young = (part.base_offset for part in dirty if part.max_timestamp > now_ms - config.min_compaction_lag_ms)
        limit = min(limit, next(young, limit))
    limit = max(limit, first_dirty)
    first_uncleanable = next((part.base_offset for part, end in _with_ends(sealed, active_base) if end > limit), None)
    if first_uncleanable is None:
        first_uncleanable = active_base
    cleanable_bytes = sum(part.size for part in dirty if part.base_offset < first_uncleanable)
    if not cleanable_bytes:
        return None
    clean_bytes = sum(part.size for part in sealed if part.base_offset < first_dirty)
    ratio = cleanable_bytes / (cleanable_bytes + clean_bytes)
    if ratio <= config.min_cleanable_dirty_ratio and not _is_overdue(dirty, config, now_ms):
        return None
    return Due(ratio, first_dirty, first_uncleanable)


def _with_ends(sealed: Sequence[Part], active_base: int) -> list[tuple[Part, int]]:
    return list(zip(sealed, [*(part.base_offset for part in sealed[1:]), active_base], strict=True))


def _is_overdue(dirty: Sequence[Part], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms == NEVER:
        return False
    return any(0 < part.first_timestamp < now_ms - config.max_compaction_lag_ms for part in dirty)


def must_seal(first_timestamp: int, config: LogConfig, now_ms: int) -> bool:
    """Whether the active segment holds a record that must be compacted by now."""
    return 0 < first_timestamp < now_ms - config.max_compaction_lag_ms


def merges(parts: Sequence[Part], config: LogConfig, end_offset: int) -> list[tuple[int, int]]:
    """Runs of segments, as [from, to) positions in `parts`, that become one segment each. `end_offset`: of them all."""
    found: list[tuple[int, int]] = []
    first, size, index_bytes = 0, 0, 0
    ends = [*(part.base_offset for part in parts[1:]), end_offset]
    for at, (part, end) in enumerate(zip(parts, ends, strict=True)):
        if at > first and (
            size + part.size > config.segment_bytes
            or index_bytes + part.index_bytes > config.segment_index_bytes
            or (part.size and end - 1 - parts[first].base_offset > RELATIVE_OFFSET_MAX)
        ):
            found.append((first, at))
            first, size, index_bytes = at, 0, 0
        size += part.size
        index_bytes += part.index_bytes
    if parts:
        found.append((first, len(parts)))
    return found
