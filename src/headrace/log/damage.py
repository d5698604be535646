"""What is known to be damaged or lost in a log directory: said once in the log, counted, and shown by /health.

A book is a record of findings and never changes a file. It is bounded: a directory that is damaged all over needs no
list of every batch.
"""

import logging
from typing import NamedTuple

from headrace.core.errors import PeerError
from headrace.core.telemetry import event
from headrace.log.survey import UNKNOWN, Damage, offsets_text
from headrace.protocol.error_codes import CORRUPT_MESSAGE

ENTRIES_MAX = 1000

REMEDY = "stop the broker and run `headrace log repair`, or let consumers seek past it"

logger = logging.getLogger(__name__)


class DamageEntry(NamedTuple):
    log: str  # topic and partition
    path: str
    position: int  # UNKNOWN where a whole file is meant
    first_offset: int
    next_offset: int
    why: str
    lost: bool  # gone for certain, and passed over; otherwise unreadable, and refused

    @property
    def text(self) -> str:
        where = f"{self.path}, byte {self.position}" if self.position != UNKNOWN else self.path
        offsets = offsets_text(self.first_offset, self.next_offset)
        return f"{self.log}: {offsets} {'lost' if self.lost else 'unreadable'} ({where}: {self.why})"


class DamageBook:
    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._entries: dict[tuple[str, int], DamageEntry] = {}
        self.not_kept = 0  # findings beyond the bound

    def __len__(self) -> int:
        return len(self._entries) + self.not_kept

    @property
    def entries(self) -> list[DamageEntry]:
        return list(self._entries.values())

    def unreadable(self, log: str, path: str, damage: Damage) -> None:
        """A read, the scrub or a start met it. Only the first time is said."""
        entry = DamageEntry(log, path, damage.position, damage.first_offset, damage.next_offset, damage.why, False)
        if self._keep(entry):
            event(
                logger,
                logging.ERROR,
                "damaged batch: its offsets cannot be read",
                log=log,
                file=path,
                position=damage.position,
                offsets=damage.offsets,
                next_good=damage.next_offset if damage.next_offset != UNKNOWN else "unknown",
                why=damage.why,
                remedy=REMEDY,
            )

    def lost(self, log: str, path: str, first: int, following: int, why: str) -> None:
        """These offsets are gone; readers pass over them."""
        if self._keep(DamageEntry(log, path, UNKNOWN, first, following, why, True)):
            event(
                logger,
                logging.ERROR,
                "records are lost",
                log=log,
                file=path,
                offsets=offsets_text(first, following),
                count=following - first,
                why=why,
                remedy="restore the file from a backup while the broker is stopped, if there is one",
            )

    def forget(self, log: str) -> None:
        """The log was deleted."""
        self._entries = {key: entry for key, entry in self._entries.items() if entry.log != log}

    def _keep(self, entry: DamageEntry) -> bool:
        key = (entry.path, entry.position if entry.position != UNKNOWN else -2 - entry.first_offset)
        if key in self._entries:
            return False
        if len(self._entries) >= ENTRIES_MAX:
            self.not_kept += 1
        else:
            self._entries[key] = entry
        return not self._quiet

    def counts(self, *, lost: bool) -> dict[tuple[str, ...], int]:
        """By log: damaged batches, or records that are lost."""
        found: dict[tuple[str, ...], int] = {}
        for entry in self._entries.values():
            if entry.lost == lost:
                amount = max(entry.next_offset - entry.first_offset, 1) if lost else 1
                found[(entry.log,)] = found.get((entry.log,), 0) + amount
        return found


def corrupt(log: str, path: str, damage: Damage) -> PeerError:
    """What a reader is answered."""
    return PeerError(
        CORRUPT_MESSAGE,
        f"{log}: {damage.offsets} cannot be read, {path} is damaged at byte {damage.position}: {damage.why};"
        f" the next good offset is {damage.next_offset if damage.next_offset != UNKNOWN else 'unknown'}; {REMEDY}",
    )
