"""Sets of characters, as regular expressions name them: asked only whether a character is one of theirs."""

import string
import unicodedata
from collections.abc import Callable, Container

Characters = Container[str]


class Not:
    def __init__(self, of: Characters) -> None:
        self._of = of

    def __contains__(self, character: object) -> bool:
        return character not in self._of


class Either:
    def __init__(self, parts: tuple[Characters, ...]) -> None:
        self._parts = parts

    def __contains__(self, character: object) -> bool:
        return any(character in part for part in self._parts)


class Range:
    def __init__(self, low: str, high: str) -> None:
        self._low, self._high = low, high

    def __contains__(self, character: object) -> bool:
        return isinstance(character, str) and self._low <= character <= self._high


class Folded:
    """In whichever case."""

    def __init__(self, of: Characters) -> None:
        self._of = of

    def __contains__(self, character: object) -> bool:
        if not isinstance(character, str):
            return False
        return character in self._of or character.lower() in self._of or character.upper() in self._of


class Where:
    def __init__(self, holds: Callable[[str], bool]) -> None:
        self._holds = holds

    def __contains__(self, character: object) -> bool:
        return isinstance(character, str) and self._holds(character)


ANY = Not(frozenset[str]())
NO_NEWLINE = Not(frozenset("\n"))
WORD = frozenset(string.ascii_letters + string.digits + "_")
UNICODE_WORD = Where(lambda character: character == "_" or character.isalnum())

_DIGITS = frozenset(string.digits)
_LETTERS = frozenset(string.ascii_letters)
_PRINTED = Range(" ", "~")
_POSIX: dict[str, Characters] = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": Range("\0", "\x7f"),
    "blank": frozenset(" \t"),
    "cntrl": Either((Range("\0", "\x1f"), frozenset("\x7f"))),
    "digit": _DIGITS,
    "graph": Range("!", "~"),
    "lower": frozenset(string.ascii_lowercase),
    "print": _PRINTED,
    "punct": frozenset(string.punctuation),
    "space": frozenset(string.whitespace),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CATEGORIES = frozenset(
    [
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cs",
        "L",
        "Ll",
        "Lm",
        "Lo",
        "Lt",
        "Lu",
        "M",
        "Mc",
        "Me",
        "Mn",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Pe",
        "Pf",
        "Pi",
        "Po",
        "Ps",
        "S",
        "Sc",
        "Sk",
        "Sm",
        "So",
        "Z",
        "Zl",
        "Zp",
        "Zs",
    ]
)


def perl_sets(*, unicode: bool) -> dict[str, Characters]:
    """What \\d, \\w and \\s are."""
    if unicode:
        return {"d": Where(str.isdecimal), "w": UNICODE_WORD, "s": Where(str.isspace)}
    return {"d": _DIGITS, "w": WORD, "s": frozenset(" \t\n\f\r")}


def posix_set(name: str) -> Characters:
    """Of [[:name:]]; ValueError if there is none."""
    if name not in _POSIX:
        raise ValueError("invalid character class range")
    return _POSIX[name]


def unicode_set(name: str) -> Characters:
    """Of \\p{name}; ValueError if it is neither a category nor one of the few scripts that are known here."""
    if name == "Any":
        return ANY
    if name == "Latin":
        return Where(lambda character: unicodedata.name(character, "").startswith("LATIN "))
    if name == "Common":
        return Where(lambda character: not unicodedata.category(character).startswith("L"))
    if name not in _CATEGORIES:
        raise ValueError("invalid character class range")
    return Where(lambda character: unicodedata.category(character).startswith(name))
