"""All groups of a broker: which shard a request is for, and what is answered when there is none.

A group is in the shard of its partition of `__consumer_offsets`, and has a coordinator here as long as this broker
leads that partition (`shard_states`). This is the way in for handlers; what is done with a request is the shard's.

Requests that may have to wait take an `answer`, which is called exactly once, at once or later, with a body in kio's
field names. Requests that never wait (heartbeat, describe, list) return what they have to say.
"""

from collections.abc import Generator, Iterable, Sequence

from headrace.coordinator.classic.effects import Body, join_refused, sync_refused
from headrace.coordinator.classic.members import JoinRequest, SyncRequest, Ticket
from headrace.coordinator.consumer.requests import Heartbeat, refused_heartbeat
from headrace.coordinator.consumer.view import undescribed as consumer_undescribed
from headrace.coordinator.deadlines import CallLater
from headrace.coordinator.group_admin import GroupAdmin, deleted, listed, undescribed
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.group_shard import GroupShard
from headrace.coordinator.group_table import GroupTable
from headrace.coordinator.journal import Journal
from headrace.coordinator.journal_loading import Steps
from headrace.coordinator.member_budget import MemberBudget, MemberUsage
from headrace.coordinator.offsets.expiry import OffsetExpiry, Sweeps
from headrace.coordinator.offsets.requests import AnswerCodes, refused_delete, refused_fetch
from headrace.coordinator.offsets.store import Entry
from headrace.coordinator.shard_journal import ShardJournal
from headrace.coordinator.shards import Shards
from headrace.coordinator.topic_view import TopicPartition, TopicView
from headrace.core.clock import Clock
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    NONE,
    NOT_COORDINATOR,
)
from headrace.protocol.record_bytes import check_strings


