"""Which offsets made a batch, from the files of its query's checkpoint.

Spark writes `offsets/<batch>` before the batch runs: one line of JSON a source with where it ends. Where it begins is
the end of the batch before, or for a topic's first batch `sources/<n>/0`. Reading only; a batch that is run again gives
the same answer.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.core.errors import InvariantError

VERSION_LINE = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange:
    """Of each partition the offsets from the first up to, but without, the second."""

    topic: str
    ranges: Mapping[str, tuple[int, int]]

    def as_json(self) -> dict[str, Any]:
        return {"topic": self.topic, "ranges": {partition: list(span) for partition, span in self.ranges.items()}}

    def __str__(self) -> str:
        spans = ", ".join(f"{p}: {a}-{b - 1}" for p, (a, b) in sorted(self.ranges.items()) if b > a)
        return f"{self.topic} offsets {spans}" if spans else f"{self.topic} no offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRange:
    """The versions of a Delta table from the first to the last, both included."""

    table: str
    first: int
    last: int

    def as_json(self) -> dict[str, Any]:
        return {"table": self.table, "versions": [self.first, self.last]}

    def __str__(self) -> str:
        return f"{self.table} versions {self.first}-{self.last}"


Range = TopicRange | TableRange


def batch_ranges(checkpoint: str, batch: int, tables: Mapping[str, str]) -> tuple[Range, ...]:
    """`tables` are the names of the tables that the query reads, by their Delta ids."""
    ends = _offsets(os.path.join(checkpoint, "offsets", str(batch)))
    starts = _offsets(os.path.join(checkpoint, "offsets", str(batch - 1))) if batch > 0 else [None] * len(ends)
    found: list[Range] = []
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


def parse_offsets(text: str) -> list[dict[str, Any] | None]:
    """A line a source; None for one that has not begun."""
    lines = text.splitlines()
    if not lines or lines[0] != VERSION_LINE:
        raise InvariantError(f"offsets of a batch begin with {lines[:1]}, not {VERSION_LINE}; another Spark wrote them")
    return [json.loads(line) if line.startswith("{") else None for line in lines[2:]]


def _offsets(path: str) -> list[dict[str, Any] | None]:
    with open(path, encoding="utf-8") as file:
        return parse_offsets(file.read())


def _initial(path: str) -> dict[str, Any]:
    """Where a topic began. The file has a zero byte in front, for a Spark of long ago."""
    try:
        with open(path, "rb") as file:
            text = file.read().lstrip(b"\0").decode()
    except OSError:
        return {}
    body = text.split("\n", 1)[1] if text.startswith("v") and "\n" in text else text
    try:
        return dict(json.loads(body))
    except ValueError:
        return {}


def _topic_ranges(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
    ranges: list[Range] = []
    for topic, partitions in end.items():
        before = start.get(topic, {})
        # A partition that was added since begins at its first record.
        spans = {p: (int(before.get(p, 0)), int(offset)) for p, offset in partitions.items()}
        ranges.append(TopicRange(topic=topic, ranges=spans))
    return ranges


def _table_range(
    start: Mapping[str, Any] | None, end: Mapping[str, Any], tables: Mapping[str, str]
) -> TableRange | None:
    first = int(start["reservoirVersion"]) if start is not None and "reservoirVersion" in start else 0
    # A negative index means that nothing of that version was read yet.
    last = int(end["reservoirVersion"]) - (1 if int(end["index"]) < 0 else 0)
    if start is not None and start.get("isStartingVersion") and not end.get("isStartingVersion"):
        first = min(first, last)
    if last < first:
        return None
    return TableRange(table=tables.get(end["reservoirId"], end["reservoirId"]), first=first, last=last)


def _merged(found: list[Range]) -> list[Range]:
    """One entry a topic or table, also when a query reads it twice."""
    merged: dict[str, Range] = {}
    for each in found:
        name = f"topic {each.topic}" if isinstance(each, TopicRange) else f"table {each.table}"
        before = merged.get(name)
        if isinstance(each, TopicRange) and isinstance(before, TopicRange):
            spans = dict(before.ranges)
            for partition, (low, high) in each.ranges.items():
                old = spans.get(partition, (low, high))
                spans[partition] = (min(low, old[0]), max(high, old[1]))
            each = TopicRange(topic=each.topic, ranges=spans)
        elif isinstance(each, TableRange) and isinstance(before, TableRange):
            each = TableRange(table=each.table, first=min(each.first, before.first), last=max(each.last, before.last))
        merged[name] = each
    return list(merged.values())
