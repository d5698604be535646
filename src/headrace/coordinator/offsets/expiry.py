"""What is too old to keep: offsets that nobody has used for `offsets.retention.minutes`, and empty groups without any.

A group that rebalances is left alone, and so is one with members of which it is not known what they read.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from headrace.coordinator.classic.facts import GroupState
from headrace.coordinator.classic.group import ClassicGroup
from headrace.coordinator.consumer.groups import ConsumerGroups
from headrace.coordinator.deadlines import CallLater
from headrace.coordinator.group_admin import GroupAdmin
from headrace.coordinator.group_table import GroupTable
from headrace.core.errors import InvariantError
from headrace.core.telemetry import failure
from headrace.protocol.error_codes import NONE

logger = logging.getLogger(__name__)

GROUPS_PER_TURN: Final = 64


class OffsetExpiry:
    """Of one shard."""

    def __init__(self, table: GroupTable, consumers: ConsumerGroups, admin: GroupAdmin) -> None:
        self._table = table
        self._consumers = consumers
        self._admin = admin

    def sweep(self, group_id: str) -> None:
        classic, consumer = self._table.classic.get(group_id), self._consumers.get(group_id)
        if self._table.is_closed:
            return
        if classic is not None:
            self._sweep_classic(classic)
        elif consumer is not None:
            self._sweep_group(group_id, None, consumer.table.topics().__contains__)

    def _sweep_classic(self, group: ClassicGroup) -> None:
        facts = group.facts
        if facts.state is GroupState.EMPTY or (
            facts.state is GroupState.STABLE and facts.subscribed_topics is not None
        ):
            since_ms = facts.state_since_ms if facts.is_empty and facts.protocol_type is not None else -1
            self._sweep_group(group.group_id, None if since_ms == -1 else since_ms, facts.subscribes_to)

    def _sweep_group(self, group_id: str, empty_since_ms: int | None, subscribed: Callable[[str], bool]) -> None:
        table = self._table
        if group_id in table.deleting:
            return
        expired = table.offsets.expired(
            group_id,
            now_ms=table.now().wall_ms,
            retention_ms=table.settings.offsets_retention_ms,
            empty_since_ms=empty_since_ms,
            subscribed=subscribed,
        )

        def written(code: int) -> None:
            if code == NONE:
                table.offsets.forget(group_id, expired)
                self._delete_if_unused(group_id)

        if expired:
            table.append(table.offsets.delete_records(group_id, expired), written)
        else:
            self._delete_if_unused(group_id)

    def _delete_if_unused(self, group_id: str) -> None:
        offsets, classic, consumer = (
            self._table.offsets,
            self._table.classic.get(group_id),
            self._consumers.get(group_id),
        )
        if offsets.partitions(group_id) or offsets.has_open_transaction(group_id):
            return
        if (classic is not None and classic.facts.is_empty and not classic.facts.roster.pending) or (
            consumer is not None and not consumer.table.members
        ):
            self._admin.delete_one(group_id, lambda _: None)


class Sweeps:
    """Over the groups of all shards, again and again; some in each turn, since there may be a great many."""

    def __init__(
        self,
        call_later: CallLater,
        interval_ms: int,
        due: Callable[[], Iterable[tuple[OffsetExpiry, str]]],
    ) -> None:
        """`due`: every group there is, with the one who knows when it expires."""
        self._call_later = call_later
        self._interval_ms = interval_ms
        self._due = due

    def begin(self) -> None:
        self._call_later(self._interval_ms / 1000, self._sweep)

    def _sweep(self) -> None:
        try:
            self._sweep_some(list(self._due()), 0)
        finally:
            self.begin()

    def _sweep_some(self, due: Sequence[tuple[OffsetExpiry, str]], first: int) -> None:
        for expiry, group_id in due[first : first + GROUPS_PER_TURN]:
            try:
                expiry.sweep(group_id)
            except InvariantError:
                raise
            except Exception as error:  # it would fail each time, and those behind it would never have their turn
                failure(logger, "group could not be looked at for what has expired", error, group=group_id)
        if first + GROUPS_PER_TURN < len(due):
            self._call_later(0, lambda: self._sweep_some(due, first + GROUPS_PER_TURN))
