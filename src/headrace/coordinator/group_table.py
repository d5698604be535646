"""The groups of a shard, and what is done for them: records written, answers given, deadlines watched.

A group id belongs to one kind of group at a time. Nothing is answered that depends on a record before it is written.
Once the shard is given up nothing is written any more, and no group is woken.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from headrace.coordinator import group_records
from headrace.coordinator.classic.effects import Answer, CreationStored, Effect, Store
from headrace.coordinator.classic.group import ClassicGroup
from headrace.coordinator.deadlines import Alarm, CallLater, Now
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.journal import Pair
from headrace.coordinator.journal_errors import response_code
from headrace.coordinator.member_budget import MemberBudget, MemberUsage
from headrace.coordinator.offsets.store import OffsetStore
from headrace.coordinator.shard_journal import ShardJournal
from headrace.coordinator.topic_view import TopicView
from headrace.core.clock import Clock
from headrace.core.errors import InvariantError
from headrace.core.telemetry import failure
from headrace.protocol.error_codes import NONE, NOT_COORDINATOR

LOADING_WAIT_MS: Final = 1_000  # a deadline that has come while the shard is loaded is looked at again

logger = logging.getLogger(__name__)


class GroupTable:
    def __init__(
        self,
        journal: ShardJournal,
        clock: Clock,
        call_later: CallLater,
        settings: GroupSettings,
        topics: TopicView,
        budget: MemberBudget,
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.journal = journal
        self.call_later = call_later
        self.offsets = OffsetStore()
        self.classic: dict[str, ClassicGroup] = {}
        self.deleting: set[str] = set()  # groups whose many offsets are on their way out
        self._clock = clock
        self.budget = budget  # shared with the other shards
        self.is_active = False  # requests are served
        self.consumer_bytes: Callable[[], int] = int  # of the members of consumer groups; whoever owns those sets it
        self._alarms: dict[str, Alarm] = {}
        self._busy: set[ClassicGroup] = set()  # whose events go on in the next turn

    def now(self) -> Now:
        return Now(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    def new_classic(self, group_id: str) -> ClassicGroup:
        group = self.classic[group_id] = ClassicGroup(group_id, self.settings, self.now(), self.budget)
        return group

    @property
    def is_closed(self) -> bool:
        """The shard is given up: what happens to its groups from now on is of no consequence."""
        return self.journal.is_closed

    def usage(self) -> MemberUsage:
        rosters = [group.facts.roster for group in self.classic.values()]
        byte_count = sum(each.byte_count + each.assignment_bytes for each in rosters)
        return MemberUsage(byte_count + self.consumer_bytes(), sum(len(each.pending) for each in rosters))

    def forget_classic(self, group: ClassicGroup) -> None:
        """Unless its id belongs to another one by now."""
        if self.classic.get(group.group_id) is group:
            del self.classic[group.group_id]
            alarm = self._alarms.pop(group.group_id, None)
            if alarm is not None:
                alarm.cancel()

    def put_back(self, group: ClassicGroup) -> None:
        """What was to take its place could not be written."""
        if self.is_closed:
            self.perform(group, group.die(NOT_COORDINATOR, self.now()))
            return
        self.classic.setdefault(group.group_id, group)
        self.watch(group, self.now())

    def append(self, records: Sequence[Pair], done: Callable[[int], None]) -> None:
        """One atomic batch about a group; `done` is told NONE when it is safe, or what to answer if it is not."""
        self.journal.append(records, lambda error: done(response_code(error)))

    # ── what the machines want done ──────────────────────────────────────────────────────────────────────────────

    def perform(self, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        """Records in their order and at once, and answers. What is left of the event (all members of a large group)
        goes on in later turns."""
        for effect in effects:
            if isinstance(effect, Answer):
                effect.ticket(effect.body)
            else:
                self._store(group, effect)
        if group.is_busy:
            self._go_on_later(group)
        self.watch(group, self.now())

    def _go_on_later(self, group: ClassicGroup) -> None:
        if group not in self._busy:
            self._busy.add(group)
            self.call_later(0, lambda: self._go_on(group))

    def _go_on(self, group: ClassicGroup) -> None:
        self._busy.discard(group)
        try:
            effects = group.go_on(self.now())
        except Exception:
            if group.is_busy:
                self._go_on_later(group)  # the others in line
            raise
        self.perform(group, effects)

    def _store(self, group: ClassicGroup, store: Store) -> None:
        def written(code: int) -> None:
            if code != NONE and isinstance(store.then, CreationStored):
                self.forget_classic(group)
                self.perform(group, group.die(code, self.now()))
            else:
                self.perform(group, group.stored(store.then, code, self.now()))
            for ticket, body in store.answers:
                ticket(body if code == NONE else {"error_code": code, "members": []})

        record = group_records.encode_group_metadata(group.group_id, store.metadata, store.encoded_members)
        self.append([*store.before, record], written)

    # ── deadlines ────────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, group: ClassicGroup, now: Now) -> None:
        """Sees to it that the group is woken at its next deadline."""
        if not group.expiry_waits and self.classic.get(group.group_id) is group and not self.is_closed:
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
        if group is None or self.is_closed:
            self._alarms.pop(group_id, None)
        elif not self.is_active:
            now = self.now()
            self.wake_at(group_id, now.ms + LOADING_WAIT_MS, now)
        else:
            self.perform(group, group.expire(self.now()))

    # ── giving up ────────────────────────────────────────────────────────────────────────────────────────────────

    def abandon(self, group: ClassicGroup) -> None:
        """The shard is given up, and the group with it: whoever waits in it is told to look for the coordinator."""
        self.forget_classic(group)
        try:
            self.perform(group, group.die(NOT_COORDINATOR, self.now()))
        except InvariantError:
            raise
        except Exception as error:  # other groups go all the same
            failure(logger, "group failed when it was given up", error, group=group.group_id)
