"""Regular expressions that never run away: RE2's answers, in the words of the RE2J that Kafka uses."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.pattern import LENGTH_MAX, Pattern

PART = st.sampled_from(["a", "b", "ab", ".", "[ab]", "[^a]", "\\w", "\\b", "^", "$", "(a|b)", "(a|bb)", "(ab)", "\\s"])
REPEAT = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "*?"])
EXPRESSION = st.lists(st.tuples(PART, REPEAT), max_size=6).map(
    lambda parts: "".join(part + ("" if part in ("^", "$", "\\b") else repeat) for part, repeat in parts)
)


@given(text=EXPRESSION, flags=st.sampled_from(["", "(?i)", "(?m)", "(?s)"]), within=st.text("abAB \n", max_size=12))
@example(text="$", flags="(?m)", within="a\n")
def test_finds_and_matches_what_pythons_own_does(text: str, flags: str, within: str) -> None:
    pythons = re.compile(flags + text.replace("$", "\\Z" if flags != "(?m)" else "$"))  # Python's $ is lenient
    found = Pattern(flags + text)
    assert found.found_in(within) == bool(pythons.search(within))
    assert found.matches(within) == bool(pythons.fullmatch(within))


@pytest.mark.parametrize("text", ["(a+)+$", "(.*)*x", "a?" * 30 + "a" * 30, "(x+x+)+y", "(a|a)*b"])
def test_an_expression_that_python_would_never_finish_ends(text: str) -> None:
    assert not Pattern(text).found_in("a" * 29 + "!")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("a++", "invalid nested repetition operator"),
        ("a{2}{3}", "invalid nested repetition operator"),
        ("*", "missing argument to repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("a{1001}", "invalid repeat count"),
        ("((a{100}){100}){100}", "invalid repeat count"),
        (r"\8", "invalid escape sequence"),
        (r"(a)\1", "invalid escape sequence"),
        (r"[\8]", "invalid escape sequence"),
        (r"\Z", "invalid escape sequence"),
        (r"\x4", "invalid escape sequence"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?!a)", "invalid or unsupported Perl syntax"),
        ("(?<=a)b", "invalid or unsupported Perl syntax"),
        ("(?P<n>a)(?P=n)", "invalid or unsupported Perl syntax"),
        ("(?P<n", "invalid named capture"),
        ("[b-a]", "invalid character class range"),
        ("[[:foo:]]", "invalid character class range"),
        (r"\pX", "invalid character class range"),
        ("\\", "trailing backslash at end of expression"),
        (")", "unexpected )"),
        (r"\PL{900}", "pattern too large - compile failed"),
        ("a" * (LENGTH_MAX + 1), "it has 4,097 characters, more than 4,096"),
    ],
)
def test_what_is_refused_is_refused_in_kafkas_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        Pattern(text)


@pytest.mark.parametrize("text", ["]", "}", "a{", "a{,3}", "a|", "", "(" * 500 + ")" * 500])
def test_what_only_looks_malformed_is_taken(text: str) -> None:
    Pattern(text)


def test_half_a_surrogate_pair_is_a_character_like_any_other() -> None:
    assert Pattern("a.b").matches("a\ud800b")
    assert not Pattern("x").found_in("\udfff")


def test_letters_of_all_scripts_have_classes_of_their_own() -> None:
    assert Pattern(r"^\pL+$").found_in("größe")
    assert not Pattern(r"^\w+$").found_in("größe")
    assert Pattern(r"\p{Greek}").found_in("Σ")
    assert Pattern("(?i)s").found_in("\u017f")
