from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.errors import OperatorError
from headrace.core.times import parse_time

NOW = datetime(2026, 10, 5, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-10-05T11:30:00Z", datetime(2026, 10, 5, 11, 30, tzinfo=UTC)),
        ("2026-10-05 11:30", datetime(2026, 10, 5, 11, 30, tzinfo=UTC)),
        ("2026-10-05T13:30:00+02:00", datetime(2026, 10, 5, 11, 30, tzinfo=UTC)),
        ("2026-10-05", datetime(2026, 10, 5, tzinfo=UTC)),
        ("2026-10-05T11:30:00.123Z", datetime(2026, 10, 5, 11, 30, 0, 123000, tzinfo=UTC)),
        ("10 minutes ago", NOW - timedelta(minutes=10)),
        ("1 hour ago", NOW - timedelta(hours=1)),
        ("1.5h", NOW - timedelta(minutes=90)),
        (" 2 Days ago ", NOW - timedelta(days=2)),
        ("90s ago", NOW - timedelta(seconds=90)),
        ("yesterday", NOW - timedelta(days=1)),
        ("now", NOW),
    ],
)
def test_times_are_read_as_people_write_them(text: str, expected: datetime) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs ago", "2026-13-01", "99999999999 weeks ago", "-5 minutes"])
def test_what_is_no_time_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(OperatorError, match="not a time; write 2026-10-05T12:00:00Z"):
        parse_time(text, NOW)
