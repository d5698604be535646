"""Where in a topic to begin: what a person may write, and what Spark's Kafka source wants to hear. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.core.errors import OperatorError

_OFFSETS = re.compile(r"(?:(?P<topic>[A-Za-z0-9._-]+):)?(?P<partition>\d+)=(?P<offset>\d+)")
_EARLIEST = -2  # Kafka's own sign for it, which Spark takes for a partition that nobody named


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """The beginning, the end, a time, or an offset for each partition of each topic ("" means every topic)."""

    where: str = "earliest"
    time_ms: int | None = None
    offsets: Mapping[str, Mapping[int, int]] | None = None

    def options(self, topic: str, partitions: int) -> dict[str, str]:
        """For a topic of so many partitions; a partition that is not named begins at its first record."""
        if self.time_ms is not None:
            # No record that late means that there is nothing to read yet, not that something is wrong.
            return {"startingTimestamp": str(self.time_ms), "startingOffsetsByTimestampStrategy": "latest"}
        if self.offsets is None:
            return {"startingOffsets": self.where}
        named = self.offsets.get(topic, self.offsets.get("", {}))
        beyond = [partition for partition in named if partition >= partitions]
        if beyond:
            raise OperatorError(
                f"{topic}: partition {beyond[0]} is outside [0, {partitions}); name partitions that the topic has"
            )
        offsets = {str(partition): named.get(partition, _EARLIEST) for partition in range(partitions)}
        return {"startingOffsets": json.dumps({topic: offsets})}


def starting(given: str | Mapping[str, Mapping[str, int]]) -> Starting:
    """`earliest`, `latest`, a time such as 2026-01-31T10:00, or offsets such as 0=100,1=200 or orders:0=100."""
    if not isinstance(given, str):
        return Starting(offsets={t: {int(p): int(o) for p, o in of.items()} for t, of in given.items()})
    text = given.strip()
    if text in ("earliest", "latest"):
        return Starting(where=text)
    if "=" in text:
        return Starting(offsets=_offsets(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OperatorError(
            f"{given!r}: not a place in a topic; give earliest, latest, a time such as 2026-01-31T10:00+01:00, "
            f"or offsets such as orders:0=100,orders:1=200"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Starting(time_ms=int(moment.timestamp() * 1000))


def _offsets(text: str) -> dict[str, dict[int, int]]:
    offsets: dict[str, dict[int, int]] = {}
    for part in text.split(","):
        match = _OFFSETS.fullmatch(part.strip())
        if match is None:
            raise OperatorError(f"{part.strip()!r}: not an offset; write TOPIC:PARTITION=OFFSET, such as orders:0=100")
        offsets.setdefault(match["topic"] or "", {})[int(match["partition"])] = int(match["offset"])
    return offsets
