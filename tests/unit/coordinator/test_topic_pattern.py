"""Regular expressions over topic names: RE2's language, whole names only."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.topic_pattern import TopicPattern
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_REGULAR_EXPRESSION

NAMES = [
    "",
    "a",
    "b",
    "ab",
    "orders",
    "orders.eu",
    "orders-eu",
    "Orders",
    "a1",
    "_x",
    "aaa",
    "a.b",
    "__consumer_offsets",
]


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "orders.*",
        r"orders\..*",
        "^orders$",
        "a|b",
        "(a|b)+",
        "[a-c]{2,3}",
        "[^a]*",
        r"\w+",
        r"\D\d?",
        "a{0}b?",
        "a*?",
        r"[\w.]+",
        "(?i)ORDERS",
        "(?i:o)rders",
        "o(?:rd)ers",
        "(?P<x>a)b",
        r"a\b.*",
        r".*\Bb",
        ".+[.-].+",
        "",
        "a{2,}",
        "|a",
        r"[]a]+",
        r"[a\-.]+",
        r"\x61",
        r"\x{61}b",
        "_.*",
        "(a*)*",
        "(a|)(b|)",
    ],
)
def test_matches_as_pythons_own_where_the_languages_are_the_same(text):
    pythons = re.compile(text.replace(r"\x{61}", "a"), re.ASCII)
    pattern = TopicPattern(text)
    assert {name for name in NAMES if pattern.matches(name)} == {name for name in NAMES if pythons.fullmatch(name)}


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        (r"\Qa.b\E", {"a.b"}),
        ("[[:upper:]].*", {"Orders"}),
        (r"\p{Lu}\pL+", {"Orders"}),
        (r"\Aab\z", {"ab"}),
        ("(?<n>a)b", {"ab"}),
        ("(?U)a+", {"a", "aaa"}),
        (r"\141", {"a"}),
        (r"[[:^lower:]]\d?", set()),
    ],
)
def test_matches_what_only_re2_can_say(text, matched):
    pattern = TopicPattern(text)
    assert {name for name in NAMES if pattern.matches(name)} == matched


@pytest.mark.parametrize(
    ("text", "why"), [("(", "missing closing )"), ("a**", "invalid nested repetition operator"), (")", "unexpected )")]
)
def test_refuses_with_the_words_of_kafka(text, why):
    with pytest.raises(PeerError) as refused:
        TopicPattern(text)
    assert refused.value.code == INVALID_REGULAR_EXPRESSION
    assert refused.value.message == f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}."


def test_shows_the_beginning_of_an_expression_that_is_too_long():
    with pytest.raises(PeerError) as refused:
        TopicPattern("x" * 5000)
    assert refused.value.code == INVALID_REGULAR_EXPRESSION
    assert len(refused.value.message) < 200


@given(text=st.text("ab(|)*+?[]^-.\\dw{1,2}$", max_size=12), name=st.text("ab1.-_", max_size=6))
@settings(max_examples=300, deadline=None)
def test_agrees_with_pythons_own_on_whatever_both_take(text, name):
    try:
        pattern = TopicPattern(text)
        pythons = re.compile(text, re.ASCII)
    except (PeerError, re.error, RecursionError):
        return
    if "\\" in text or "{" in text or "[[" in text or "--" in text or "[" in text:
        return  # where the two languages differ in small print
    assert pattern.matches(name) == (pythons.fullmatch(name) is not None)
