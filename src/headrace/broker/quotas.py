"""How long a client is told to wait before its next request. Every answer carries that time; a quota behind `Throttle`
gives it.

Without a quota it is 0, and nothing is asked: hot paths look at `is_open` and go on. A quota decides and counts; that
an unheeding client is not read from meanwhile is a connection's affair, not its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession

THROTTLE_MS_MAX: Final = (1 << 31) - 1  # that an answer has room for


class Quota(Protocol):
    """Asked on the event loop, once for each answer, so it answers from memory."""

    def throttle_ms(self, session: ClientSession, client_id: str | None, api_key: int, size_bytes: int) -> int:
        """`client_id` is that of the request; `size_bytes` is what it brought, or what a Fetch takes with it."""
        ...


class Throttle:
    __slots__ = ("_quota", "is_open")

    def __init__(self, quota: Quota | None = None) -> None:
        """None: nobody waits."""
        self._quota = quota
        self.is_open: bool = quota is None

    def ms(self, session: ClientSession, client_id: str | None, api_key: int, size_bytes: int) -> int:
        quota = self._quota
        if quota is None:
            return 0
        return max(0, min(quota.throttle_ms(session, client_id, api_key, size_bytes), THROTTLE_MS_MAX))
