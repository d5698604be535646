"""Reading a journal again after a restart, so that damage costs no more than what it hit.

Bytes from the disk are not trusted. A record that cannot be replayed is passed over and counted; a partition that
cannot be read is given up as a whole, since what it would lack is not known: whoever belongs there has no coordinator.
"""

from collections.abc import Callable

from headrace.coordinator.journal import Journal, JournalRecord
from headrace.core.errors import StorageError

Replay = Callable[[int, JournalRecord], None]  # partition, record


def replay_all(journal: Journal, replay: Replay) -> frozenset[int]:
    """Replays all that can be read; returns the partitions that cannot, of which some records may be replayed."""
    lost = set()
    for partition in range(journal.partition_count):
        try:
            for record in journal.read_all(partition):
                try:
                    replay(partition, record)
                except Exception as error:  # whatever it is, it comes from the bytes of this one record
                    journal.skipped(partition, record.offset, error)
        except (StorageError, OSError) as error:
            journal.lost(partition, error)
            lost.add(partition)
    return frozenset(lost)
