"""The groups whose records are in one partition of `__consumer_offsets`, with their offsets, whichever protocol their
members speak. It finds the group that a request is for and hands the request over to the machine that decides.

A shard is made for each time in which this broker leads the partition (see `shard_states`), and never used again
afterwards. What it may answer while it is not in charge is for `Groups` to know, which asks it only while it is.
"""

from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from headrace.coordinator import group_records
from headrace.coordinator.classic.effects import Body, CreationStored, Store, join_refused, sync_refused
from headrace.coordinator.classic.members import JoinRequest, SyncRequest, Ticket
from headrace.coordinator.consumer.groups import ConsumerGroups
from headrace.coordinator.group_admin import GroupAdmin
from headrace.coordinator.group_records import GroupMetadata, GroupMetadataRecord, OffsetCommitRecord, UnknownRecord
from headrace.coordinator.group_table import GroupTable
from headrace.coordinator.journal import AllOf, JournalRecord, Pair
from headrace.coordinator.journal_loading import Steps
from headrace.coordinator.offsets.expiry import OffsetExpiry
from headrace.coordinator.offsets.owners import GroupOffsets
from headrace.coordinator.shard_journal import ShardJournal
from headrace.coordinator.topic_view import TopicPartition
from headrace.protocol.error_codes import NONE, UNKNOWN_MEMBER_ID
from headrace.protocol.record_bytes import RecordError

GROUPS_PER_STEP: Final = 64
OFFSETS_PER_STEP: Final = 1_000  # that go out of memory at once
FORGOTTEN_PER_STEP: Final = 32  # offsets of a deleted topic, that are written down as such at once

G = TypeVar("G")


