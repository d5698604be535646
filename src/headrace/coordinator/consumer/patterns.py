"""What the regular expressions of a group's members stand for at the moment.

An expression is tried on a topic once, when either is new; after that only on topics that were not there before.
"""

from headrace.coordinator.consumer.changes import PatternChange
from headrace.coordinator.consumer.table import ConsumerGroupTable
from headrace.coordinator.topic_pattern import TopicPattern
from headrace.coordinator.topic_view import TopicView
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_REGULAR_EXPRESSION

PATTERNS_PER_GROUP_MAX = 1000  # each is tried on every topic; members of one group usually share one


class GroupPatterns:
    def __init__(self, table: ConsumerGroupTable, topics: TopicView) -> None:
        self._table = table
        self._topics = topics
        self._compiled: dict[str, TopicPattern | None] = {}  # None: a journal of another broker had it, we refuse it
        self._names_seen: frozenset[str] = frozenset()

    def check(self, pattern: str) -> None:
        """PeerError if it is malformed, or one too many. To be called before anything is changed."""
        used = self._table.counts.patterns
        if pattern and pattern not in used and len(used) >= PATTERNS_PER_GROUP_MAX:
            raise PeerError(
                INVALID_REGULAR_EXPRESSION,
                f"Group {self._table.group_id} subscribes with {len(used)} different regular expressions, the most that"
                " a group may have; use one of them.",
            )
        if pattern and pattern not in self._compiled:
            self._compiled[pattern] = TopicPattern(pattern)

    def unused(self) -> list[PatternChange]:
        counts = self._table.counts
        unused = [pattern for pattern in counts.dropped if pattern not in counts.patterns]
        counts.dropped.clear()
        for pattern in unused:
            self._compiled.pop(pattern, None)
        return [PatternChange(pattern, None) for pattern in unused if pattern in self._table.patterns]

    def forget_unused(self) -> None:
        """Those that were compiled for a heartbeat of which nothing came: each may take much memory."""
        used = self._table.counts.patterns
        if len(self._compiled) > len(used):
            self._compiled = {pattern: known for pattern, known in self._compiled.items() if pattern in used}

    def resolved(self, wall_ms: int, *, is_stale: bool) -> list[PatternChange]:
        """Those that stand for something else than is known. `is_stale`: the topics have changed."""
        counts = self._table.counts
        if not (counts.patterns if is_stale else counts.unresolved):
            return []
        names = frozenset(self._topics.all_topics())
        new_names = names - self._names_seen
        changes = []
        for pattern in sorted(counts.patterns if is_stale else counts.unresolved):
            known = self._table.patterns.get(pattern)
            untried = names if known is None or pattern not in self._compiled else new_names
            found = ((known or frozenset()) & names) | self._matching(pattern, untried)
            if found != known:
                changes.append(PatternChange(pattern, found, self._topics.revision, wall_ms))
        self._names_seen = names
        return changes

    def _matching(self, pattern: str, names: frozenset[str]) -> frozenset[str]:
        if pattern not in self._compiled:
            try:
                self._compiled[pattern] = TopicPattern(pattern)
            except PeerError:
                self._compiled[pattern] = None
        compiled = self._compiled[pattern]
        return frozenset() if compiled is None else frozenset(name for name in names if compiled.matches(name))
