"""A place in a topic as a person writes it: an offset, a time, the beginning, the end, or so many before the end.

Nothing here reads a clock or asks a broker: `now` is passed in, and looking places up is the caller's.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from headrace.core.errors import OperatorError

Kind = Literal["beginning", "end", "offset", "last", "time"]
_WORDS: dict[str, Kind] = {
    "beginning": "beginning",
    "start": "beginning",
    "earliest": "beginning",
    "end": "end",
    "latest": "end",
    "now": "end",
}
METAVAR = "beginning|end|OFFSET|-N|TIME"
HELP = "an offset, -N (that many before the end), or a time such as 2026-10-05T12:00:00Z or '10 minutes ago'"


@dataclass(frozen=True, slots=True)
class Moment:
    kind: Kind
    number: int = 0  # the offset, how many before the end, or milliseconds since 1970


def parse_moment(text: str, now: datetime) -> Moment:
    words = text.strip().lower()
    if words in _WORDS:
        return Moment(_WORDS[words])
    if words.isdecimal():
        return Moment("offset", int(words))
    if words[:1] == "-" and words[1:].isdecimal():
        return Moment("last", int(words[1:]))
    from headrace.core.times import parse_time

    try:
        return Moment("time", int(parse_time(text, now).timestamp() * 1000))
    except OperatorError:
        raise OperatorError(
            f"{text!r}: not a place in a topic; write beginning, end, an offset, -N for the last N, or a time such as "
            f"2026-10-05T12:00:00Z or '10 minutes ago'"
        ) from None
