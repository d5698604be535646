"""Which server is tried next, and when. No IO and no clock: the order is drawn once from a generator that is given.

All servers are tried one after the other at once; after a round in which none would have us comes a pause that doubles
with each such round, up to a second.
"""

from random import Random
from typing import Final

from headrace.client.zookeeper.connect_string import Address

PAUSE_MS_MIN: Final = 50
PAUSE_MS_MAX: Final = 1000


class Servers:
    def __init__(self, servers: tuple[Address, ...], choose: Random) -> None:
        self._servers = list(servers)
        self._choose = choose
        choose.shuffle(self._servers)
        self._at = 0
        self._failed = 0  # attempts since the last success

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def current(self) -> Address:
        return self._servers[self._at]

    def succeeded(self) -> None:
        self._failed = 0

    def failed(self) -> tuple[bool, int]:
        """Goes on to the next server: whether a round has ended with this, and how long to wait before the next."""
        self._failed += 1
        self._at = (self._at + 1) % len(self._servers)
        rounds, rest = divmod(self._failed, len(self._servers))
        if rest:
            return False, 0
        longest = min(PAUSE_MS_MIN << min(rounds, 10), PAUSE_MS_MAX)
        return True, self._choose.randint(longest // 2, longest)
