from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.records.filter import DEPTH_MAX, LENGTH_MAX, FilterError, parse_filter
from headrace.cli.records.view import FilterView, ShownRecord

VALUE = {"amount": 120, "who": "alice", "tags": ["a", "b"], "items": [{"sku": "a1"}], "test": False, "note": None}
RECORD = ShownRecord(
    "orders", 3, 17, 1_700_000_000_000, b"alice", json.dumps(VALUE).encode(), (("source", b"web-1"), ("raw", b"\xff"))
)


def holds(expression: str, record: ShownRecord = RECORD) -> bool:
    return parse_filter(expression)(FilterView(record))


@pytest.mark.parametrize(
    "expression",
    [
        "value.amount > 100",
        "value.amount >= 120 and value.amount <= 120",
        "value.amount == 120",
        "value.amount = 120.0",
        "value.amount != 121",
        'key == "alice"',
        "key == 'alice'",
        'value.who == "alice" and not value.test',
        "not value.nothing",
        "value.note == null",
        "value.nothing.at.all == null",
        "value.items[0].sku in ['a1', 'a2']",
        'value["items"][-1]["sku"] == "a1"',
        "value.tags contains 'b'",
        "'a' in value.tags",
        "value contains 'amount'",
        'text contains "alice"',
        'headers.source ~ "^web-\\d$"',
        "headers.source !~ '^app'",
        "partition == 3 and offset < 18 and topic == 'orders'",
        "timestamp > 1.6e12",
        "size > 10",
        "value.amount > 1000 or key == 'alice'",
        "value.amount > 1000 and key == 'bob' or offset == 17",
        "(value.amount > 1000 or key == 'alice') and partition == 3",
        "value.amount > -5",
        "value",
        "key",
    ],
)
def test_it_holds(expression: str) -> None:
    assert holds(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "value.amount < 100",
        "value.amount == '120'",  # a number is not a text
        "value.amount == true",
        "value.test == 0",  # nor is false a number
        "value.who > 5",
        "value.note < 5",
        "value.nothing",
        "value.test",
        "value.items[5]",
        "value.who[0]",
        "headers.nothing ~ '.'",
        "value.items ~ 'a1'",
        "5 in value.who",
        "not (key == 'alice')",
        "false",
        "'x' contains 5",
    ],
)
def test_it_does_not_hold(expression: str) -> None:
    assert not holds(expression)


def test_a_value_that_is_not_json_is_text_and_a_number_is_a_number() -> None:
    assert holds("value == 'plain text'", RECORD._replace(value=b"plain text"))
    assert holds("value > 41 and text == '42'", RECORD._replace(value=b"42"))
    assert holds("value == null and key == null", RECORD._replace(value=None, key=None))
    assert holds("key.id == 5", RECORD._replace(key=b'{"id": 5}'))
    assert holds("key == '42'", RECORD._replace(key=b"42"))


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("valu.x > 1", "'valu' is not a field of a record; did you mean value?"),
        ("zzz", "there are: topic, partition"),
        ("value.amount >", "it ends at 15 where a field"),
        ("value.amount > 5 6", "'6' stands at 18"),
        ("(value", "it ends at 7 where '\\)' is expected"),
        ("value. > 5", "a name after the dot"),
        ("value[x]", "a number or a name in quotes"),
        ("key ~ abc", "a regular expression in quotes"),
        ("key ~ '['", "is not a regular expression in RE2's syntax: missing closing ]"),
        ("key ~ '(?=a)'", "is not a regular expression in RE2's syntax: invalid or unsupported Perl syntax"),
        ("key ? 5", "'\\?' at 5 means nothing"),
        ("", "it ends at 1"),
        ("__import__('os')", "is not a field"),
        ("key == 'a' && 1", "'&' at 12 means nothing"),
    ],
)
def test_what_cannot_be_understood_is_said_with_its_place(expression: str, said: str) -> None:
    with pytest.raises(FilterError, match=said):
        parse_filter(expression)


def test_it_is_bounded() -> None:
    with pytest.raises(FilterError, match="nested more than"):
        parse_filter("(" * (DEPTH_MAX + 2) + "key" + ")" * (DEPTH_MAX + 2))
    with pytest.raises(FilterError, match="nested more than"):
        parse_filter("not " * (DEPTH_MAX + 2) + "key")
    with pytest.raises(FilterError, match="at most"):
        parse_filter("key or " * LENGTH_MAX)


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_a_clear_error(text: str) -> None:
    try:
        test = parse_filter(text)
    except FilterError:
        return
    assert test(FilterView(RECORD)) in (True, False)


_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@given(_VALUES, st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "contains"]), _VALUES)
def test_no_comparison_of_any_values_fails(left: Any, operator: str, right: Any) -> None:
    record = RECORD._replace(value=json.dumps({"l": left, "r": right}).encode())
    assert holds(f"value.l {operator} value.r", record) in (True, False)
    if operator in ("<", ">"):
        assert not (holds("value.l < value.r", record) and holds("value.l > value.r", record))


def test_the_examples_of_the_docs_and_of_the_module_are_expressions() -> None:
    import re
    from pathlib import Path

    from headrace.cli.records import filter as record_filter

    doc = (Path(__file__).parents[4] / "docs" / "filters.md").read_text()
    block = re.search(r"```text\n(.*?)```", doc, re.DOTALL)
    assert block is not None
    examples = block[1].strip().splitlines()
    assert len(examples) == 3
    for example in examples:
        parse_filter(example)
        assert example in (record_filter.__doc__ or "")
    assert set(re.findall(r"`(\w+)`", doc.split("| field |")[1].split("A path goes on")[0])) >= set(
        record_filter.FIELDS
    )
