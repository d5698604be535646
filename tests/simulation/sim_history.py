"""What the clients of a simulation did and saw, and what must hold of it.

Everything here is judged from outside: from answers that reached a client. Values are unique, so a record that comes
twice, at another offset, or out of order shows itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from violations import ViolationError

Partition = tuple[str, int]
Found = dict[Partition, dict[int, str]]  # values by offset
NEVER = 1 << 62


def check(holds: bool, what: str) -> None:
    if not holds:
        raise ViolationError(what)


@dataclass(eq=False)
class Txn:
    """One transaction, as its producer knows it."""

    name: str
    commit_requested: bool = False
    committed: bool | None = None  # None: not known
    values: list[tuple[Partition, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Sent:
    session: str  # one producer id and epoch: its sequence numbers
    number: int  # the how-manieth of its session in its partition
    txn: Txn | None


class Records:
    """What was sent, acknowledged and seen in each partition."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self.acked: dict[Partition, dict[int, str]] = defaultdict(dict)
        self.content: dict[Partition, dict[int, str]] = defaultdict(dict)  # by offset, once seen or acknowledged
        self.place: dict[str, tuple[Partition, int]] = {}
        self.acked_end: dict[Partition, int] = defaultdict(int)

    def will_send(self, value: str, session: str, number: int, txn: Txn | None = None) -> None:
        self.sent[value] = Sent(session, number, txn)

    def acknowledged(self, partition: Partition, base_offset: int, values: list[str]) -> None:
        for offset, value in enumerate(values, base_offset):
            self._is_at(partition, offset, value)
            self.acked[partition][offset] = value
        self.acked_end[partition] = max(self.acked_end[partition], base_offset + len(values))

    def saw(self, reader: str, partition: Partition, offset: int, value: str, *, committed_only: bool) -> None:
        check(value in self.sent, f"{reader} read {value!r} at {partition} {offset}, which nobody sent")
        self._is_at(partition, offset, value)
        txn = self.sent[value].txn
        if txn is not None and committed_only:
            where = f"{reader} (read_committed) read {value!r} at {partition} {offset}"
            check(txn.commit_requested, f"{where} of {txn.name}, whose commit nobody has asked for")
            check(txn.committed is not False, f"{where} of {txn.name}, which was aborted")

    def _is_at(self, partition: Partition, offset: int, value: str) -> None:
        before = self.content[partition].setdefault(offset, value)
        check(before == value, f"offset {offset} of {partition} was {before!r}, and is {value!r} now")
        place = self.place.setdefault(value, (partition, offset))
        check(place == (partition, offset), f"{value!r} is twice: at {place} and at {(partition, offset)}")

    def check_whole(self, everything: Found, committed: Found) -> None:
        """At the end: `everything` is what an uncommitted reader finds, `committed` what a committed one does."""
        for partition, known in self.acked.items():
            for offset, value in known.items():
                found = everything[partition].get(offset)
                check(found == value, f"{value!r} was acknowledged at {partition} {offset}, where {found!r} is found")
        for partition, seen in self.content.items():
            for offset, value in seen.items():
                found = everything[partition].get(offset)
                check(found == value, f"{value!r} was read at {partition} {offset}, where {found!r} is in the end")
        for partition, found in everything.items():
            self._check_order(partition, found)
        for partition, found in everything.items():
            for offset, value in found.items():
                if self.sent[value].txn is None:
                    is_seen = committed[partition].get(offset) == value
                    check(is_seen, f"a committed reader does not see {value!r} at {partition} {offset}")
        self._check_transactions(everything, committed)

    def _check_order(self, partition: Partition, found: dict[int, str]) -> None:
        numbers: dict[str, int] = defaultdict(int)
        for offset in sorted(found):
            sent = self.sent[found[offset]]
            expected = numbers[sent.session]
            check(
                sent.number == expected,
                f"{partition} {offset}: {found[offset]!r} is number {sent.number} of its producer, not {expected}",
            )
            numbers[sent.session] += 1

    def _check_transactions(self, everything: Found, committed: Found) -> None:
        visible = {value for found in committed.values() for value in found.values()}
        present: dict[Txn, set[str]] = defaultdict(set)
        for found in everything.values():
            for value in found.values():
                txn = self.sent[value].txn
                if txn is not None:
                    present[txn].add(value)
        for txn, values in present.items():
            seen = values & visible
            if txn.committed or (txn.committed is None and seen):
                check(seen == values, f"{txn.name} was committed, but {sorted(values - seen)} cannot be seen")
                missing = [value for _, value in txn.values if value not in values]
                check(not missing, f"{txn.name} was committed, but {missing} are not there")
            if txn.committed is False or not txn.commit_requested:
                check(not seen, f"{txn.name} was not committed, but {sorted(seen)} can be seen")