class GroupShard:
    def __init__(self, table: GroupTable, epoch: int) -> None:
        self.epoch = epoch
        self.table = table
        self.consumers = ConsumerGroups(table)
        self.offsets = GroupOffsets(table, self.consumers)
        self.admin = GroupAdmin(table, self.consumers)
        self.expiry = OffsetExpiry(table, self.consumers, self.admin)

    @property
    def journal(self) -> ShardJournal:
        return self.table.journal

    def group_ids(self) -> list[str]:
        return [*self.table.classic, *self.consumers.groups]

    # ── coming and going ─────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, entry: JournalRecord) -> None:
        offsets = self.table.offsets
        if entry.is_control:
            offsets.replay_marker(entry)
            return
        record = group_records.decode(entry.key, entry.value)
        if isinstance(record, OffsetCommitRecord):
            offsets.replay(record, entry)
        elif isinstance(record, GroupMetadataRecord):
            self._replay_classic(record)
        elif not isinstance(record, UnknownRecord):
            self.consumers.replay(record)

    def _replay_classic(self, record: GroupMetadataRecord) -> None:
        if record.value is None:
            self.table.classic.pop(record.group_id, None)
        else:
            _check_members(record.value)
            self.table.new_classic(record.group_id).facts.restore(record.value)

    def prepared(self) -> Steps:
        table, consumers = self.table, self.consumers
        unnamed = table.offsets.group_ids() - table.classic.keys() - consumers.groups.keys()
        for at, group_id in enumerate(unnamed, 1):
            table.new_classic(group_id)  # a name for offsets, until somebody joins it
            if at % GROUPS_PER_STEP == 0:
                yield GROUPS_PER_STEP
        yield from _for_each(table.classic, lambda classic: table.perform(classic, classic.loaded(table.now())))
        yield from _for_each(consumers.groups, consumers.loaded)

    def begun(self) -> Steps:
        self.table.is_active = True
        yield from ()

    def emptied(self) -> Steps:
        table, consumers = self.table, self.consumers
        while count := table.journal.tell_some():
            yield count
        yield from _for_each(table.classic, table.abandon)
        yield from _for_each(consumers.groups, consumers.abandon)
        while count := table.offsets.drop_some(OFFSETS_PER_STEP):
            yield count

    # ── the classic protocol ─────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: JoinRequest, answer: Ticket) -> None:
        classic, consumer = self.table.classic.get(request.group_id), self.consumers.get(request.group_id)
        if classic is not None:
            self.table.perform(classic, classic.join(request, answer, self.table.now()))
        elif consumer is not None and consumer.table.members:
            self.consumers.join(consumer, request, answer)
        elif request.member_id:
            answer(join_refused(UNKNOWN_MEMBER_ID, request.member_id))
        else:
            self._join_new_group(request, answer, [] if consumer is None else self.consumers.give_way(consumer))

    def _join_new_group(self, request: JoinRequest, answer: Ticket, before: Iterable[Pair]) -> None:
        now = self.table.now()
        group = self.table.new_classic(request.group_id)
        created = Store(GroupMetadata("", 0, None, None, now.wall_ms, ()), CreationStored(), before=tuple(before))
        self.table.perform(group, [*group.join(request, answer, now), created])

    def sync(self, request: SyncRequest, answer: Ticket) -> None:
        classic, consumer = self.table.classic.get(request.group_id), self.consumers.get(request.group_id)
        if classic is not None:
            self.table.perform(classic, classic.sync(request, answer, self.table.now()))
        elif consumer is not None:
            self.consumers.sync(consumer, request, answer)
        else:
            answer(sync_refused(UNKNOWN_MEMBER_ID))

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> int:
        classic, consumer = self.table.classic.get(group_id), self.consumers.get(group_id)
        if classic is not None:
            now = self.table.now()
            code = classic.heartbeat(member_id, generation, instance_id, now)
            self.table.watch(classic, now)
            return code
        if consumer is not None:
            return self.consumers.classic_heartbeat(consumer, member_id, generation, instance_id)
        return UNKNOWN_MEMBER_ID

    def leave(self, group_id: str, leaving: Sequence[tuple[str, str | None]], answer: Ticket) -> None:
        classic, consumer = self.table.classic.get(group_id), self.consumers.get(group_id)
        if classic is not None:
            self.table.perform(classic, classic.leave(list(leaving), answer, self.table.now()))
        elif consumer is not None:
            self.consumers.leave(consumer, leaving, answer)
        else:
            answer({"error_code": NONE, "members": [_unknown(*each) for each in leaving]})

    # ── topics that are deleted ──────────────────────────────────────────────────────────────────────────────────

    def forget_topics(self, names: Container[str], waiting: AllOf) -> Generator[None, None, None]:
        """Offsets of a topic that is gone mean nothing. In steps; who waits is told when each of them is written."""
        found = yield from self.table.offsets.partitions_of_topics(names)
        for group_id, partitions in found.items():
            for first in range(0, len(partitions), FORGOTTEN_PER_STEP):
                self._forget_offsets(group_id, partitions[first : first + FORGOTTEN_PER_STEP], waiting)
                yield

    def _forget_offsets(self, group_id: str, partitions: list[TopicPartition], waiting: AllOf) -> None:
        store = self.table.offsets
        records = store.delete_records(group_id, partitions)
        if not records:
            return

        def written(error: Exception | None) -> None:
            if error is None:
                store.forget(group_id, partitions)
            waiting.told(error)

        waiting.expect()
        self.table.journal.append(records, written)


def _check_members(metadata: GroupMetadata) -> None:
    """RecordError where they cannot be members of one group: bytes from the disk are not trusted."""
    members = metadata.members
    instances = [each.group_instance_id for each in members if each.group_instance_id is not None]
    if len({each.member_id for each in members}) < len(members) or len(set(instances)) < len(instances):
        raise RecordError(f"{len(members)} members, of which some are the same")
    if members and metadata.protocol is None:
        raise RecordError(f"{len(members)} members, and no protocol that they have chosen")


def _unknown(member_id: str, instance_id: str | None) -> Body:
    return {"member_id": member_id, "group_instance_id": instance_id, "error_code": UNKNOWN_MEMBER_ID}


def _for_each(groups: Mapping[str, G], work: Callable[[G], object]) -> Steps:
    """In steps: groups that come meanwhile are not among them."""
    for at, group in enumerate(list(groups.values()), 1):
        work(group)
        if at % GROUPS_PER_STEP == 0:
            yield GROUPS_PER_STEP
