"""Where every group of a shard is in every partition, and what open transactions will make of it when they end.

Sans-IO: it holds the offsets and says which records keep them, and changes only when it is told that they are written.
It never reads a clock and never asks whether a member may commit: the groups do.

An offset committed inside a transaction is pending until a marker ends the transaction. Then it counts, unless a later
record has overtaken it: what counts is the last record in the journal, not the last marker. Every `apply` and `pend`
must therefore come in the journal's order, which is the order in which the journal reports its appends as done.
A tombstone takes the pending offsets of its partition along. A marker ends a transaction in its own partition of
`__consumer_offsets` only, so in one store: other groups of the same producer wait for theirs. A commit on its way to
the journal (`writing`) is not seen yet, but what it is about to replace must not expire, and what deletes a group
deletes it too.
"""

from collections.abc import Callable, Container, Generator, Iterable
from typing import Any, Final

from headrace.coordinator.group_records import CommittedOffset, OffsetCommitRecord, encode_offset_commit
from headrace.coordinator.journal import COMMIT, JournalRecord, Pair
from headrace.coordinator.topic_view import TopicPartition

__all__ = ["CommittedOffset", "Entry", "OffsetStore"]

Entry = tuple[str, int, CommittedOffset]  # topic, partition, what is committed
NO_PRODUCER: Final = -1
OFFSETS_PER_STEP: Final = 32


class _Pending:
    """What one producer's open transaction holds for one partition of a group."""

    __slots__ = ("committed", "overtaken", "sequence")

    def __init__(self, committed: CommittedOffset, sequence: int) -> None:
        self.committed = committed
        self.sequence = sequence
        self.overtaken = False