class Groups:
    def __init__(
        self, journal: Journal, clock: Clock, call_later: CallLater, settings: GroupSettings, topics: TopicView
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._call_later = call_later
        self._settings = settings
        self._topics = topics
        self._budget = MemberBudget(settings, self._usage)
        self.shards = Shards(journal, self._new_shard)
        self.shards.on_change = self._budget.count_soon
        self._sweeps = Sweeps(call_later, settings.offsets_retention_check_interval_ms, self._all_groups)

    def _new_shard(self, journal: ShardJournal, epoch: int) -> GroupShard:
        table = GroupTable(journal, self._clock, self._call_later, self._settings, self._topics, self._budget)
        return GroupShard(table, epoch)

    def start(self) -> None:
        """From now on what is too old is looked for. Once."""
        self._sweeps.begin()

    def load(self, partition: int, epoch: int) -> Steps | None:
        """This broker leads the partition from now on: to be done in steps. None if there is nothing to do."""
        return self.shards.load(partition, epoch)

    def unload(self, partition: int, epoch: int | None) -> Steps | None:
        """Another broker leads it; None: the topic is deleted."""
        return self.shards.unload(partition, epoch)

    @property
    def is_loaded(self) -> bool:
        return self.shards.is_loaded

    def metadata_bytes(self) -> int:
        """The memory that members of groups take, by what they said of themselves."""
        return self._budget.byte_count(int(self._clock.monotonic() * 1000))

    def _usage(self) -> MemberUsage:
        usages = [shard.table.usage() for shard in self.shards.active.values()]
        return MemberUsage(sum(each.byte_count for each in usages), sum(each.pending for each in usages))

    def _all_groups(self) -> Iterable[tuple[OffsetExpiry, str]]:
        return ((shard.expiry, group_id) for shard in self.shards.all() for group_id in shard.group_ids())

    # ── whose a group is ─────────────────────────────────────────────────────────────────────────────────────────

    def shard(self, group_id: str) -> GroupShard | int:
        """The one that the group is in, or the error code of why it has no coordinator now."""
        shard = self.shards.get(group_id)
        if not isinstance(shard, int) and shard.table.deleting and group_id in shard.table.deleting:
            return COORDINATOR_LOAD_IN_PROGRESS  # in a moment it is gone, and then it may be made again
        return shard

    def _members_shard(self, group_id: str) -> GroupShard | int:
        return self.shard(group_id) if group_id else INVALID_GROUP_ID

    # ── the classic protocol ─────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: JoinRequest, answer: Ticket) -> None:
        shard, limits = self._members_shard(request.group_id), self._settings
        code = NONE
        if isinstance(shard, int):
            code = shard
        elif not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            code = INVALID_SESSION_TIMEOUT
        else:
            try:
                self._budget.check_member(request.group_id, request.byte_count)
                check_strings(request.names)
                shard.join(request, answer)
                return
            except PeerError as error:
                code = error.code
        answer(join_refused(code, request.member_id))

    def sync(self, request: SyncRequest, answer: Ticket) -> None:
        shard = self._members_shard(request.group_id)
        if isinstance(shard, int):
            answer(sync_refused(shard))
        else:
            shard.sync(request, answer)

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> int:
        shard = self._members_shard(group_id)
        if isinstance(shard, int):
            # While it is loaded the member cannot know, and will ask again.
            return NONE if shard == COORDINATOR_LOAD_IN_PROGRESS else shard
        return shard.heartbeat(group_id, member_id, generation, instance_id)

    def leave(self, group_id: str, leaving: Sequence[tuple[str, str | None]], answer: Ticket) -> None:
        shard = self._members_shard(group_id)
        if isinstance(shard, int):
            answer({"error_code": shard, "members": []})
        else:
            shard.leave(group_id, leaving, answer)

    # ── the consumer group protocol ──────────────────────────────────────────────────────────────────────────────

    def consumer_heartbeat(self, beat: Heartbeat, answer: Ticket) -> None:
        shard = self.shard(beat.group_id)
        if isinstance(shard, int):
            answer(refused_heartbeat(shard))
        else:
            shard.consumers.heartbeat(beat, answer)

    def consumer_describe(self, group_ids: Iterable[str]) -> Sequence[Body]:
        return [self._consumer_described(group_id) for group_id in group_ids]

    def _consumer_described(self, group_id: str) -> Body:
        shard = self.shard(group_id)
        if isinstance(shard, int):
            return consumer_undescribed(group_id, PeerError(shard, ""))
        return shard.consumers.describe(group_id)

    # ── administration ───────────────────────────────────────────────────────────────────────────────────────────

    def describe(self, group_ids: Iterable[str]) -> Sequence[Body]:
        return [self._described(group_id) for group_id in group_ids]

    def _described(self, group_id: str) -> Body:
        shard = self.shard(group_id)
        return undescribed(group_id, shard, None, "") if isinstance(shard, int) else shard.admin.describe(group_id)

    def list(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> Generator[None, None, Sequence[Body]]:
        return (yield from listed([shard.admin for shard in self.shards.all()], states, types))

    def delete(self, group_ids: Iterable[str], answer: Ticket) -> Generator[None, None, None]:
        """In steps; the answer comes when the last group is done, which may be later."""
        yield from deleted(group_ids, self._admin_of, answer)

    def _admin_of(self, group_id: str) -> GroupAdmin | int:
        shard = self.shard(group_id)
        return shard if isinstance(shard, int) else shard.admin

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
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Answers with a code for each of the entries. `producer` (id, epoch): as a part of its transaction; whether
        that is open, and holds this partition, is for the caller to know."""
        shard = self.shard(group_id)
        if isinstance(shard, int):
            answer([shard] * len(entries))
            return
        who = (member_id, generation_or_epoch, instance_id)
        shard.offsets.commit(group_id, who, entries, answer, version=version, producer=producer)

    def transaction_ended(self, producer_id: int, partition: int, committed: bool) -> None:
        """A marker was written to this partition of `__consumer_offsets`. One that is being loaded will read it."""
        shard = self.shards.active.get(partition)
        if shard is not None:
            shard.table.offsets.end_transaction(producer_id, committed)

    def fetch_offsets(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        wanted: Iterable[tuple[str, Sequence[int]]] | None,
        require_stable: bool,
    ) -> Generator[None, None, Body]:
        """In steps: between them others are served, and may commit."""
        shard = self.shard(group_id)
        if isinstance(shard, int):
            return refused_fetch(group_id, shard)
        body = yield from shard.offsets.fetch(group_id, member_id, member_epoch, wanted, require_stable)
        # Given up meanwhile: some offsets were gone, and must not be told to be missing.
        return refused_fetch(group_id, NOT_COORDINATOR) if shard.table.is_closed else body

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition], answer: Ticket) -> None:
        shard = self.shard(group_id)
        if isinstance(shard, int):
            answer(refused_delete(shard))
        else:
            shard.offsets.delete(group_id, partitions, answer)
