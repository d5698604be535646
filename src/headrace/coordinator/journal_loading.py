"""Reading a shard's partition of the journal, so that damage costs no more than what it hit.

Bytes from the disk are not trusted. A record that cannot be replayed is passed over and counted; a partition that
cannot be read is given up as a whole (`StorageError`), since what it would lack is not known.
"""

from collections.abc import Callable, Generator

from headrace.coordinator.journal import Journal, JournalReader, JournalRecord
from headrace.core.errors import InvariantError

Steps = Generator[int, None, None]  # after each step: how many records or groups it was about, or WAITING
WAITING = -1  # it cannot go on before something else has happened: look again a little later
"""What a load or an unload yields."""


def replay_to_end(
    journal: Journal, reader: JournalReader, partition: int, replay: Callable[[JournalRecord], None]
) -> Steps:
    """Slice by slice, until all that was given to the log is replayed and may be acted on."""
    while True:
        records = reader.take()
        if records is not None:
            for record in records:
                try:
                    replay(record)
                except InvariantError:
                    raise
                except Exception as error:  # whatever it is, it comes from the bytes of this one record
                    journal.skipped(partition, record.offset, error)
            yield len(records)
        elif journal.is_ready(partition):
            return
        else:
            yield WAITING
