"""Spark's own parser as the judge of `sql_text`: what that refuses, Spark refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.streaming.sql_text import problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Pieces in which quotes, brackets, escapes and comments meet; blanks and names between them.
PIECES = [
    "'",
    '"',
    "`",
    "(",
    ")",
    "[",
    "]",
    "\\",
    "--",
    "\n",
    "\r",
    "/*",
    "*/",
    "$",
    "r",
    "R'",
    "a",
    "1",
    " ",
    ".",
    ",",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
EXAMPLES = 400


def accepts(spark: SparkSession, text: str) -> bool:
    parser = spark._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
    try:
        parser.parseExpression(text)
    except Exception:
        return False
    return True


def test_what_is_refused_without_spark_spark_refuses_too(spark: SparkSession) -> None:
    seen = {"refused": 0, "accepted": 0}

    @settings(max_examples=EXAMPLES)
    @example("'it''s'")
    @example(r"'it\'s'")
    @example("a['(']")
    @example("`a``(`")
    @example("a -- it's (\n")
    @example(r"r'\'")
    @given(TEXTS)
    def holds(text: str) -> None:
        accepted = accepts(spark, text)
        assert not (accepted and problem(text)), f"Spark accepts {text!r}; sql_text says {problem(text)}"
        seen["accepted" if accepted else "refused"] += 1

    holds()
    assert seen["accepted"], "no text was one that Spark accepts, so nothing was tested"
