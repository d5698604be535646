"""Transactions as compaction meets them, going through a log from its start: which batches were aborted, and which
markers nobody needs any more.

A batch of an aborted transaction can go at once. A marker stays as long as a batch of its transaction does; then it
can go too, though only after `delete.retention.ms`, since a reader may have begun before. An entry of the
`.txnindex` goes with the last batch of its transaction.
"""

from collections.abc import Iterable
from heapq import heapify, heappop

from headrace.log.transactions import Aborted, Marker


class CleanedTransactions:
    __slots__ = ("_aborted", "_committed", "_pending")

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._pending = [(entry.first_offset, entry) for entry in aborted]  # not met yet
        heapify(self._pending)
        self._aborted: dict[int, tuple[Aborted, bool]] = {}  # by producer, and whether a batch of it was met
        self._committed: set[int] = set()  # producers of whom a batch was met in a transaction that was not aborted

    def batch(self, producer_id: int, last_offset: int, *, transactional: bool) -> bool:
        """A batch of records. True if its transaction was aborted."""
        self._meet(last_offset)
        if not transactional:
            return False
        found = self._aborted.get(producer_id)
        if found is None:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = found[0], True
        return True

    def marker(self, producer_id: int, last_offset: int, marker: Marker | None) -> tuple[bool, Aborted | None]:
        """The end of a transaction; None: a marker that was emptied before. (It can go, the index entry to keep)."""
        self._meet(last_offset)
        if marker is None:
            return True, None
        if marker.commit:
            if producer_id in self._committed:
                self._committed.remove(producer_id)
                return False, None
            return True, None
        entry, met = self._aborted.pop(producer_id, (None, False))
        return (False, entry) if met else (True, None)

    def _meet(self, offset: int) -> None:
        pending = self._pending
        while pending and pending[0][0] <= offset:
            entry = heappop(pending)[1]
            self._aborted.setdefault(entry.producer_id, (entry, False))
