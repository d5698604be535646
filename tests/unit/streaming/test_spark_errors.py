"""What Spark says of an error becomes one line that a person can act on."""

from __future__ import annotations

import pytest

from headrace.streaming.spark_errors import first_line
from headrace.streaming.supervision import classify

COLUMN = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `amout` cannot be "
    "resolved. Did you mean one of the following? [`amount`, `at`, `id`]. SQLSTATE: 42703;\n'Filter ('amout > 0)\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COLUMN, "no column 'amout'; did you mean 'amount'?"),
        (COLUMN.replace("amout", "xyzzy"), "no column 'xyzzy'; there is amount, at, id"),
        (
            "[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION] A column, variable, or function parameter with name `a` cannot be "
            "resolved. SQLSTATE: 42703",
            "no column 'a'",
        ),
        (
            "[FIELD_NOT_FOUND] No such struct field `citi` in `city`, `zip`. SQLSTATE: 42704",
            "no field 'citi'; did you mean 'city'?",
        ),
        ("[ATTRIBUTE_NOT_SUPPORTED] Attribute `amout` is not supported.", "no column or method 'amout'"),
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 2)\n== SQL ==",
            "Syntax error at or near 'x'.",
        ),
        ("plain words\nand a stack", "plain words"),
    ],
)
def test_an_error_is_one_line_with_what_was_probably_meant(text: str, said: str) -> None:
    assert first_line(Exception(text)) == said


def test_an_error_without_words_is_named() -> None:
    assert first_line(ValueError()) == "ValueError"


def test_a_query_that_fails_on_a_name_says_which_was_meant() -> None:
    assert classify(f"AnalysisException: {COLUMN}").message == "no column 'amout'; did you mean 'amount'?"
