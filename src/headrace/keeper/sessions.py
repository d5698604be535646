"""Sessions: who is connected, or may come back. A session outlives its connections and, with its password, a restart.

No IO and no clock: times come in. A session that is heard of lives on for its whole time-out; after a start, and
after a time in which the process stood still, every session gets that time again.
"""

import hashlib
import heapq
import hmac
from typing import Final

PASSWORD_BYTES: Final = 16
NO_PASSWORD: Final = bytes(PASSWORD_BYTES)


class Session:
    __slots__ = ("deadline_ms", "id", "timeout_ms")

    def __init__(self, id: int, timeout_ms: int, deadline_ms: int) -> None:
        self.id = id
        self.timeout_ms = timeout_ms
        self.deadline_ms = deadline_ms


class Sessions:
    def __init__(self, secret: bytes, *, timeout_ms_min: int, timeout_ms_max: int, server_id: int = 0) -> None:
        self._secret = secret
        self._timeout_ms_min = timeout_ms_min
        self._timeout_ms_max = timeout_ms_max
        self._server_id = server_id
        self._last_id = 0
        self._deadlines: list[tuple[int, int]] = []
        self.open: dict[int, Session] = {}

    def new_id(self, now_ms: int) -> int:
        """Never one that was given before: the time is in it, and it only grows."""
        first = (now_ms << 24 & (1 << 64) - 1) >> 8 | self._server_id << 56
        self._last_id = max(self._last_id + 1, first)
        return self._last_id

    def negotiated_ms(self, wanted_ms: int) -> int:
        return min(max(wanted_ms, self._timeout_ms_min), self._timeout_ms_max)

    def password(self, id: int) -> bytes:
        return hmac.digest(self._secret, id.to_bytes(8, "big", signed=True), hashlib.sha256)[:PASSWORD_BYTES]

    def knows(self, id: int, password: bytes) -> bool:
        return id in self.open and hmac.compare_digest(password, self.password(id))

    def add(self, id: int, timeout_ms: int, now_ms: int) -> Session:
        session = Session(id, timeout_ms, now_ms + timeout_ms)
        self.open[id] = session
        self._last_id = max(self._last_id, id)
        heapq.heappush(self._deadlines, (session.deadline_ms, id))
        return session

    def remove(self, id: int) -> None:
        self.open.pop(id, None)

    def touch(self, session: Session, now_ms: int) -> None:
        session.deadline_ms = now_ms + session.timeout_ms

    def extend_all(self, now_ms: int) -> None:
        for session in self.open.values():
            self.touch(session, now_ms)

    def expired(self, now_ms: int, count_max: int) -> list[int]:
        """Some of those whose time is over, the longest first; whoever gets them closes them."""
        found: list[int] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms and len(found) < count_max:
            _, id = heapq.heappop(deadlines)
            session = self.open.get(id)
            if session is None:
                continue
            if session.deadline_ms > now_ms:
                heapq.heappush(deadlines, (session.deadline_ms, id))
            else:
                found.append(id)
                heapq.heappush(deadlines, (now_ms + session.timeout_ms, id))  # if it cannot be closed now
        return found
