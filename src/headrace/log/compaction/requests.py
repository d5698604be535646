"""What a broker asks of the process that compacts for it, and what it is told: plain values, that go as JSON.

A compaction is one `MapRequest`, which begins it, then a `MergeRequest` for each run of segments that becomes one.
"""

from typing import Any, NamedTuple

from headrace.log.transactions import Aborted


class MapRequest(NamedTuple):
    """Find the last offset of each key in [start_offset, end_offset)."""

    round: int
    segments: list[tuple[str, int, int]]  # path of the .log, size, base offset of the next one
    aborted: list[Aborted]  # transactions that began below the end; they may end behind what is compacted
    start_offset: int
    end_offset: int
    keys_max: int
    piece_bytes: int
    bytes_per_second_max: float
    now_ms: int
    delete_retention_ms: int


class MapAnswer(NamedTuple):
    end_offset: int  # all below it is in the map
    keys: int


class MergeRequest(NamedTuple):
    """Write what stays of these segments to `<path>.*.cleaned`."""

    round: int
    sources: list[tuple[str, int]]  # path of the .log, size
    path: str  # of the first, without a suffix
    base_offset: int
    index_interval_bytes: int
    producers: list[tuple[int, int, int]]  # id, last offset with records or -1, epoch


class MergeAnswer(NamedTuple):
    size: int
    records: int
    records_kept: int


class CompactionRefused(NamedTuple):
    why: str
    damaged: bool = False  # trying again would not help
    path: str = ""  # of the damaged file, where it is known


Request = MapRequest | MergeRequest
Answer = MapAnswer | MergeAnswer | CompactionRefused

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (MapRequest, MergeRequest, MapAnswer, MergeAnswer, CompactionRefused)
}


def to_plain(message: Request | Answer) -> dict[str, Any]:
    return {"kind": type(message).__name__, **message._asdict()}


def from_plain(plain: dict[str, Any]) -> Any:
    values = dict(plain)
    return _KINDS[values.pop("kind")](**values)
