"""What the regular expressions of a group's members stand for at the moment.

An expression is tried on a topic once, when either is new; after that only on topics that were not there before.
"""

from headrace.coordinator.consumer_group_changes import PatternChange
from headrace.coordinator.consumer_group_table import ConsumerGroupTable
from headrace.coordinator.topic_pattern import TopicPattern
from headrace.coordinator.topic_view import TopicView
from headrace.core.errors import PeerError


class GroupPatterns:
    def __init__(self, table: ConsumerGroupTable, topics: TopicView) -> None:
        self._table = table
        self._topics = topics
        self._compiled: dict[str, TopicPattern | None] = {}  # None: a journal of another broker had it, we refuse it
        self._names_seen: frozenset[str] = frozenset()

    def check(self, pattern: str) -> None:
        """PeerError if it is malformed. To be called before anything is changed."""
        if pattern and pattern not in self._compiled:
            self._compiled[pattern] = TopicPattern(pattern)

    def unused(self) -> list[PatternChange]:
        used = self._used()
        self._compiled = {pattern: compiled for pattern, compiled in self._compiled.items() if pattern in used}
        return [PatternChange(pattern, None) for pattern in self._table.patterns if pattern not in used]

    def resolved(self, wall_ms: int, *, is_stale: bool) -> list[PatternChange]:
        """Those that stand for something else than is known. `is_stale`: the topics have changed."""
        used = self._used()
        if not used or not (is_stale or any(each not in self._table.patterns for each in used)):
            return []
        names = frozenset(self._topics.all_topics())
        changes = []
        for pattern in sorted(used):
            known = self._table.patterns.get(pattern)
            untried = names if known is None or pattern not in self._compiled else names - self._names_seen
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

    def _used(self) -> set[str]:
        return {member.subscription.pattern for member in self._table.members.values()} - {""}
