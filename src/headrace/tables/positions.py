"""How far into the log each version of a table has read, and at which versions two tables can be compared.

A position is an end offset for each partition of each topic. A table that is made of tables stands where those stood
that it read; it may have read one topic by several ways, each of them to another offset: so a position has a lower and
an upper end, and is exact where they are equal. `common` chooses from two tables the newest versions that stand at one
position. Where batches ended at different offsets there are none such; then it takes a version of the one table and the
two versions of the other around it, and what changed between those two is lag. The choice needs no IO.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headrace.core.errors import OperatorError
from headrace.tables.delta_log import DeltaLog
from headrace.tables.provenance import Source, TopicSource

PartitionName = tuple[
    str, int
]  # a topic and one of its partitions; of a table that is not this pipeline's, partition -1
Span = tuple[int, int]
Route = tuple[str, ...]  # the tables between a topic and its reader
TABLE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The last batch that a node has committed, and up to where it had read then, by its checkpoint."""

    batch: int
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """A version of a table, and the position at which it stands."""

    version: int
    ends: Mapping[PartitionName, Span] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        return all(low == high for low, high in self.ends.values())

    @property
    def begun(self) -> bool:
        return any(high > 0 for _, high in self.ends.values())

    @property
    def records(self) -> int:
        """How much has been read, to tell which of two positions is the later."""
        return sum(low for low, _ in self.ends.values())

    def only(self, topics: Iterable[str]) -> "Stand":
        wanted = set(topics)
        return Stand(version=self.version, ends={at: span for at, span in self.ends.items() if at[0] in wanted})

    def ahead_of(self, other: "Stand") -> bool:
        """Whether it has read something that the other has not."""
        return any(high > other.ends.get(place, (0, 0))[0] for place, (_, high) in self.ends.items())

    def same_as(self, other: "Stand") -> bool:
        return not self.ahead_of(other) and not other.ahead_of(self)

    def records_ahead_of(self, other: "Stand") -> int:
        return sum(
            max(0, high - other.ends.get(at, (0, 0))[1]) for at, (_, high) in self.ends.items() if at[1] != TABLE
        )

    def text(self) -> str:
        """For a person: `orders 0: 250, 1: 180`; what comes next, as Kafka's tools show it."""
        topics: dict[str, list[str]] = {}
        for (topic, partition), (low, high) in sorted(self.ends.items()):
            end = f"{high}" if low == high else f"{low} to {high}"
            topics.setdefault(topic, []).append(f"version {end}" if partition == TABLE else f"{partition}: {end}")
        return "; ".join(f"{topic} {', '.join(ends)}" for topic, ends in topics.items()) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The versions to compare. `before` is an earlier version of the table on `side`, when batches ended at different
    offsets: what changed between it and the compared one is lag."""

    a: Stand
    b: Stand
    before: Stand | None = None
    side: Literal["a", "b"] = "a"

    @property
    def position(self) -> Stand:
        """The version that stands at the position itself."""
        return self.b if self.side == "a" else self.a


class Positions:
    """Where the tables of one version of a pipeline stand. `log_of` finds the log of a table, and raises for one that
    is not of this version; `reached` knows what a table's node has committed last, also if that changed no row."""

    def __init__(self, log_of: Callable[[str], DeltaLog], reached: Callable[[str], Reached | None]) -> None:
        self._log_of = log_of
        self._reached = reached
        self._ways: dict[str, list[tuple[int, dict[tuple[PartitionName, Route], int]]]] = {}

    def stands(self, table: str) -> list[Stand]:
        """The oldest first. A version may stand at two positions: where it was made, and where the node is now."""
        ways = self._of(table)
        known = {way for _, ends in ways for way in ends}
        return [Stand(version=version, ends=_spans(ends, known)) for version, ends in ways]

    def _of(self, table: str, above: tuple[str, ...] = ()) -> list[tuple[int, dict[tuple[PartitionName, Route], int]]]:
        if table in self._ways:
            return self._ways[table]
        # The checkpoint first: what it has committed is in the log that is read after it.
        reached = self._reached(table)
        log = self._log_of(table)
        ends: dict[tuple[PartitionName, Route], int] = {}
        found, last_batch = [], -1
        for version in log.versions:
            made_by = log.commit(version).provenance
            if made_by is not None and made_by.node == table and made_by.sources:
                ends = {**ends, **self._ends(table, made_by.sources, above)}
                last_batch = made_by.batch
            found.append((version, ends))
        if reached is not None and reached.batch >= last_batch:
            found.append((log.last, {**ends, **self._ends(table, reached.sources, above, now=True)}))
        self._ways[table] = found
        return found

    def _ends(
        self, table: str, sources: Sequence[Source], above: tuple[str, ...], *, now: bool = False
    ) -> dict[tuple[PartitionName, Route], int]:
        """`now`: what it read stands where its node is now, not only where it was made."""
        ends: dict[tuple[PartitionName, Route], int] = {}
        for source in sources:
            if isinstance(source, TopicSource):
                ends.update({((source.topic, at), ()): end for at, (_, end) in source.ranges.items()})
                continue
            upstream = None
            if source.table not in (*above, table):
                try:
                    upstream = self._of(source.table, (*above, table))
                except OperatorError:
                    upstream = None  # another pipeline's
            if upstream is None:
                ends[((source.table, TABLE), ())] = source.versions[1]
                continue
            read = dict(item for item in (upstream if now else reversed(upstream)) if item[0] <= source.versions[1])
            for (place, route), end in (read[max(read)] if read else {}).items():
                ends[(place, (source.table, *route))] = end
        return ends


