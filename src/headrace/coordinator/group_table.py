"""The groups that there are, and what is done for them: records written, answers given, deadlines watched.

A group id belongs to one kind of group at a time. Nothing is answered that depends on a record before it is written.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from headrace.coordinator import group_records
from headrace.coordinator.classic.effects import Answer, CreationStored, Effect, Store
from headrace.coordinator.classic.group import ClassicGroup
from headrace.coordinator.deadlines import Alarm, CallLater, Now
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.journal import Journal, Pair
from headrace.coordinator.journal_errors import response_code
from headrace.coordinator.member_budget import MemberBudget, MemberUsage
from headrace.coordinator.offsets.store import OffsetStore
from headrace.coordinator.placing import partition_for
from headrace.coordinator.topic_view import TopicView
from headrace.core.clock import Clock
from headrace.protocol.error_codes import NONE

ANSWERS_PER_TURN: Final = 128  # given to the members of one group, or of those that have to wait


class GroupTable:
    def __init__(
        self, journal: Journal, clock: Clock, call_later: CallLater, settings: GroupSettings, topics: TopicView
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.journal = journal
        self.call_later = call_later
        self.offsets = OffsetStore(self.partition_of)
        self.classic: dict[str, ClassicGroup] = {}
        self.lost: frozenset[int] = frozenset()  # partitions of the journal that could not be read
        self.deleting: set[str] = set()  # groups whose many offsets are on their way out
        self._clock = clock
        self.budget = MemberBudget(settings, self._usage)
        self.consumer_bytes: Callable[[], int] = int  # of the members of consumer groups; whoever owns those sets it
        self._alarms: dict[str, Alarm] = {}
        self._answers: deque[Answer] = deque()  # of large groups: given out in slices

    def now(self) -> Now:
        return Now(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    def new_classic(self, group_id: str) -> ClassicGroup:
        group = self.classic[group_id] = ClassicGroup(group_id, self.settings, self.now(), self.budget)
        return group

    def _usage(self) -> MemberUsage:
        rosters = [group.roster for group in self.classic.values()]
        byte_count = sum(each.byte_count + each.assignment_bytes for each in rosters)
        return MemberUsage(byte_count + self.consumer_bytes(), sum(len(each.pending) for each in rosters))

    def forget_classic(self, group: ClassicGroup) -> None:
        """Unless its id belongs to another one by now."""
        if self.classic.get(group.group_id) is group:
            del self.classic[group.group_id]

    def partition_of(self, group_id: str) -> int:
        """Asked for each record: until the journal's topic is made, its number of partitions may still change."""
        return partition_for(group_id, self.journal.partition_count)

    def append(self, group_id: str, records: Sequence[Pair], done: Callable[[int], None]) -> None:
        """One atomic batch about a group; `done` is told NONE when it is safe, or what to answer if it is not."""
        self.journal.append(self.partition_of(group_id), records, lambda error: done(response_code(error)))

    # ── what the machines want done ──────────────────────────────────────────────────────────────────────────────

    def perform(self, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        """Records in their order and at once; of many answers (all members of a large group) some in later turns."""
        left = ANSWERS_PER_TURN
        for effect in effects:
            if not isinstance(effect, Answer):
                self._store(group, effect)
            elif left > 0:
                left -= 1
                effect.ticket(effect.body)
            else:
                self._answer_later(effect)
        self.watch(group, self.now())

    def _answer_later(self, answer: Answer) -> None:
        if not self._answers:
            self.call_later(0, self._answer_slice)
        self._answers.append(answer)

    def _answer_slice(self) -> None:
        for _ in range(min(ANSWERS_PER_TURN, len(self._answers))):
            ticket, body = self._answers.popleft()
            ticket(body)
        if self._answers:
            self.call_later(0, self._answer_slice)

    def _store(self, group: ClassicGroup, store: Store) -> None:
        def written(code: int) -> None:
            if code != NONE and isinstance(store.then, CreationStored):
                self.forget_classic(group)
                self.perform(group, group.die(code, self.now()))
            else:
                self.perform(group, group.stored(store.then, code, self.now()))
            for ticket, body in store.answers:
                ticket(body if code == NONE else {"error_code": code, "members": []})

        record = group_records.encode_group_metadata(group.group_id, store.metadata)
        self.append(group.group_id, [*store.before, record], written)

    # ── deadlines ────────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, group: ClassicGroup, now: Now) -> None:
        """Sees to it that the group is woken at its next deadline."""
        if self.classic.get(group.group_id) is group:
            self.wake_at(group.group_id, group.deadlines.wake_ms, now)

    def wake_at(self, group_id: str, wake_ms: int, now: Now) -> None:
        alarm = self._alarms.get(group_id)
        if alarm is None:
            alarm = self._new_alarm(group_id)
        alarm.set(wake_ms, now.ms)

    def _new_alarm(self, group_id: str) -> Alarm:
        alarm = self._alarms[group_id] = Alarm(self.call_later, lambda: self._wake(group_id), group_id)
        return alarm

    def _wake(self, group_id: str) -> None:
        group = self.classic.get(group_id)
        if group is not None:
            self.perform(group, group.expire(self.now()))
        else:
            del self._alarms[group_id]
