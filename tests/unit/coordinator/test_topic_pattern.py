"""Regular expressions over topic names: RE2's language, and never more than one step a character."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.topic_pattern import TopicPattern
from headrace.core.errors import PeerError
from headrace.core.pattern import Pattern
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
    ("text", "why"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("*", "missing argument to repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("a{1001}", "invalid repeat count"),
        (r"\8", "invalid escape sequence"),
        (r"\1", "invalid escape sequence"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?<=a)", "invalid named capture"),
        ("(?P<n>a)(?P=n)", "invalid or unsupported Perl syntax"),
        ("[b-a]", "invalid character class range"),
        ("\\", "trailing backslash at end of expression"),
        (r"\q", "invalid escape sequence"),
        ("a++", "invalid nested repetition operator"),
        ("(?P<n", "invalid named capture"),
        ("[[:foo:]]", "invalid character class range"),
        (r"\pX", "invalid character class range"),
        ("(?P<n>a)(?P<n>b)", "duplicate capture group name"),
        (r"[\8]", "invalid escape sequence"),
        ("a{2}{3}", "invalid nested repetition operator"),
        (r"\Z", "invalid escape sequence"),
        (r"\x4", "invalid escape sequence"),
    ],
)
def test_refuses_with_the_words_of_kafka(text, why):
    with pytest.raises(PeerError) as refused:
        TopicPattern(text)
    assert refused.value.code == INVALID_REGULAR_EXPRESSION
    assert refused.value.message == f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}."


@pytest.mark.parametrize("text", ["]", "}", "a{", "a{,3}", "a|"])
def test_takes_what_only_looks_malformed(text):
    TopicPattern(text)


@pytest.mark.parametrize(
    "text", ["x" * 5000, "((a{100}){100}){100}", "((((a{0}){1000}){1000}){1000}){1000}", "(" * 500 + ")" * 500, ")"]
)
def test_refuses_what_is_too_large(text):
    with pytest.raises(PeerError) as refused:
        TopicPattern(text)
    assert refused.value.code == INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("text", ["(a+)+b", "a*a*a*a*a*a*a*b", "(a|a)*b"])
def test_an_expression_that_backtracks_for_ever_elsewhere_takes_one_step_a_character(text, monkeypatch):
    steps = []
    step = Pattern._step
    monkeypatch.setattr(Pattern, "_step", lambda *given: (steps.append(1), step(*given))[1])
    name = "a" * 248 + "!"
    assert not TopicPattern(text).matches(name)
    assert len(steps) <= len(name)


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
