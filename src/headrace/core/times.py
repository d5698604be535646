"""A time as a person writes it. No clock is read here: `now` is passed in."""

import re
from datetime import UTC, datetime, timedelta

from headrace.core.errors import OperatorError

_RELATIVE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)(?:\s+ago)?")
_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), timedelta(milliseconds=1)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
}


def parse_time(text: str, now: datetime) -> datetime:
    """`2026-10-05T12:00:00Z`, `2026-10-05 12:00`, `2026-10-05`, `10 minutes ago`, `now`; in UTC if it names no zone."""
    words = text.strip().lower()
    if words == "now":
        return now
    if words == "yesterday":
        return now - timedelta(days=1)
    relative = _RELATIVE.fullmatch(words)
    try:
        if relative and relative[2] in _UNITS:
            return now - float(relative[1]) * _UNITS[relative[2]]
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise OperatorError(
            f"{text!r}: not a time; write 2026-10-05T12:00:00Z, 2026-10-05 12:00 (in UTC) or '10 minutes ago'"
        ) from None
