"""What administrators ask of groups of either kind: which there are, how they are, and that they go.

`GroupAdmin` answers for one shard; `listed` and `deleted` go over groups of several.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Final

from headrace.coordinator import group_records
from headrace.coordinator.classic.effects import Body
from headrace.coordinator.classic.facts import GroupState
from headrace.coordinator.classic.group import ClassicGroup
from headrace.coordinator.classic.members import Ticket
from headrace.coordinator.consumer.groups import ConsumerGroups
from headrace.coordinator.group_table import GroupTable
from headrace.coordinator.journal import AllOf, Pair
from headrace.coordinator.topic_view import TopicPartition
from headrace.protocol.error_codes import GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NONE, NOT_COORDINATOR

CLASSIC = "classic"
OFFSETS_PER_STEP: Final = 200
GROUPS_PER_STEP: Final = 16


class GroupAdmin:
    def __init__(self, table: GroupTable, consumers: ConsumerGroups) -> None:
        self._table = table
        self._consumers = consumers

    def describe(self, group_id: str) -> Body:
        """As DescribeGroups has it: classic groups only."""
        group = self._table.classic.get(group_id)
        if group is not None:
            return group.facts.described()
        why = "not found" if self._consumers.get(group_id) is None else "is not a classic group"
        return undescribed(group_id, GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.", str(GroupState.DEAD))

    def all(self) -> Iterable[Body]:
        for group in list(self._table.classic.values()):
            yield {
                "group_id": group.group_id,
                "protocol_type": group.facts.protocol_type or "",
                "group_state": str(group.facts.state),
                "group_type": CLASSIC,
            }
        yield from self._consumers.listed()

    # ── deleting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def delete_slowly(self, group_id: str, done: Callable[[int], None]) -> Generator[None, None, None]:
        """The group with its offsets, or not at all. The offsets of one that has many go first, some in each step.
        Meanwhile it has no coordinator: nobody may join a group that has lost a part of its offsets."""
        table = self._table
        partitions = table.offsets.partitions(group_id)
        if len(partitions) <= OFFSETS_PER_STEP or self._delete_fault(group_id) != NONE:
            self.delete_one(group_id, done)
            return
        failed: list[int] = []
        table.deleting.add(group_id)
        try:
            for first in range(0, len(partitions), OFFSETS_PER_STEP):
                self._forget(group_id, partitions[first : first + OFFSETS_PER_STEP], failed)
                yield
        finally:
            table.deleting.discard(group_id)
        if failed:
            done(failed[0])
        else:
            self.delete_one(group_id, done)

    def _forget(self, group_id: str, partitions: list[TopicPartition], failed: list[int]) -> None:
        offsets = self._table.offsets

        def written(code: int) -> None:
            if code == NONE:
                offsets.forget(group_id, partitions)
            else:
                failed.append(code)

        self._table.append(offsets.delete_records(group_id, partitions), written)

    def _delete_fault(self, group_id: str) -> int:
        """Why the group cannot be deleted now."""
        classic, consumer = self._table.classic.get(group_id), self._consumers.get(group_id)
        if consumer is not None:
            return NON_EMPTY_GROUP if consumer.table.members else NONE
        return GROUP_ID_NOT_FOUND if classic is None else classic.delete_fault()

    def delete_one(self, group_id: str, done: Callable[[int], None]) -> None:
        offsets = self._table.offsets
        if self._table.is_closed:
            done(NOT_COORDINATOR)
            return
        partitions = offsets.partitions(group_id)
        tombstones = offsets.delete_records(group_id, partitions)

        def deleted(code: int) -> None:
            if code == NONE:
                offsets.forget(group_id, partitions)
            done(code)

        classic, consumer = self._table.classic.get(group_id), self._consumers.get(group_id)
        if consumer is not None:
            self._consumers.delete(consumer, tombstones, deleted)
        elif classic is None:
            done(GROUP_ID_NOT_FOUND)
        elif (code := classic.delete_fault()) != NONE:
            done(code)
        else:
            self._delete_classic(classic, [*tombstones, group_records.encode_group_metadata(group_id, None)], deleted)

    def _delete_classic(self, group: ClassicGroup, records: list[Pair], done: Callable[[int], None]) -> None:
        table = self._table
        table.forget_classic(group)  # whoever joins from now on joins a new group, whose records come after these

        def written(code: int) -> None:
            if code == NONE:
                table.perform(group, group.die(GROUP_ID_NOT_FOUND, table.now()))
            elif self._consumers.get(group.group_id) is None:
                table.put_back(group)
            done(code)

        table.append(records, written)


def listed(
    admins: Iterable[GroupAdmin], states: Iterable[str], types: Iterable[str]
) -> Generator[None, None, list[Body]]:
    """Filters are taken in any case; an empty one lets all through, and an unknown name none. In steps."""
    wanted_states = yield from _lowered(states)
    wanted_types = yield from _lowered(types)
    found: list[Body] = []
    for admin in admins:
        for at, each in enumerate(admin.all()):
            if (not wanted_states or str(each["group_state"]).lower() in wanted_states) and (
                not wanted_types or each["group_type"] in wanted_types
            ):
                found.append(each)
            if at % GROUPS_PER_STEP == 0:
                yield
    return found


def deleted(
    group_ids: Iterable[str], admin_of: Callable[[str], GroupAdmin | int], answer: Ticket
) -> Generator[None, None, None]:
    """Each of the groups that has someone to do it; the others have an error code instead. In steps; answers when the
    last is done."""
    results: list[dict[str, object]] = []
    seen: set[str] = set()
    waiting = AllOf(lambda _: answer({"results": results}))

    def told(result: dict[str, object], code: int) -> None:
        result["error_code"] = code
        waiting.told(None)

    for group_id in group_ids:
        yield
        if group_id in seen:
            continue
        seen.add(group_id)
        admin = admin_of(group_id)
        result: dict[str, object] = {"group_id": group_id, "error_code": admin if isinstance(admin, int) else NONE}
        results.append(result)
        if not isinstance(admin, int):
            waiting.expect()
            yield from admin.delete_slowly(group_id, partial(told, result))
    waiting.told(None)


def _lowered(names: Iterable[str]) -> Generator[None, None, set[str]]:
    found = set()
    for at, name in enumerate(names):
        found.add(name.strip().lower())
        if at % GROUPS_PER_STEP == 0:
            yield
    return found


def undescribed(group_id: str, code: int, message: str | None, state: str) -> Body:
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }
