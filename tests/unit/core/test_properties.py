import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import OperatorError
from headrace.core.properties import Property, parse_properties


def pairs(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse_properties(text, "test.properties")}


@pytest.mark.parametrize("line", ["a=b", "a:b", "a b", "a = b", "  a\t:\tb", "a\f=b"])
def test_key_and_value_are_parted_by_equals_colon_or_blank(line: str) -> None:
    assert pairs(line) == {"a": "b"}


def test_only_the_first_separator_parts_key_and_value() -> None:
    assert pairs("listeners=PLAINTEXT://:9092") == {"listeners": "PLAINTEXT://:9092"}
    assert pairs("a = = b") == {"a": "= b"}


def test_comments_and_empty_lines_are_passed_over_but_counted() -> None:
    assert parse_properties("# one\n\n ! two\n  key=value", "f") == [Property("key", "value", 4)]


def test_a_backslash_at_the_end_joins_lines_and_drops_the_indent() -> None:
    assert parse_properties("x=1\ndirs=a,\\\n    b,\\\r\n    c\ny=2", "f") == [
        Property("x", "1", 1),
        Property("dirs", "a,b,c", 2),
        Property("y", "2", 5),
    ]


def test_an_even_number_of_backslashes_does_not_join() -> None:
    assert pairs("path=c:\\\\\nnext=1") == {"path": "c:\\", "next": "1"}


def test_a_comment_sign_inside_a_joined_line_is_text() -> None:
    assert pairs("a=1\\\n#2") == {"a": "1#2"}


def test_escapes_are_undone_in_keys_and_values() -> None:
    assert pairs("a\\ b\\=c=\\t\\u00e9\\n\\q") == {"a b=c": "\té\nq"}
    assert pairs("smile=\\ud83d\\ude00") == {"smile": "😀"}


def test_a_bad_unicode_escape_names_file_and_line() -> None:
    with pytest.raises(OperatorError, match=r"test\.properties:2: \\u12x is not an escape"):
        pairs("a=1\nb=\\u12x")


def test_trailing_blanks_belong_to_the_value_as_in_java() -> None:
    assert pairs("a=b  ") == {"a": "b  "}


def test_a_key_alone_has_an_empty_value() -> None:
    assert pairs("alone") == {"alone": ""}


def test_a_key_given_twice_is_there_twice() -> None:
    assert [entry.value for entry in parse_properties("a=1\na=2", "f")] == ["1", "2"]


def test_a_backslash_at_the_end_of_the_file_is_no_failure() -> None:
    assert pairs("a=b\\") == {"a": "b"}


@given(st.text())
def test_no_text_makes_it_fail_other_than_by_an_operator_error(text: str) -> None:
    with contextlib.suppress(OperatorError):
        parse_properties(text, "f")


def _escape(text: str) -> str:
    return "".join("\\" + char if char in " \t\f=:#!\\" else char for char in text)


@given(st.dictionaries(st.text("ab.=: #!\\", min_size=1), st.text("xy =:#\\")))
def test_what_was_escaped_comes_back(entries: dict[str, str]) -> None:
    text = "\n".join(f"{_escape(key)}={_escape(value)}" for key, value in entries.items())
    assert pairs(text) == entries
