"""Lengths of time as a pipeline's file writes them: "7 days", "90 minutes", or a timedelta. No Spark."""

import re
from datetime import timedelta

_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", re.IGNORECASE)


def duration(value: object) -> timedelta:
    """ValueError for what is none, or is not above zero."""
    if isinstance(value, timedelta):
        made = value
    else:
        match = _TEXT.fullmatch(value) if isinstance(value, str) else None
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError(f"{value!r}: give a length of time such as '7 days'; units are {', '.join(_UNITS)}")
        made = timedelta(seconds=float(match[1]) * _UNITS[match[2].lower()])
    if made <= timedelta(0):
        raise ValueError(f"{value!r}: must be greater than zero")
    return made
