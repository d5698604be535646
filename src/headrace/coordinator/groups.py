"""All groups of a broker, whichever protocol their members speak: the thin loop around the machines that decide.

It finds the group that a request is for and hands the request over: to `ClassicGroup` and `GroupTable`, which writes
to the journal before anyone is answered and wakes a group when a deadline has come; or to `ConsumerGroups`, which does
the same for groups of KIP-848. It decides nothing itself.

Requests that may have to wait take an `answer`, which is called exactly once, at once or later, with a body in kio's
field names. Requests that never wait (heartbeat, describe, list) return what they have to say.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence

from headrace.coordinator import group_records
from headrace.coordinator.classic.effects import Body, CreationStored, Store, join_refused, sync_refused
from headrace.coordinator.classic.members import JoinRequest, Ticket
from headrace.coordinator.consumer.groups import ConsumerGroups
from headrace.coordinator.consumer.requests import Heartbeat, refused_heartbeat
from headrace.coordinator.deadlines import CallLater
from headrace.coordinator.group_admin import GroupAdmin, undescribed
from headrace.coordinator.group_records import GroupMetadata, GroupMetadataRecord, OffsetCommitRecord, UnknownRecord
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.group_table import GroupTable
from headrace.coordinator.journal import Journal, JournalRecord, Pair
from headrace.coordinator.journal_loading import replay_all
from headrace.coordinator.offsets.expiry import OffsetExpiry
from headrace.coordinator.offsets.owners import GroupOffsets
from headrace.coordinator.offsets.requests import AnswerCodes, refused_delete, refused_fetch
from headrace.coordinator.offsets.store import Entry, OffsetStore, TopicPartition
from headrace.coordinator.topic_view import TopicView
from headrace.core.clock import Clock
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_MEMBER_ID,
)


class Groups:
    def __init__(
        self, journal: Journal, clock: Clock, call_later: CallLater, settings: GroupSettings, topics: TopicView
    ) -> None:
        self.is_loaded = False
        self._table = GroupTable(journal, clock, call_later, settings, topics)
        self._consumers = ConsumerGroups(self._table)
        self._offsets = GroupOffsets(self._table, self._consumers)
        self._admin = GroupAdmin(self._table, self._consumers)
        self._expiry = OffsetExpiry(self._table, self._consumers, self._admin)

    @property
    def offsets(self) -> OffsetStore:
        return self._table.offsets

    @property
    def consumers(self) -> ConsumerGroups:
        return self._consumers

    def metadata_bytes(self) -> int:
        """The memory that members of groups take, by what they said of themselves."""
        return self._table.budget.byte_count(self._table.now().ms)

    # ── start ────────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self) -> None:
        """Everything that was written down. Until it has ended, whoever asks is told to wait."""
        table = self._table
        table.lost = replay_all(table.journal, self._replay)
        self._drop_lost()
        for group_id in table.offsets.group_ids() - table.classic.keys() - self._consumers.groups.keys():
            table.new_classic(group_id)  # a name for offsets, until somebody joins it
        self.is_loaded = True
        now = table.now()
        for group in list(table.classic.values()):
            table.perform(group, group.loaded(now))
        self._consumers.loaded()
        self._expiry.sweep_again_and_again()

    def _replay(self, partition: int, entry: JournalRecord) -> None:
        offsets = self._table.offsets
        if entry.is_control:
            offsets.replay_marker(entry, partition)
            return
        record = group_records.decode(entry.key, entry.value)
        if isinstance(record, OffsetCommitRecord):
            offsets.replay(record, entry)
        elif isinstance(record, GroupMetadataRecord):
            self._replay_classic(record)
        elif not isinstance(record, UnknownRecord):
            self._consumers.replay(record)

    def _drop_lost(self) -> None:
        """A group of which a part is missing must not act: it would answer with offsets that are too old."""
        table, consumers = self._table, self._consumers
        if not table.lost:
            return
        known = table.offsets.group_ids() | table.classic.keys() | consumers.groups.keys()
        lost = [group_id for group_id in known if table.partition_of(group_id) in table.lost]
        table.offsets.drop(lost)
        for group_id in lost:
            table.classic.pop(group_id, None)
            consumers.groups.pop(group_id, None)

    def absence(self, group_id: str) -> int:
        """Why the group has no coordinator now, as Kafka answers it; NONE if it has one."""
        if not self.is_loaded:
            return COORDINATOR_LOAD_IN_PROGRESS
        table = self._table
        if table.deleting and group_id in table.deleting:
            return COORDINATOR_LOAD_IN_PROGRESS  # in a moment it is gone, and then it may be made again
        return NOT_COORDINATOR if table.lost and table.partition_of(group_id) in table.lost else NONE

    def _replay_classic(self, record: GroupMetadataRecord) -> None:
        if record.value is None:
            self._table.classic.pop(record.group_id, None)
        else:
            self._table.new_classic(record.group_id).restore(record.value)

    # ── the classic protocol ─────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: JoinRequest, answer: Ticket) -> None:
        code, limits = self._fault(request.group_id), self._table.settings
        if code == NONE and not (
            limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms
        ):
            code = INVALID_SESSION_TIMEOUT
        if code == NONE:
            try:
                self._table.budget.check_member(request.group_id, request.byte_count)
            except PeerError as error:
                code = error.code
        if code != NONE:
            answer(join_refused(code, request.member_id))
            return
        classic, consumer = self._table.classic.get(request.group_id), self._consumers.get(request.group_id)
        if classic is not None:
            self._table.perform(classic, classic.join(request, answer, self._table.now()))
        elif consumer is not None and consumer.table.members:
            self._consumers.join(consumer, request, answer)
        elif request.member_id:
            answer(join_refused(UNKNOWN_MEMBER_ID, request.member_id))
        else:
            self._join_new_group(request, answer, [] if consumer is None else self._consumers.give_way(consumer))

    def _join_new_group(self, request: JoinRequest, answer: Ticket, before: Iterable[Pair]) -> None:
        now = self._table.now()
        group = self._table.new_classic(request.group_id)
        created = Store(GroupMetadata("", 0, None, None, now.wall_ms, ()), CreationStored(), before=tuple(before))
        self._table.perform(group, [*group.join(request, answer, now), created])

    def sync(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        protocol_type: str | None,
        protocol_name: str | None,
        assignment: Mapping[str, bytes],
        answer: Ticket,
    ) -> None:
        code = self._fault(group_id)
        classic, consumer = self._table.classic.get(group_id), self._consumers.get(group_id)
        asked = (member_id, generation, instance_id, protocol_type, protocol_name)
        if code != NONE:
            answer(sync_refused(code))
        elif classic is not None:
            self._table.perform(classic, classic.sync(*asked, assignment, answer, self._table.now()))
        elif consumer is not None:
            self._consumers.sync(consumer, *asked, answer)
        else:
            answer(sync_refused(UNKNOWN_MEMBER_ID))

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> int:
        code = self._fault(group_id)
        if code != NONE:
            return NONE if code == COORDINATOR_LOAD_IN_PROGRESS else code  # the member cannot know, and will ask again
        classic, consumer = self._table.classic.get(group_id), self._consumers.get(group_id)
        if classic is not None:
            now = self._table.now()
            code = classic.heartbeat(member_id, generation, instance_id, now)
            self._table.watch(classic, now)
            return code
        if consumer is not None:
            return self._consumers.classic_heartbeat(consumer, member_id, generation, instance_id)
        return UNKNOWN_MEMBER_ID

    def leave(self, group_id: str, leaving: Sequence[tuple[str, str | None]], answer: Ticket) -> None:
        code = self._fault(group_id)
        classic, consumer = self._table.classic.get(group_id), self._consumers.get(group_id)
        if code != NONE:
            answer({"error_code": code, "members": []})
        elif classic is not None:
            self._table.perform(classic, classic.leave(list(leaving), answer, self._table.now()))
        elif consumer is not None:
            self._consumers.leave(consumer, leaving, answer)
        else:
            answer({"error_code": NONE, "members": [_unknown(*each) for each in leaving]})

    def _fault(self, group_id: str) -> int:
        return self.absence(group_id) if group_id or not self.is_loaded else INVALID_GROUP_ID

    # ── the consumer group protocol ──────────────────────────────────────────────────────────────────────────────

    def consumer_heartbeat(self, beat: Heartbeat, answer: Ticket) -> None:
        code = self.absence(beat.group_id)
        if code == NONE:
            self._consumers.heartbeat(beat, answer)
        else:
            answer(refused_heartbeat(code))

    def consumer_describe(self, group_ids: Iterable[str]) -> Sequence[Body]:
        return [self._consumer_described(group_id) for group_id in group_ids]

    def _consumer_described(self, group_id: str) -> Body:
        found, code = self._consumers.describe(group_id), self.absence(group_id)
        return found if code == NONE else {**found, "error_code": code, "error_message": None}

    # ── administration ───────────────────────────────────────────────────────────────────────────────────────────

    def describe(self, group_ids: Iterable[str]) -> Sequence[Body]:
        return [self._described(group_id) for group_id in group_ids]

    def _described(self, group_id: str) -> Body:
        code = self.absence(group_id)
        return self._admin.describe(group_id) if code == NONE else undescribed(group_id, code, None, "")

    def list(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> Generator[None, None, Sequence[Body]]:
        return (yield from self._admin.listed(states, types))

    def delete(self, group_ids: Iterable[str], answer: Ticket) -> Generator[None, None, None]:
        """In steps; the answer comes when the last group is done, which may be later."""
        yield from self._admin.delete(group_ids, self.absence, answer)

    # ── offsets ──────────────────────────────────────────────────────────────────────────────────────────────────

    def commit_offsets(
        self,
        group_id: str,
        member_id: str,
        generation_or_epoch: int,
        instance_id: str | None,
        entries: Sequence[Entry],
        answer: AnswerCodes,
        *,
        version: int,
    ) -> None:
        """Answers with a code for each of the entries."""
        code = self.absence(group_id)
        if code != NONE:
            answer([code] * len(entries))
            return
        self._offsets.commit(group_id, member_id, generation_or_epoch, instance_id, entries, answer, version=version)

    def commit_offsets_in_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        member_id: str,
        generation_or_epoch: int,
        instance_id: str | None,
        entries: Sequence[Entry],
        answer: AnswerCodes,
        *,
        transactional_id: str,
        version: int,
    ) -> None:
        """Whether the producer's transaction is open, and holds this partition, is for the caller to know."""
        code = self.absence(group_id)
        if code != NONE:
            answer([code] * len(entries))
            return
        producer = (producer_id, producer_epoch)
        self._offsets.commit(
            group_id,
            member_id,
            generation_or_epoch,
            instance_id,
            entries,
            answer,
            version=version,
            producer=producer,
        )

    def transaction_ended(self, producer_id: int, partition: int, committed: bool) -> None:
        """A marker was written to this partition of `__consumer_offsets`."""
        self._table.offsets.end_transaction(producer_id, committed, partition)

    def fetch_offsets(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        wanted: Iterable[tuple[str, Sequence[int]]] | None,
        require_stable: bool,
    ) -> Generator[None, None, Body]:
        """In steps: between them others are served, and may commit."""
        code = self.absence(group_id)
        if code != NONE:
            return refused_fetch(group_id, code)
        return (yield from self._offsets.fetch(group_id, member_id, member_epoch, wanted, require_stable))

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition], answer: Ticket) -> None:
        code = self.absence(group_id)
        if code == NONE:
            self._offsets.delete(group_id, partitions, answer)
        else:
            answer(refused_delete(code))


def _unknown(member_id: str, instance_id: str | None) -> Body:
    return {"member_id": member_id, "group_instance_id": instance_id, "error_code": UNKNOWN_MEMBER_ID}
