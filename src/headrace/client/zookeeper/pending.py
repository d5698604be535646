"""Requests without an answer: those that were sent, in the order of their answers, and those that wait to be sent.

Both together are bounded, in number and in bytes.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Final, NamedTuple

from headrace.client.zookeeper.errors import TooManyRequestsError
from headrace.protocol.zookeeper import requests
from headrace.protocol.zookeeper.jute import MalformedError

PENDING_MAX: Final = 1000
PENDING_BYTES_MAX: Final = 64 << 20  # of their frames


class Pending(NamedTuple):
    ticket: int
    xid: int
    request: requests.Request  # as the caller wrote it
    sent: requests.Request  # with the paths of the server
    watcher: Hashable
    frame: bytes


class PendingRequests:
    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._queued: deque[Pending] = deque()
        self._sent: deque[Pending] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._queued) + len(self._sent)

    def demand_room(self) -> None:
        if len(self) >= self._count_max or self._bytes > PENDING_BYTES_MAX:
            raise TooManyRequestsError(
                f"{len(self)} requests ({self._bytes} bytes) have no answer yet; the limits are {self._count_max} and"
                f" {PENDING_BYTES_MAX} bytes: wait for answers before asking more"
            )

    def add(self, pending: Pending, *, sent: bool) -> None:
        self._bytes += len(pending.frame)
        (self._sent if sent else self._queued).append(pending)

    def send_queued(self) -> Iterator[Pending]:
        """What waited, in its order; it counts as sent from now on."""
        while self._queued:
            pending = self._queued.popleft()
            self._sent.append(pending)
            yield pending

    def expected(self, xid: int) -> Pending:
        """The request that the next answer must be for."""
        if not self._sent or self._sent[0].xid != xid:
            next_xid = self._sent[0].xid if self._sent else "none"
            raise MalformedError(f"an answer to request {xid} came, and {next_xid} is next")
        return self._sent[0]

    def take_sent(self) -> Iterator[Pending]:
        return self._taken(self._sent)

    def take_queued(self) -> Iterator[Pending]:
        return self._taken(self._queued)

    def answered(self) -> None:
        self._bytes -= len(self._sent.popleft().frame)

    def _taken(self, waiting: deque[Pending]) -> Iterator[Pending]:
        while waiting:
            pending = waiting.popleft()
            self._bytes -= len(pending.frame)
            yield pending