@dataclass(eq=False)
class Commit:
    """A committed offset: from when to when it may have taken effect."""

    offset: int
    note: str
    began: int
    ended: int = NEVER
    counts: bool = False  # it was acknowledged


class CommittedOffsets:
    """What a group has committed, as a register: who reads it finds the last commit, or one that is under way."""

    def __init__(self) -> None:
        self.managed = {"classic", "consumer"}  # their members go on from what was committed: it only ever grows
        self._now = 0
        self._commits: dict[tuple[str, Partition], list[Commit]] = defaultdict(list)
        self._open: list[Commit] = []

    def tick(self) -> int:
        self._now += 1
        return self._now

    def began(self, group: str, partition: Partition, offset: int, note: str) -> Commit:
        commit = Commit(offset, note, self.tick())
        self._commits[group, partition].append(commit)
        return commit

    def acknowledged(self, commit: Commit) -> None:
        commit.ended = self.tick()
        commit.counts = True

    def refused(self, group: str, partition: Partition, commit: Commit) -> None:
        """It certainly had no effect."""
        self._commits[group, partition].remove(commit)

    def unknown(self, commit: Commit, *, may_still_come: bool) -> None:
        if may_still_come:
            self._open.append(commit)
        else:
            commit.ended = self.tick()

    def nothing_under_way(self) -> None:
        """The broker has handled all that was ever sent, or has died."""
        now = self.tick()
        for commit in self._open:
            commit.ended = min(commit.ended, now)
        self._open.clear()

    def read(self, group: str, partition: Partition, asked: int, offset: int, note: str) -> None:
        commits = self._commits[group, partition]
        settled = max((each.began for each in commits if each.counts and each.ended < asked), default=-1)
        where = f"committed offset of {group} {partition}"
        if offset < 0:
            check(settled < 0, f"{where} is gone")
            return
        found = next((each for each in commits if each.note == note and each.offset == offset), None)
        check(found is not None, f"{where} is {offset} ({note}), which nobody has committed")
        assert found is not None
        check(found.ended >= settled, f"{where} went back to {offset} ({note})")
        if group in self.managed:
            floor = max((each.offset for each in commits if each.counts and each.ended < asked), default=0)
            check(offset >= floor, f"{where} went back from {floor} to {offset} ({note})")


class Ownership:
    """Who thinks that it owns a partition: from its assignment until it gives up, or must think that it is out."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, Partition], dict[str, int]] = defaultdict(dict)  # member: until when, in ms
        self._generations: dict[tuple[str, int], dict[Partition, str]] = defaultdict(dict)
        self.newest: dict[str, int] = defaultdict(int)

    def owns(self, group: str, member: str, partitions: set[Partition], until_ms: int, now_ms: int) -> None:
        """All that this member owns from now on."""
        for (each, partition), owners in self._owners.items():
            if each == group and partition not in partitions:
                owners.pop(member, None)
        if until_ms <= now_ms:
            partitions = set()
        for partition in sorted(partitions):
            owners = self._owners[group, partition]
            for other, until in owners.items():
                check(
                    other == member or until <= now_ms,
                    f"{group}: {partition} belongs to {other} until {until}, and to {member} at {now_ms}",
                )
            owners[member] = until_ms

    def others(self, group: str, member: str, partitions: Iterable[Partition], now_ms: int) -> set[str]:
        """Who else owns one of these."""
        owners = [self._owners[group, partition].items() for partition in partitions]
        return {other for each in owners for other, until in each if other != member and until > now_ms}

    def assigned(self, group: str, generation: int, member: str, partitions: set[Partition]) -> None:
        """In one generation of a classic group. A generation that was never shared out may come again after a crash."""
        self.newest[group] = max(self.newest[group], generation)
        for partition in sorted(partitions):
            owner = self._generations[group, generation].setdefault(partition, member)
            check(owner == member, f"{group} generation {generation}: {partition} is given to {owner} and to {member}")
