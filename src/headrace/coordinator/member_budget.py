"""How much clients may have a broker remember of group members: the bytes of what members say of themselves, and how
many may be pending, that is, have an id and not have joined with it.

Each group counts its own exactly. Over all groups, what is admitted is added up, and what has gone meanwhile is found
by counting again when the sum reaches its bound. So no way in which a group can end has to be remembered here.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace.coordinator.group_settings import GroupSettings
from headrace.core.errors import PeerError
from headrace.core.telemetry import event
from headrace.protocol.error_codes import GROUP_MAX_SIZE_REACHED, MESSAGE_TOO_LARGE

RECOUNT_MS: Final = 1_000  # a count over all groups is made at most this often
RECOUNT_ASKED_MS: Final = 10_000  # and this often if it is only asked for

MEMBER_BYTES_KEY: Final = "headrace.group.member.metadata.bytes.max"
GROUP_BYTES_KEY: Final = "headrace.group.metadata.bytes.max"
TOTAL_BYTES_KEY: Final = "headrace.group.metadata.bytes.total.max"
PENDING_KEY: Final = "headrace.group.pending.members.max"
PENDING_TOTAL_KEY: Final = "headrace.group.pending.members.total.max"

logger = logging.getLogger(__name__)


class MemberUsage(NamedTuple):
    byte_count: int = 0
    pending: int = 0


class MemberBudget:
    def __init__(self, settings: GroupSettings, recount: Callable[[], MemberUsage] | None = None) -> None:
        self._settings = settings
        self._recount = recount
        self._byte_count = 0  # admitted since the last count, and what that had found
        self._pending = 0
        self._counted_ms = -RECOUNT_MS

    def check_member(self, group_id: str, member_bytes: int) -> None:
        """PeerError if one member says too much, whatever group it is for."""
        limit = self._settings.member_metadata_bytes_max
        if member_bytes > limit:
            raise _refused(MESSAGE_TOO_LARGE, group_id, "A member's metadata", member_bytes, limit, MEMBER_BYTES_KEY)

    def admit(self, group_id: str, group_bytes: int, added_bytes: int, now_ms: int) -> None:
        """PeerError if a group that has so many bytes may not have so many more."""
        if added_bytes <= 0:
            return
        wanted, limit = group_bytes + added_bytes, self._settings.group_metadata_bytes_max
        if wanted > limit:
            raise _refused(GROUP_MAX_SIZE_REACHED, group_id, "The group's metadata", wanted, limit, GROUP_BYTES_KEY)
        limit = self._settings.total_metadata_bytes_max
        if self._byte_count + added_bytes > limit:
            self._count_again(now_ms)
        wanted = self._byte_count + added_bytes
        if wanted > limit:
            raise _refused(
                GROUP_MAX_SIZE_REACHED, group_id, "The metadata of all groups", wanted, limit, TOTAL_BYTES_KEY
            )
        self._byte_count = wanted

    def admit_pending(self, group_id: str, pending: int, now_ms: int) -> None:
        """PeerError if a group that has so many pending members may not have one more."""
        wanted, limit = pending + 1, self._settings.pending_members_max
        if wanted > limit:
            raise _refused(GROUP_MAX_SIZE_REACHED, group_id, "Pending members of the group", wanted, limit, PENDING_KEY)
        limit = self._settings.pending_members_total_max
        if self._pending + 1 > limit:
            self._count_again(now_ms)
        wanted = self._pending + 1
        if wanted > limit:
            raise _refused(
                GROUP_MAX_SIZE_REACHED, group_id, "Pending members of all groups", wanted, limit, PENDING_TOTAL_KEY
            )
        self._pending = wanted

    def byte_count(self, now_ms: int) -> int:
        """What members are remembered by; more than that by what has gone since the last count."""
        if now_ms - self._counted_ms >= RECOUNT_ASKED_MS:
            self._count_again(now_ms)
        return self._byte_count

    def count_soon(self) -> None:
        """Many groups have come or gone at once: the next one who asks is told of it."""
        self._counted_ms = -RECOUNT_ASKED_MS

    def _count_again(self, now_ms: int) -> None:
        if self._recount is not None and now_ms - self._counted_ms >= RECOUNT_MS:
            self._counted_ms = now_ms
            self._byte_count, self._pending = self._recount()


def _refused(code: int, group_id: str, what: str, value: int, limit: int, key: str) -> PeerError:
    event(logger, logging.WARNING, "member refused", group=group_id, what=what, value=value, limit=limit, setting=key)
    return PeerError(code, f"{what} would be {value}, above {key}={limit}; send less, or raise the setting.")
