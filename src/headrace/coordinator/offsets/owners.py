"""The offsets of a shard and the groups that they belong to: who may commit them, look at them and delete them."""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from headrace.coordinator.classic.effects import Body
from headrace.coordinator.classic.members import Ticket
from headrace.coordinator.consumer.groups import ConsumerGroups
from headrace.coordinator.consumer.state import ConsumerGroup
from headrace.coordinator.group_table import GroupTable
from headrace.coordinator.offsets.requests import AnswerCodes, OffsetRequests, refused_delete, refused_fetch
from headrace.coordinator.offsets.store import Entry
from headrace.coordinator.topic_view import TopicPartition
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import GROUP_ID_NOT_FOUND, ILLEGAL_GENERATION, NONE
from headrace.protocol.record_bytes import check_strings

Who = tuple[str, int, str | None]  # the id of a member, its generation or epoch, its instance id

NOT_FOUND_SINCE: Final = 9  # of OffsetCommit: before, a group that is not there has an illegal generation


class GroupOffsets:
    def __init__(self, table: GroupTable, consumers: ConsumerGroups) -> None:
        self._table = table
        self._consumers = consumers
        self._requests = OffsetRequests(table.journal, table.offsets, table.settings.offset_metadata_max_bytes)

    def commit(
        self,
        group_id: str,
        who: Who,
        entries: Sequence[Entry],
        answer: AnswerCodes,
        *,
        version: int,
        producer: tuple[int, int] | None,
    ) -> None:
        """`producer` (id, epoch): as a part of its transaction."""
        consumer = self._consumers.get(group_id)
        if consumer is not None:
            self._commit_to_consumers(consumer, who, entries, answer, version, producer)
            return
        refusal = self._refusal(group_id, who, version, in_transaction=producer is not None)
        self._requests.commit(group_id, entries, answer, producer=producer, refusal=refusal)

    def _refusal(self, group_id: str, who: Who, version: int, *, in_transaction: bool) -> int:
        """Whoever claims no generation may commit to a group that is not there: with that it is."""
        member_id, generation, instance_id = who
        group = self._table.classic.get(group_id)
        if group is None:
            if generation >= 0:
                return GROUP_ID_NOT_FOUND if version >= NOT_FOUND_SINCE and not in_transaction else ILLEGAL_GENERATION
            try:
                check_strings((group_id,))
            except PeerError as error:
                return error.code
            self._table.new_classic(group_id)
            return NONE
        code = group.facts.commit_fault(member_id, generation, instance_id, in_transaction=in_transaction)
        if code == NONE and generation >= 0 and not in_transaction:
            now = self._table.now()
            group.touch(member_id, now)
            self._table.watch(group, now)
        return code

    def _commit_to_consumers(
        self,
        group: ConsumerGroup,
        who: Who,
        entries: Sequence[Entry],
        answer: AnswerCodes,
        version: int,
        producer: tuple[int, int] | None,
    ) -> None:
        """A member that is an epoch behind may commit some partitions, and not others."""
        codes = self._consumers.commit_codes(
            group,
            *who,
            [(topic, partition) for topic, partition, _ in entries],
            in_transaction=producer is not None,
            version=version,
        )
        wanted = [entry for entry, code in zip(entries, codes, strict=True) if code == NONE]
        if len(wanted) == len(entries) or not wanted:
            refusal = codes[0] if entries and not wanted else NONE
            self._requests.commit(group.group_id, entries, answer, producer=producer, refusal=refusal)
            return
        self._requests.commit(group.group_id, wanted, _completed(codes, answer), producer=producer)

    def fetch(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        wanted: Iterable[tuple[str, Sequence[int]]] | None,
        require_stable: bool,
    ) -> Generator[None, None, Body]:
        consumer = self._consumers.get(group_id)
        code = NONE if consumer is None else self._consumers.fetch_fault(consumer, member_id, member_epoch)
        if code != NONE:
            return refused_fetch(group_id, code)
        return (yield from self._requests.fetch(group_id, wanted, require_stable=require_stable))

    def delete(self, group_id: str, partitions: Sequence[TopicPartition], answer: Ticket) -> None:
        classic, consumer = self._table.classic.get(group_id), self._consumers.get(group_id)
        if consumer is not None:
            self._requests.delete(group_id, partitions, consumer.table.topics().__contains__, answer)
        elif classic is None:
            answer(refused_delete(GROUP_ID_NOT_FOUND))
        elif (code := classic.delete_offsets_fault()) != NONE:
            answer(refused_delete(code))
        else:
            self._requests.delete(group_id, partitions, classic.facts.subscribes_to, answer)


def _completed(codes: Sequence[int], answer: AnswerCodes) -> AnswerCodes:
    """Takes the codes of what was committed; what was not committed has its own already."""

    def complete(committed: list[int]) -> None:
        rest = iter(committed)
        answer([code if code != NONE else next(rest) for code in codes])

    return complete
