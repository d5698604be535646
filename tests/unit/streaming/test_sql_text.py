"""Quotes and brackets of SQL; tests/streaming/test_sql_text_oracle.py asks Spark itself whether this is fair."""

from __future__ import annotations

import pytest

from headrace.streaming.sql_text import problem


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amount > (0", "the ( at character 10 is not closed"),
        ("amount > 0)", "the ) at character 11 closes nothing"),
        ("items[0 > 1", "the [ at character 6 is not closed"),
        ("f(items[0)]", "the ) at character 10 does not close the [ at character 8"),
        ("name = 'x", "the ' at character 8 is not closed"),
        ('name = "x', 'the " at character 8 is not closed'),
        ("`a b > 0", "the ` at character 1 is not closed"),
        (r"name = 'it\'s", "the ' at character 8 is not closed"),
        ("name = 'x''", "the ' at character 8 is not closed"),
        ("(a > 0 -- all of them)", "the ( at character 1 is not closed"),
    ],
)
def test_what_does_not_close_is_said_with_its_place(text: str, why: str) -> None:
    assert problem(text) == why


@pytest.mark.parametrize(
    "text",
    [
        "amount > 0",
        "f(items[0], (1 + 2))",
        "name = ')'",
        "name = '('  or name = \"[\"",
        r"name = 'it\'s (fine'",
        "name = 'it''s (fine'",
        "`odd (name` > 0",
        "`a``b` > 0",
        r"`c:\` > 0",
        "a > 0 -- it's (fine",
        "a > 0 -- one \\\n it's still a comment",
        "amount >",  # Spark's to say
        "",
    ],
)
def test_what_closes_is_no_problem(text: str) -> None:
    assert problem(text) is None


@pytest.mark.parametrize("text", [r"path rlike r'c:\(", "a > 0 /* it's (", "a = $$(", r"R'\' = '"])
def test_in_doubt_it_is_left_to_spark(text: str) -> None:
    assert problem(text) is None