class OffsetStore:
    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # By group and partition, since that is how they are asked for: each producer that has one pending.
        self._pending: dict[str, dict[TopicPartition, dict[int, _Pending]]] = {}
        self._open: dict[int, set[str]] = {}  # producer → groups in which its transaction has written
        self._open_in: dict[str, set[int]] = {}  # the same by group
        self._writing: dict[str, dict[TopicPartition, int]] = {}  # how many commits are on their way
        self._sequence = 0

    # ── looking up ───────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        offsets = self._groups.get(group_id)
        return None if offsets is None else offsets.get((topic, partition))

    def all(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        return dict(self._groups.get(group_id, {}))

    def group_ids(self) -> set[str]:
        """Every group that has an offset, be it only a pending one."""
        return set(self._groups) | set(self._pending)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        waiting = self._pending.get(group_id)
        return waiting is not None and (topic, partition) in waiting

    def has_open_transaction(self, group_id: str) -> bool:
        """A group with one must not be forgotten, even if a tombstone has taken all that it had pending."""
        return group_id in self._open_in

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """What must be deleted with the group: the partitions with an offset, be it pending or still on its way."""
        tables: tuple[dict[str, Any], ...] = (self._groups, self._pending, self._writing)
        return list(dict.fromkeys(each for table in tables for each in table.get(group_id, ())))

    def partitions_of_topics(self, topics: Container[str]) -> Generator[None, None, dict[str, list[TopicPartition]]]:
        """By group, what must be deleted with these topics, found in steps. Nobody commits for them any more; what is
        on its way moves from the first of these tables to the last, so nothing is missed."""
        found: dict[str, dict[TopicPartition, None]] = {}
        tables: tuple[dict[str, Any], ...] = (self._writing, self._pending, self._groups)
        for table in tables:
            for group_id in list(table):
                for at, each in enumerate(list(table.get(group_id, ()))):
                    if each[0] in topics:
                        found.setdefault(group_id, {})[each] = None
                    if at % OFFSETS_PER_STEP == 0:
                        yield
        return {group_id: list(partitions) for group_id, partitions in found.items()}

    # ── plain commits ────────────────────────────────────────────────────────────────────────────────────────────────

    def commit_records(self, group_id: str, entries: Iterable[Entry]) -> list[Pair]:
        return [encode_offset_commit(group_id, topic, partition, committed) for topic, partition, committed in entries]

    def writing(self, group_id: str, entries: Iterable[Entry]) -> None:
        """They were given to the journal."""
        on_their_way = self._writing.setdefault(group_id, {})
        for topic, partition, _ in entries:
            on_their_way[topic, partition] = on_their_way.get((topic, partition), 0) + 1

    def written(self, group_id: str, entries: Iterable[Entry]) -> None:
        """The journal is done with them, well or badly. Then `apply` or `pend` them, if well."""
        on_their_way = self._writing[group_id]
        for topic, partition, _ in entries:
            on_their_way[topic, partition] -= 1
            if not on_their_way[topic, partition]:
                del on_their_way[topic, partition]
        if not on_their_way:
            del self._writing[group_id]

    def apply(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        offsets = self._groups.get(group_id)
        if offsets is None:
            offsets = self._groups[group_id] = {}
        offsets[topic, partition] = committed
        if self._pending:
            self._overtake(group_id, (topic, partition), None)

    def _overtake(self, group_id: str, at: TopicPartition, sequence: int | None) -> None:
        """Pending offsets that were written before (None: all so far) will not count any more."""
        for pending in self._pending.get(group_id, {}).get(at, {}).values():
            if sequence is None or pending.sequence < sequence:
                pending.overtaken = True

    # ── commits in transactions ──────────────────────────────────────────────────────────────────────────────────────

    def pend(self, producer_id: int, group_id: str, entries: Iterable[Entry]) -> None:
        for topic, partition, committed in entries:
            self._sequence += 1
            waiting = self._pending.setdefault(group_id, {}).setdefault((topic, partition), {})
            waiting[producer_id] = _Pending(committed, self._sequence)
            self._open.setdefault(producer_id, set()).add(group_id)
            self._open_in.setdefault(group_id, set()).add(producer_id)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A marker was written to the partition of the journal that these groups are in."""
        for group_id in self._open.pop(producer_id, ()):
            producers = self._open_in[group_id]
            producers.discard(producer_id)
            if not producers:
                del self._open_in[group_id]
            self._end_in_group(producer_id, group_id, committed)

    def _end_in_group(self, producer_id: int, group_id: str, committed: bool) -> None:
        waiting = self._pending.get(group_id, {})
        for at, producers in list(waiting.items()):
            pending = producers.pop(producer_id, None)
            if not producers:
                del waiting[at]
            if pending is not None and committed and not pending.overtaken:
                self._groups.setdefault(group_id, {})[at] = pending.committed
                self._overtake(group_id, at, pending.sequence)
        if not waiting:
            self._pending.pop(group_id, None)

    # ── deleting ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def delete_records(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[Pair]:
        """Tombstones for those of them that have an offset."""
        tables: tuple[dict[str, Any], ...] = (self._groups, self._pending, self._writing)
        known = [table[group_id] for table in tables if group_id in table]
        there = (each for each in dict.fromkeys(partitions) if any(each in table for table in known))
        return [encode_offset_commit(group_id, topic, partition, None) for topic, partition in there]

    def forget(self, group_id: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """After the tombstones are written. None: all that the group has."""
        offsets, waiting = self._groups.get(group_id, {}), self._pending.get(group_id, {})
        for each in self.partitions(group_id) if partitions is None else partitions:
            offsets.pop(each, None)
            waiting.pop(each, None)
        if not offsets:
            self._groups.pop(group_id, None)
        if not waiting:
            self._pending.pop(group_id, None)

    def expired(
        self,
        group_id: str,
        *,
        now_ms: int,
        retention_ms: int,
        empty_since_ms: int | None,
        subscribed: Callable[[str], bool],
    ) -> list[TopicPartition]:
        """What nobody has used for so long that it is deleted (KIP-211).

        Counted from when the group became empty (`empty_since_ms`), or from the commit itself if the group has members
        or never had any, or if nobody wrote down when they left. An old client's own time limit goes before all that.
        A topic that somebody is subscribed to keeps its offsets, and so does a transaction that is open. The groups
        must not ask at all while they rebalance, nor for a group with members whose subscription they cannot read.
        """
        found = []
        on_their_way = self._writing.get(group_id, {})
        for (topic, partition), committed in self._groups.get(group_id, {}).items():
            in_use = (topic, partition) in on_their_way or self.has_pending(group_id, topic, partition)
            if in_use or subscribed(topic):
                continue
            if committed.expire_timestamp_ms != -1:
                due = now_ms >= committed.expire_timestamp_ms
            else:
                since_ms = committed.commit_timestamp_ms if empty_since_ms is None else empty_since_ms
                due = now_ms - since_ms >= retention_ms
            if due:
                found.append((topic, partition))
        return found

    # ── after a restart ──────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: OffsetCommitRecord, entry: JournalRecord) -> None:
        group_id, topic, partition, committed = record
        if committed is None:
            self.forget(group_id, [(topic, partition)])
        elif entry.producer_id == NO_PRODUCER:
            self.apply(group_id, topic, partition, committed)
        else:
            self.pend(entry.producer_id, group_id, [(topic, partition, committed)])

    def replay_marker(self, entry: JournalRecord) -> None:
        self.end_transaction(entry.producer_id, entry.control_type == COMMIT)

    # ── giving up ────────────────────────────────────────────────────────────────────────────────────────────────────

    def drop_some(self, count: int) -> int:
        """Forgets that many offsets, and tells how many it were: 0 if none is left."""
        dropped = 0
        tables: tuple[dict[str, dict[TopicPartition, Any]], ...] = (self._groups, self._pending)
        for table in tables:
            while table and dropped < count:
                group_id, offsets = next(iter(table.items()))
                while offsets and dropped < count:
                    offsets.popitem()
                    dropped += 1
                if not offsets:
                    del table[group_id]
        return dropped
