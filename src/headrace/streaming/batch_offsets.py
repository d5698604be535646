"""Which offsets made a batch, from the files of its query's checkpoint.

Spark writes `offsets/<batch>` before the batch runs: one line of JSON a source with where it ends. Where it begins is
the end of the batch before, or for a topic's first batch `sources/<n>/0`. Reading only; a batch that is run again gives
the same answer.
"""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.core.errors import InvariantError
from headrace.tables.provenance import Source, TableSource, TopicSource
from headrace.tables.storage import storage_of

VERSION_LINE = "v1"


def batch_ranges(checkpoint: str, batch: int, tables: Mapping[str, str]) -> tuple[Source, ...]:
    """`tables` are the names of the tables that the query reads, by their Delta ids."""
    ends = _offsets(os.path.join(checkpoint, "offsets", str(batch)))
    starts = _offsets(os.path.join(checkpoint, "offsets", str(batch - 1))) if batch > 0 else [None] * len(ends)
    found: list[Source] = []
    for index, end in enumerate(ends):
        if end is None:
            continue
        start = starts[index] if index < len(starts) else None
        if "reservoirVersion" in end:
            table = _table_range(start, end, tables)
            if table is not None:
                found.append(table)
        else:
            if start is None:
                start = _initial(os.path.join(checkpoint, "sources", str(index), "0"))
            found.extend(_topic_ranges(start or {}, end))
    return tuple(_merged(found))


def versions_reached(checkpoint: str, batch: int) -> dict[str, int]:
    """The version of each table, by its Delta id, up to which the batch has read; none for a table without rows."""
    reached = {}
    for end in _offsets(os.path.join(checkpoint, "offsets", str(batch))):
        if end is not None and "reservoirVersion" in end:
            reached[str(end["reservoirId"])] = int(end["reservoirVersion"]) - (1 if int(end["index"]) < 0 else 0)
    return reached


def parse_offsets(text: str) -> list[dict[str, Any] | None]:
    """A line a source; None for one that has not begun."""
    lines = text.splitlines()
    if not lines or lines[0] != VERSION_LINE:
        raise InvariantError(f"offsets of a batch begin with {lines[:1]}, not {VERSION_LINE}; another Spark wrote them")
    return [json.loads(line) if line.startswith("{") else None for line in lines[2:]]


def _offsets(path: str) -> list[dict[str, Any] | None]:
    data = storage_of(path).read(path)
    if data is None:
        raise InvariantError(f"{path}: missing, and its batch runs; the checkpoint was changed from outside")
    return parse_offsets(data.decode())


def _initial(path: str) -> dict[str, Any]:
    """Where a topic began. The file has a zero byte in front, for a Spark of long ago."""
    text = (storage_of(path).read(path) or b"").lstrip(b"\0").decode()
    body = text.split("\n", 1)[1] if text.startswith("v") and "\n" in text else text
    try:
        return dict(json.loads(body))
    except ValueError:
        return {}


def _topic_ranges(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Source]:
    ranges: list[Source] = []
    for topic, partitions in end.items():
        before = start.get(topic, {})
        # A partition that was added since begins at its first record.
        spans = {int(p): (int(before.get(p, 0)), int(offset)) for p, offset in partitions.items()}
        ranges.append(TopicSource(topic=topic, ranges=spans))
    return ranges


def _table_range(
    start: Mapping[str, Any] | None, end: Mapping[str, Any], tables: Mapping[str, str]
) -> TableSource | None:
    first = int(start["reservoirVersion"]) if start is not None and "reservoirVersion" in start else 0
    # A negative index means that nothing of that version was read yet.
    last = int(end["reservoirVersion"]) - (1 if int(end["index"]) < 0 else 0)
    if start is not None and start.get("isStartingVersion") and not end.get("isStartingVersion"):
        first = min(first, last)
    if last < first:
        return None
    return TableSource(table=tables.get(end["reservoirId"], end["reservoirId"]), versions=(first, last))


def _merged(found: list[Source]) -> list[Source]:
    """One entry a topic or table, also when a query reads it twice."""
    merged: dict[str, Source] = {}
    for each in found:
        name = f"topic {each.topic}" if isinstance(each, TopicSource) else f"table {each.table}"
        before = merged.get(name)
        if isinstance(each, TopicSource) and isinstance(before, TopicSource):
            spans = dict(before.ranges)
            for partition, span in each.ranges.items():
                spans[partition] = _both(span, spans.get(partition, span))
            each = TopicSource(topic=each.topic, ranges=spans)
        elif isinstance(each, TableSource) and isinstance(before, TableSource):
            each = TableSource(table=each.table, versions=_both(each.versions, before.versions))
        merged[name] = each
    return list(merged.values())


def _both(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return min(left[0], right[0]), max(left[1], right[1])


def ranges_text(sources: Iterable[Source]) -> str:
    """For a person: `orders 0: 100-249, 1: 90-179`, both ends included."""
    texts = []
    for source in sources:
        if isinstance(source, TopicSource):
            spans = ", ".join(f"{p}: {a}-{b - 1}" for p, (a, b) in sorted(source.ranges.items()) if b > a)
            texts.append(f"{source.topic} offsets {spans}" if spans else f"{source.topic} no offsets")
        else:
            texts.append(f"{source.table} versions {source.versions[0]}-{source.versions[1]}")
    return "; ".join(texts)
