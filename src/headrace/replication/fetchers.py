"""From whom each partition is fetched: one `LeaderFetcher` per broker that leads what this one follows."""

from collections.abc import Callable

from headrace.log.partition_log import PartitionLog
from headrace.replication.fetcher import Key, LeaderFetcher
from headrace.replication.image import Endpoint


class Fetchers:
    """All leaders that this broker follows."""

    def __init__(self, make: Callable[[int, Endpoint], LeaderFetcher]) -> None:
        self._make = make
        self._by_leader: dict[int, LeaderFetcher] = {}
        self._leaders: dict[Key, int] = {}

    def follow(self, key: Key, log: PartitionLog, *, leader: int, endpoint: Endpoint, epoch: int) -> None:
        before = self._leaders.get(key)
        if before is not None and before != leader:
            self.leave(key)
        fetcher = self._by_leader.get(leader)
        if fetcher is not None and fetcher.endpoint != endpoint:
            self.moved(leader)
            fetcher = None
        if fetcher is None:
            fetcher = self._by_leader[leader] = self._make(leader, endpoint)
        self._leaders[key] = leader
        fetcher.follow(key, log, epoch)

    def leave(self, key: Key) -> None:
        leader = self._leaders.pop(key, None)
        if leader is not None and leader in self._by_leader:
            self._by_leader[leader].leave(key)

    def moved(self, leader: int) -> None:
        """It is reached elsewhere, or not any more."""
        fetcher = self._by_leader.pop(leader, None)
        if fetcher is not None:
            fetcher.close()
            self._leaders = {key: each for key, each in self._leaders.items() if each != leader}

    def close(self) -> None:
        for fetcher in self._by_leader.values():
            fetcher.close()
        self._by_leader.clear()
        self._leaders.clear()
