"""Producer ids, each given out once in the life of the data, from blocks that the catalog remembers.

What is left of a block when the broker stops is lost, as in Kafka: an id must never be used twice.
"""

from collections.abc import Callable

BLOCK_SIZE = 1000


class ProducerIds:
    def __init__(self, take: Callable[[int], range]) -> None:
        """`take(count)` reserves that many ids, durably."""
        self._take = take
        self._block = iter(range(0))

    def next(self) -> int:
        """Raises StorageError where no further block could be written down."""
        for producer_id in self._block:
            return producer_id
        self._block = iter(self._take(BLOCK_SIZE))
        return next(self._block)
