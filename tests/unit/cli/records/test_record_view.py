from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.produce_input import InputFormat, parse_record
from headrace.cli.records.view import ShownRecord, as_json, as_pretty, as_raw, format_for

RECORD = ShownRecord("orders", 0, 5, 1_700_000_000_123, b"alice", b'{"amount": 5}', (("source", b"web"),))


def pretty(record: ShownRecord, width: int = 80) -> str:
    return as_pretty(record, colours=False, width=width).decode()


def test_for_people_a_line_about_the_record_then_its_value() -> None:
    assert pretty(RECORD) == 'orders-0 @5  2023-11-14 22:13:20.123  key=alice  source=web\n  {"amount": 5}\n'


def test_json_that_does_not_fit_is_laid_out() -> None:
    wide = RECORD._replace(value=json.dumps({"a": "x" * 30, "b": "y" * 30}).encode())
    lines = pretty(wide, 60).splitlines()
    assert lines[1:] == ["  {", f'    "a": "{"x" * 30}",', f'    "b": "{"y" * 30}"', "  }"]


def test_nothing_in_a_record_can_move_the_cursor() -> None:
    nasty = ShownRecord("t", 0, 0, -1, b"\x1b[2J", b"\x1b[31mred\ttext\nsecond", (("\x07bell", b"\x00\xff"),))
    shown = pretty(nasty)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert shown.splitlines() == [
        "t-0 @0  key=\\x1b[2J  \\x07bell=\\x00\\xff",
        "  \\x1b[31mred\\ttext",
        "  second",
    ]


def test_no_value_is_shown_as_null() -> None:
    assert pretty(RECORD._replace(value=None, key=None, headers=())).endswith("\n  null\n")
    assert as_raw(RECORD._replace(value=None)) == b"\n"


def test_raw_is_the_value_or_key_and_value() -> None:
    assert as_raw(RECORD) == b'{"amount": 5}\n'
    assert format_for("raw", colours=False, separator=": ")(RECORD) == b'alice: {"amount": 5}\n'


def test_json_has_what_a_value_holds_and_base64_for_what_is_no_text() -> None:
    content = json.loads(as_json(RECORD))
    assert content["value"] == {"amount": 5}
    assert content["time"] == "2023-11-14T22:13:20.123Z"
    assert json.loads(as_json(RECORD._replace(value=b"42")))["value"] == "42", "only objects and lists are opened"
    binary = json.loads(as_json(RECORD._replace(value=b"\xff\x00", key=None, headers=(("h", b"\xff"), ("h", None)))))
    assert binary["value_base64"] == "/wA="
    assert "value" not in binary
    assert binary["key"] is None
    assert binary["headers"] == {"h": [{"base64": "/w=="}, None]}


_BYTES = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)


@given(_BYTES, _BYTES, st.lists(st.tuples(st.sampled_from(["a", "b"]), _BYTES), max_size=3))
def test_a_record_printed_as_json_is_sent_again_as_it_was(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    """But for JSON objects and lists, whose spaces may go, and headers, which are grouped by name."""
    record = ShownRecord("t", 0, 0, 1000, key, value, tuple(headers))
    again = parse_record(InputFormat(kind="records"), as_json(record), "stdin", 1)

    def same(before: bytes | None, after: bytes | None) -> bool:
        if before == after:
            return True
        return before is not None and after is not None and json.loads(before) == json.loads(after)

    assert same(key, again.key)
    assert same(value, again.value)
    assert sorted(again.headers, key=str) == sorted(headers, key=str) or len({name for name, _ in headers}) < len(
        headers
    )
    assert again.timestamp_ms == 1000