def _spans(
    ends: Mapping[tuple[PartitionName, Route], int], known: Iterable[tuple[PartitionName, Route]]
) -> dict[PartitionName, Span]:
    """A way that was not gone yet has read nothing."""
    spans: dict[PartitionName, Span] = {}
    for place, route in known:
        end = ends.get((place, route), 0)
        low, high = spans.get(place, (end, end))
        spans[place] = (min(low, end), max(high, end))
    return spans


def shared_topics(a: Sequence[Stand], b: Sequence[Stand]) -> set[str]:
    """What both have read."""
    one, other = ({place[0] for stand in side for place in stand.ends} for side in (a, b))
    return one & other


def common(a: Sequence[Stand], b: Sequence[Stand]) -> Pair | None:
    """From two lists in the order of their versions. None where neither stands between two versions of the other. One
    position is better than two, unless both tables have gone on since."""
    met = _met(a, b)
    if met is not None and (met.a.same_as(a[-1]) or met.b.same_as(b[-1])):
        return met
    found = [pair for pair in (_between(a, b, "a"), _between(b, a, "b")) if pair is not None]
    return max(found, key=lambda pair: pair.position.records, default=met)


def _between(moving: Sequence[Stand], fixed: Sequence[Stand], side: Literal["a", "b"]) -> Pair | None:
    """The newest version of the one table that lies between two of the other."""
    for stand in reversed(fixed):
        if (around := _around(moving, stand)) is not None:
            before, after = around
            a, b = (after, stand) if side == "a" else (stand, after)
            return Pair(a=a, b=b, before=before, side=side)
    return None


def _met(a: Sequence[Stand], b: Sequence[Stand]) -> Pair | None:
    i, j = len(a) - 1, len(b) - 1
    while i >= 0 and j >= 0:
        a_ahead, b_ahead = a[i].ahead_of(b[j]), b[j].ahead_of(a[i])
        if not a_ahead and not b_ahead:
            return Pair(a=a[i], b=b[j]) if a[i].begun or a[i] is a[-1] or b[j] is b[-1] else None
        # The one that is ahead cannot meet what lies further back in the other: it goes back itself.
        i, j = i - a_ahead, j - b_ahead
    return None


def _around(side: Sequence[Stand], stand: Stand) -> tuple[Stand, Stand] | None:
    """The last version that is not ahead of a position, and the first that is not behind it."""
    if not stand.exact or not stand.begun:
        return None
    before = next((each for each in reversed(side) if not each.ahead_of(stand)), None)
    after = next((each for each in side if not stand.ahead_of(each)), None)
    return (before, after) if before is not None and after is not None else None
