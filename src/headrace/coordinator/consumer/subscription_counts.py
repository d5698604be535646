"""What the members of a consumer group want, counted: topics, regular expressions, classic protocols.

A group is asked for these at every join and at many heartbeats. Counting them as members come and go keeps a request's
cost independent of how many members there are. Every count can be taken back: `replace(after, before)` undoes
`replace(before, after)`, and `resolve` with the former topics undoes `resolve`.
"""

import hashlib
import uuid
from collections.abc import Iterable

from headrace.coordinator.consumer.member import Subscription
from headrace.coordinator.topic_view import TopicView

_MASK = (1 << 64) - 1
_SIGN = 1 << 63


class SubscriptionCounts:
    def __init__(self) -> None:
        self.topics: dict[str, int] = {}  # existing or not; how many members and regular expressions stand for each
        self.patterns: dict[str, int] = {}  # members by their regular expression
        self.protocols: dict[str, int] = {}  # classic members by the names of their protocols
        self.classic = 0  # members that speak the classic protocol
        self.unresolved: set[str] = set()  # regular expressions in use of which it is not known what they stand for
        self.dropped: set[str] = set()  # those that may be out of use; who looks at them takes them out
        self._resolved: dict[str, frozenset[str]] = {}
        self._digest = TopicsDigest()

    def replace(self, before: Subscription, after: Subscription) -> None:
        """A member wants something else than before; a new one wanted nothing, one that has gone wants nothing."""
        if before.topics != after.topics:
            self._count_topics(before.topics, -1)
            self._count_topics(after.topics, 1)
        if before.pattern != after.pattern:
            self._leave_pattern(before.pattern)
            self._join_pattern(after.pattern)
        if before.classic is not None:
            self.classic -= 1
            _count(self.protocols, {name for name, _ in before.classic.protocols}, -1)
        if after.classic is not None:
            self.classic += 1
            _count(self.protocols, {name for name, _ in after.classic.protocols}, 1)

    def resolve(self, pattern: str, topics: frozenset[str] | None) -> None:
        """The regular expression stands for these topics; None if that is not known any more."""
        is_used = pattern in self.patterns
        before = self._resolved.pop(pattern, None)
        if before is not None and is_used:
            self._count_topics(before, -1)
        if topics is not None:
            self._resolved[pattern] = topics
            if is_used:
                self._count_topics(topics, 1)
        if not is_used:
            self.dropped.add(pattern)
        elif topics is None:
            self.unresolved.add(pattern)
        else:
            self.unresolved.discard(pattern)

    def speak_any(self, names: Iterable[str]) -> bool:
        """Whether all classic members speak one of these protocols."""
        return any(self.protocols.get(name, 0) == self.classic for name in names)

    def topics_digest(self, view: TopicView) -> int:
        return self._digest.value(self.topics, view)

    def _join_pattern(self, pattern: str) -> None:
        if not pattern:
            return
        count = self.patterns.get(pattern, 0)
        self.patterns[pattern] = count + 1
        if count:
            return
        topics = self._resolved.get(pattern)
        if topics is None:
            self.unresolved.add(pattern)
        else:
            self._count_topics(topics, 1)

    def _leave_pattern(self, pattern: str) -> None:
        if not pattern:
            return
        self.patterns[pattern] -= 1
        if self.patterns[pattern]:
            return
        del self.patterns[pattern]
        self.unresolved.discard(pattern)
        self.dropped.add(pattern)
        self._count_topics(self._resolved.get(pattern, frozenset()), -1)

    def _count_topics(self, names: Iterable[str], by: int) -> None:
        self._digest.changed.update(_count(self.topics, names, by))


class TopicsDigest:
    """Another number when one of the topics was made, deleted or grown. Only ever compared with itself, so it need not
    be the hash that Kafka takes: a group that moves there is assigned once more. It is a sum, so that a topic that
    comes or goes costs the same among few topics and among many."""

    def __init__(self) -> None:
        self.changed: set[str] = set()  # topics that came or went since the last time
        self._sum = 0
        self._parts: dict[str, int] = {}
        self._revision: int | None = None

    def value(self, topics: dict[str, int], view: TopicView) -> int:
        if view.revision != self._revision:
            self._revision = view.revision
            self._sum = 0
            self._parts.clear()
            self.changed.update(topics)
        for name in self.changed:
            self._sum -= self._parts.pop(name, 0)
            if name in topics:
                part = _part(name, view.topic_id(name), view.partition_count(name))
                self._parts[name] = part
                self._sum += part
        self.changed.clear()
        return _signed(self._sum)


def topics_digest(names: Iterable[str], view: TopicView) -> int:
    """The same number, of topics that are not counted."""
    return _signed(sum(_part(name, view.topic_id(name), view.partition_count(name)) for name in set(names)))


def _part(name: str, topic_id: uuid.UUID | None, count: int | None) -> int:
    if topic_id is None:
        return 0
    return int.from_bytes(hashlib.blake2b(f"{name} {topic_id} {count}".encode(), digest_size=8).digest(), "big")


def _signed(number: int) -> int:
    number &= _MASK
    return number - (1 << 64) if number & _SIGN else number


def _count(counts: dict[str, int], names: Iterable[str], by: int) -> list[str]:
    """Those that came or went with this."""
    changed = []
    for name in names:
        before = counts.get(name, 0)
        after = before + by
        if after:
            counts[name] = after
        else:
            del counts[name]
        if not (before and after):
            changed.append(name)
    return changed
