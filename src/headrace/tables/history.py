"""From a version of a table back to the offsets of the log that made it.

A table that is made from another table names versions of that one; following them down ends at topics. What an
upstream log no longer holds is said, never guessed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.core.errors import OperatorError
from headrace.tables.delta_log import Commit, DeltaLog
from headrace.tables.provenance import TableSource, TopicSource

Ranges = tuple[tuple[int, int], ...]  # half-open, in order, not touching each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """What of which topics went in, and what could not be followed."""

    topics: Mapping[str, Mapping[int, Ranges]]
    gaps: tuple[str, ...] = ()


class OffsetTrail:
    """Follows commits upstream. `log_of` finds the log of another table of the same pipeline version."""

    def __init__(self, log_of: Callable[[str], DeltaLog]) -> None:
        self._log_of = log_of
        self._logs: dict[str, DeltaLog | str] = {}
        self._seen: dict[tuple[str, int], Offsets] = {}

    def offsets(self, commit: Commit) -> Offsets:
        return self._offsets(commit, ())

    def _offsets(self, commit: Commit, above: tuple[str, ...]) -> Offsets:
        if commit.provenance is None:
            return Offsets(topics={})
        parts = []
        for source in commit.provenance.sources:
            if isinstance(source, TopicSource):
                ranges = {partition: (offsets,) for partition, offsets in source.ranges.items()}
                parts.append(Offsets(topics={source.topic: ranges}))
            else:
                parts += self._upstream(source, above)
        return merged(parts)

    def _upstream(self, source: TableSource, above: tuple[str, ...]) -> list[Offsets]:
        if source.table in above:
            return [Offsets(topics={}, gaps=(f"{source.table} is made from itself",))]
        log = self._log(source.table)
        if isinstance(log, str):
            return [Offsets(topics={}, gaps=(log,))]
        parts = []
        first, last = source.versions
        known = [version for version in log.versions if first <= version <= last]
        if len(known) < last - first + 1:
            parts.append(Offsets(topics={}, gaps=(f"{source.table}: its log begins at version {log.first}",)))
        for version in known:
            key = (source.table, version)
            if key not in self._seen:
                self._seen[key] = self._offsets(log.commit(version), (*above, source.table))
            parts.append(self._seen[key])
        return parts

    def _log(self, table: str) -> DeltaLog | str:
        if table not in self._logs:
            try:
                self._logs[table] = self._log_of(table)
            except OperatorError as error:
                self._logs[table] = str(error)
        return self._logs[table]


def merged(parts: list[Offsets]) -> Offsets:
    topics: dict[str, dict[int, list[tuple[int, int]]]] = {}
    gaps: dict[str, None] = {}
    for part in parts:
        gaps.update(dict.fromkeys(part.gaps))
        for topic, partitions in part.topics.items():
            for partition, ranges in partitions.items():
                topics.setdefault(topic, {}).setdefault(partition, []).extend(ranges)
    return Offsets(
        topics={
            topic: {partition: joined(ranges) for partition, ranges in sorted(partitions.items())}
            for topic, partitions in sorted(topics.items())
        },
        gaps=tuple(gaps),
    )


def joined(ranges: list[tuple[int, int]]) -> Ranges:
    """Ranges that touch or overlap become one; empty ones go."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)
