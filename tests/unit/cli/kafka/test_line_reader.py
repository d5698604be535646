from __future__ import annotations

import pytest

from headrace.cli.kafka.line_reader import LineReader
from headrace.cli.kafka.tool import ToolError


def test_a_line_is_a_value_unless_more_is_asked_for() -> None:
    assert LineReader.of({}).read(b"k\tv", 1) == (None, b"k\tv", [])


def test_headers_come_before_the_key_and_the_key_before_the_value() -> None:
    reader = LineReader.of({"parse.headers": "true", "parse.key": "TRUE"})
    assert reader.read(b"h1:v1,h2:\tk\tv\tw", 1) == (b"k", b"v\tw", [("h1", b"v1"), ("h2", b"")])


def test_a_marker_stands_for_null() -> None:
    reader = LineReader.of({"parse.headers": "true", "parse.key": "true", "null.marker": "NIL"})
    assert reader.read(b"h:NIL\tNIL\tNIL", 1) == (None, None, [("h", None)])
    assert reader.read(b"NIL\tk\tv", 1) == (b"k", b"v", [])


def test_a_missing_separator_is_an_error_or_ignored() -> None:
    with pytest.raises(ToolError, match="No key separator found on line number 7: 'x'"):
        LineReader.of({"parse.key": "true"}).read(b"x", 7)
    assert LineReader.of({"parse.key": "true", "ignore.error": "true"}).read(b"x", 7) == (None, b"x", [])
    with pytest.raises(ToolError, match="No header key separator found in pair 'h' on line number 2"):
        LineReader.of({"parse.headers": "true"}).read(b"h\tv", 2)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator may not be equal"),
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator may not be equal"),
        ({"null.marker": "\t"}, "null.marker and key.separator may not be equal"),
    ],
)
def test_separators_must_differ(properties: dict[str, str], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        LineReader.of(properties)
