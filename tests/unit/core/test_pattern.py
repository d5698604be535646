"""Regular expressions that never run away: found in a text as Python's own finds them, where both know the syntax."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core import pattern
from headrace.core.pattern import Pattern

TEXTS = [
    "",
    "a",
    "web-7",
    "the web-7 is up",
    "WEB",
    "größe: 12 Ä",
    "first\nsecond line\n",
    "tab\there",
    "a.b",
    "x" * 50,
]


@pytest.mark.parametrize(
    "text",
    [
        *("", "web", "^web", "^web-\\d$", "up$", "web-[0-9]+", "[^a-z]", "w.b", "(the|a) web", "x{3,5}", "x{51}"),
        *("(?i)web", "(?i:Ä)", "[ä-ü]", "größe", "\\bis\\b", "\\Bn", "\\s\\d\\d", "^\\w+:", "\\W", "\\S+\\t", "a\\.b"),
        *("(?m)^second", "(?m)first$", "(?s)first.second", "first.second", "(?:first|tab)\\s", "(?P<n>we)b", "x*y?$"),
        *("\\x65", "[\\d.]", "[]a]", "()", "a|"),
    ],
)
def test_finds_what_pythons_own_finds(text: str) -> None:
    found = Pattern(text, unicode=True)
    for each in TEXTS:
        assert found.found_in(each) == bool(re.search(text, each)), each
        assert found.matches(each) == bool(re.fullmatch(text, each)), each


PART = st.sampled_from(["a", "b", "ab", ".", "[ab]", "[^a]", "\\w", "\\b", "^", "$", "(a|b)", "(a|bb)", "(ab)", "\\s"])
REPEAT = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "*?"])
EXPRESSION = st.lists(st.tuples(PART, REPEAT), max_size=6).map(
    lambda parts: "".join(part + ("" if part in ("^", "$", "\\b") else repeat) for part, repeat in parts)
)


@given(text=EXPRESSION, flags=st.sampled_from(["", "(?i)", "(?m)", "(?s)"]), within=st.text("abAB \n", max_size=12))
@example(text="$", flags="(?m)", within="a\n")
def test_agrees_with_pythons_own_on_any_expression(text: str, flags: str, within: str) -> None:
    pythons = re.compile(flags + text.replace("$", "\\Z" if flags != "(?m)" else "$"))  # Python's $ is lenient
    ours = Pattern(flags + text, unicode=True)
    assert ours.found_in(within) == bool(pythons.search(within))
    assert ours.found_in(within) == bool(pythons.search(within)), "again, from what is remembered"


@pytest.mark.parametrize(
    "text", ["(a+)+$", "(a|aa)*c", "(.*)*x", "a?" * 30 + "a" * 30, "(x+x+)+y", ".*a.*b.*c.*d.*e.*f"]
)
def test_an_expression_that_backtracks_for_ever_elsewhere_takes_one_step_a_character(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    step = Pattern._step

    def counted(self: Pattern, place: Any, character: str, places: Any) -> Any:
        steps.append(character)
        return step(self, place, character, places)

    monkeypatch.setattr(Pattern, "_step", counted)
    within = "a" * 5_000 + "!"
    Pattern(text).found_in(within)
    assert len(steps) <= len(within)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "STEPS_KEPT_MAX", 5)
    found = Pattern("^[a-z]+[0-9]$")
    for _ in range(2):
        assert found.found_in("abcdefghijklmnopqrstuvwxyz7")
        assert not found.found_in("abcdefghijklmnopqrstuvwxyz")
    kept = [*found._within.values(), *found._whole.values()]
    assert sum(len(place.following) for place in kept) <= 6


def test_letters_of_all_scripts_are_letters_only_if_asked_for() -> None:
    assert Pattern(r"^\w+$", unicode=True).found_in("größe")
    assert not Pattern(r"^\w+$").found_in("größe")
    assert Pattern(r"^\pL+$").found_in("größe")
    assert Pattern(r"\d", unicode=True).found_in("٣")
    assert not Pattern(r"\d").found_in("٣")


@pytest.mark.parametrize("text", ["(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "(", "[", "a**", "x{1001}", r"\Z", "(?P=n)"])
def test_what_would_need_to_go_back_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Pattern(text)
