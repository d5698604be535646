"""The consumer groups of a shard: the thin loop around `state`. It shares the journal, the clock and the
group ids with the classic groups (group_table); an id belongs to one kind at a time, and may go from one to the other.

`answer` is called exactly once, at once or later, with a body in kio's field names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.coordinator.classic.downgrade import classic_metadata, make_classic, seed_of
from headrace.coordinator.classic.effects import join_refused, sync_refused
from headrace.coordinator.classic.group import ClassicGroup
from headrace.coordinator.classic.members import JoinRequest, SyncRequest
from headrace.coordinator.consumer import classic_members as classic_requests
from headrace.coordinator.consumer.changes import EpochChange
from headrace.coordinator.consumer.faults import check_commit, check_fetch
from headrace.coordinator.consumer.journal import change_of, encode_change
from headrace.coordinator.consumer.migration import check_upgrade, upgrade_changes
from headrace.coordinator.consumer.records import ConsumerGroupRecord
from headrace.coordinator.consumer.requests import (
    Decision,
    Heartbeat,
    check_heartbeat,
    refused_heartbeat,
)
from headrace.coordinator.consumer.state import ConsumerGroup
from headrace.coordinator.consumer.view import described, listed, undescribed
from headrace.coordinator.consumer.writing import DecisionQueue
from headrace.coordinator.deadlines import Alarm
from headrace.coordinator.group_records import encode_group_metadata
from headrace.coordinator.group_table import LOADING_WAIT_MS, GroupTable
from headrace.coordinator.journal import Pair
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
    NON_EMPTY_GROUP,
    NONE,
    REBALANCE_IN_PROGRESS,
)

Body = Mapping[str, object]
Answer = Callable[[Body], None]


class ConsumerGroups:
    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self.groups: dict[str, ConsumerGroup] = {}
        self._queues: dict[ConsumerGroup, DecisionQueue] = {}  # by the group itself: an id may be given again meanwhile
        self._alarms: dict[str, Alarm] = {}
        table.consumer_bytes = self._byte_count

    def _byte_count(self) -> int:
        return sum(group.table.byte_count for group in self.groups.values())

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self.groups.get(group_id)

    # ── start ────────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: ConsumerGroupRecord) -> None:
        change = change_of(record)
        if isinstance(change, EpochChange) and change.epoch is None:
            self.groups.pop(record.group_id, None)
            return
        group = self.groups.get(record.group_id)
        if group is None:
            if record.value is None:
                return  # the rest of a group that has been deleted
            group = self.groups[record.group_id] = self._new(record.group_id)
        group.table.apply(change, replaying=True)

    def loaded(self, group: ConsumerGroup) -> None:
        """One after the other, when all has been replayed."""
        group.loaded(self._table.now())
        self._watch(group)

    def abandon(self, group: ConsumerGroup) -> None:
        """The shard is given up, and the group with it. Who waits for a decision waits for the journal, which tells."""
        self._forget(group)

    # ── the consumer group protocol ──────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, beat: Heartbeat, answer: Answer) -> None:
        try:
            check_heartbeat(beat, self._table.settings.consumer_assignors)
            group = self.groups.get(beat.group_id)
            if group is not None:
                self._decided(group, group.heartbeat(beat, self._table.now()), answer, refused_heartbeat)
            elif not beat.is_joining:
                raise self._absence(beat.group_id, "Group" if beat.is_leaving else "Consumer group")
            else:
                self._heartbeat_to_new_group(beat, answer)
        except PeerError as error:
            answer(refused_heartbeat(error.code, error.message))

    def _heartbeat_to_new_group(self, beat: Heartbeat, answer: Answer) -> None:
        """The id is new, or belongs to a classic group: which gives way, with its members if it has any."""
        table, group_id = self._table, beat.group_id
        group, classic = self._new(group_id), table.classic.get(group_id)
        if classic is not None and classic.is_busy:
            raise PeerError(COORDINATOR_LOAD_IN_PROGRESS, f"Group {group_id} is in the middle of a rebalance.")
        if classic is not None and not classic.facts.is_empty:
            check_upgrade(group_id, classic.facts.protocol_type, len(classic.facts.roster), table.settings)
            members = [seed_of(member) for member in classic.facts.roster]
            generation, name = classic.facts.generation, classic.facts.protocol_name
            for change in upgrade_changes(group_id, generation, name, members, table.topics):
                group.change(change)
        decision = group.heartbeat(beat, table.now())
        for member in group.table.members.values():
            if member.is_classic:
                group.expect_session(member, table.now())
        self.groups[group_id] = group
        if classic is not None:
            table.forget_classic(classic)

        def told(code: int) -> None:
            if code != NONE:
                self._forget(group)
                if classic is not None:
                    table.put_back(classic)
            elif classic is not None:
                table.perform(classic, classic.die(REBALANCE_IN_PROGRESS, table.now()))
            answer(decision.answer if code == NONE else refused_heartbeat(code))

        before = [] if classic is None else [encode_group_metadata(group_id, None)]
        self._write(group, decision, told, before)

    def describe(self, group_id: str) -> Body:
        group = self.groups.get(group_id)
        if group is not None:
            return described(group)
        return undescribed(group_id, self._absence(group_id) if group_id else PeerError(INVALID_GROUP_ID, ""))

    def _absence(self, group_id: str, what: str = "Group") -> PeerError:
        if group_id in self._table.classic:
            return PeerError(GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return PeerError(GROUP_ID_NOT_FOUND, f"{what} {group_id} not found.")

    def listed(self) -> Iterable[Body]:
        return (listed(group) for group in list(self.groups.values()))

    # ── the classic protocol, to members of consumer groups ──────────────────────────────────────────────────────

    def join(self, group: ConsumerGroup, request: JoinRequest, answer: Answer) -> None:
        try:
            decision = classic_requests.join(group, request, self._table.now())
        except PeerError as error:
            answer(join_refused(error.code, request.member_id))
            return
        self._decided(group, decision, answer, lambda code: join_refused(code, request.member_id))

    def sync(self, group: ConsumerGroup, request: SyncRequest, answer: Answer) -> None:
        try:
            self._decided(group, classic_requests.sync(group, request, self._table.now()), answer, sync_refused)
        except PeerError as error:
            self._watch(group)
            answer(sync_refused(error.code))

    def classic_heartbeat(self, group: ConsumerGroup, member_id: str, generation: int, instance_id: str | None) -> int:
        try:
            code = classic_requests.heartbeat(group, member_id, generation, instance_id, self._table.now())
        except PeerError as error:
            return error.code
        self._watch(group)
        return code

    def leave(self, group: ConsumerGroup, leaving: Sequence[tuple[str, str | None]], answer: Answer) -> None:
        decision = classic_requests.leave(group, leaving)
        self._decided(group, decision, answer, lambda code: {"error_code": code, "members": []})

    # ── offsets, and the end of a group ──────────────────────────────────────────────────────────────────────────

    def commit_codes(
        self,
        group: ConsumerGroup,
        member_id: str,
        epoch: int,
        instance_id: str | None,
        partitions: Iterable[tuple[str, int]],
        *,
        in_transaction: bool,
        version: int,
    ) -> list[int]:
        """Of each partition, why it may not be committed, or 0."""
        try:
            check = check_commit(
                group.table, member_id, instance_id, epoch, in_transaction=in_transaction, version=version
            )
        except PeerError as error:
            return [error.code for _ in partitions]
        return [check(self._table.topics.topic_id(topic), partition) for topic, partition in partitions]

    def fetch_fault(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> int:
        try:
            check_fetch(group.table, member_id, epoch)
        except PeerError as error:
            return error.code
        return NONE

    def delete(self, group: ConsumerGroup, records: Sequence[Pair], done: Callable[[int], None]) -> None:
        """An empty group, and with it what `records` say. The id is free at once; not if it cannot be written."""
        if group.table.members:
            done(NON_EMPTY_GROUP)
            return
        for change in group.table.tombstones():
            group.change(change)
        self.groups.pop(group.group_id, None)

        def told(code: int) -> None:
            if code == NONE:
                self._forget(group)
            else:
                self._put_back(group)
            done(code)

        self._write(group, group.decided({}), told, records)

    def give_way(self, group: ConsumerGroup) -> list[Pair]:
        """An empty group makes room for a classic one of the same id: what is to be written before that one."""
        self._forget(group)
        return [encode_change(group.group_id, change) for change in group.table.tombstones()]

    # ── doing what was decided ───────────────────────────────────────────────────────────────────────────────────

    def _decided(
        self, group: ConsumerGroup, decision: Decision, answer: Answer, refused: Callable[[int], Body]
    ) -> None:
        self._write(group, decision, lambda code: answer(decision.answer if code == NONE else refused(code)))

    def _write(
        self, group: ConsumerGroup, decision: Decision, told: Callable[[int], None], before: Sequence[Pair] = ()
    ) -> None:
        group_id = group.group_id
        records = [*before, *(encode_change(group_id, change) for change in decision.changes)]
        if decision.becomes is not None:
            told = self._become_classic(group, decision, records, told)
        queue = self._queues.get(group)
        if queue is None:
            queue = self._queues[group] = DecisionQueue(group)
        queue.add(decision, records, told, self._table.append)
        self._watch(group)

    def _become_classic(
        self, group: ConsumerGroup, decision: Decision, records: list[Pair], told: Callable[[int], None]
    ) -> Callable[[int], None]:
        """From now on requests go to the classic group; if that cannot be written, to the consumer group again."""
        table, group_id, seed = self._table, group.group_id, decision.becomes
        if seed is None:
            return told
        now = table.now()
        metadata = classic_metadata(seed, now.wall_ms)
        records.append(encode_group_metadata(group_id, metadata))
        self.groups.pop(group_id, None)
        classic: ClassicGroup = make_classic(table.new_classic(group_id), seed, metadata)
        table.perform(classic, classic.loaded(now))
        if seed.must_rebalance:
            table.perform(classic, classic.rebalance(now))

        def converted(code: int) -> None:
            if code == NONE:
                self._forget(group)
            else:
                table.forget_classic(classic)
                table.perform(classic, classic.die(code, table.now()))
                self._put_back(group)
                group.loaded(table.now())
                self._watch(group)
            told(code)

        return converted

    def _watch(self, group: ConsumerGroup) -> None:
        group_id = group.group_id
        if self.groups.get(group_id) is not group or self._table.is_closed:
            return
        alarm = self._alarms.get(group_id)
        if alarm is None:
            alarm = self._new_alarm(group_id)
        alarm.set(group.deadlines.wake_ms, self._table.now().ms)

    def _new_alarm(self, group_id: str) -> Alarm:
        alarm = self._alarms[group_id] = Alarm(self._table.call_later, lambda: self._wake(group_id), group_id)
        return alarm

    def _wake(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is None or self._table.is_closed:
            self._alarms.pop(group_id, None)
            return
        if not self._table.is_active:
            now_ms = self._table.now().ms
            self._alarms[group_id].set(now_ms + LOADING_WAIT_MS, now_ms)
            return
        decision = group.expire(self._table.now())
        if decision is not None:
            self._decided(group, decision, lambda _: None, lambda _: {})
        self._watch(group)

    def _put_back(self, group: ConsumerGroup) -> None:
        """What was to take its place could not be written. A shard that is given up has no place any more."""
        if not self._table.is_closed:
            self.groups.setdefault(group.group_id, group)

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._table.settings, self._table.topics, self._table.budget)

    def _forget(self, group: ConsumerGroup) -> None:
        """The id may belong to another one by now, which stays."""
        self._queues.pop(group, None)
        if self.groups.get(group.group_id, group) is group:
            self.groups.pop(group.group_id, None)
            alarm = self._alarms.pop(group.group_id, None)
            if alarm is not None:
                alarm.cancel()
