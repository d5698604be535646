"""What administrators ask of groups of either kind: which there are, how they are, and that they go."""

from collections.abc import Callable, Iterable

from headrace.coordinator import group_records
from headrace.coordinator.classic_group import ClassicGroup
from headrace.coordinator.consumer_groups import ConsumerGroups
from headrace.coordinator.group_effects import Body
from headrace.coordinator.group_facts import State
from headrace.coordinator.group_members import Ticket
from headrace.coordinator.group_table import GroupTable
from headrace.coordinator.journal import Pair
from headrace.protocol.error_codes import GROUP_ID_NOT_FOUND, NONE

CLASSIC = "classic"


class GroupAdmin:
    def __init__(self, table: GroupTable, consumers: ConsumerGroups) -> None:
        self._table = table
        self._consumers = consumers

    def describe(self, group_id: str) -> Body:
        """As DescribeGroups has it: classic groups only."""
        group = self._table.classic.get(group_id)
        if group is not None:
            return group.described()
        why = "not found" if self._consumers.get(group_id) is None else "is not a classic group"
        return undescribed(group_id, GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.", str(State.DEAD))

    def listed(self, states: Iterable[str], types: Iterable[str]) -> list[Body]:
        """Filters are taken in any case; an empty one lets all through, and an unknown name none."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        return [
            each
            for each in self._all()
            if (not wanted_states or str(each["group_state"]).lower() in wanted_states)
            and (not wanted_types or each["group_type"] in wanted_types)
        ]

    def _all(self) -> Iterable[Body]:
        for group in self._table.classic.values():
            yield {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": str(group.state),
                "group_type": CLASSIC,
            }
        yield from self._consumers.listed()

    # ── deleting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def delete(self, group_ids: Iterable[str], fault: Callable[[str], int], answer: Ticket) -> None:
        """Each group with its offsets, or not at all, or not if it has a `fault`. Answers when the last is done."""
        results: dict[str, int | None] = dict.fromkeys(group_ids)
        if not results:
            answer({"results": []})

        def told(group_id: str) -> Callable[[int], None]:
            def done(code: int) -> None:
                results[group_id] = code
                if None not in results.values():
                    answer({"results": [{"group_id": each, "error_code": code} for each, code in results.items()]})

            return done

        for group_id in list(results):
            code = fault(group_id)
            if code == NONE:
                self.delete_one(group_id, told(group_id))
            else:
                told(group_id)(code)

    def delete_one(self, group_id: str, done: Callable[[int], None]) -> None:
        offsets = self._table.offsets
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
                table.classic.setdefault(group.group_id, group)
            done(code)

        table.append(group.group_id, records, written)


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
