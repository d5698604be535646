"""The language of `headrace consume --where`: is this record wanted? Text in, a function out; nothing is executed.

    value.amount > 100 and (key == "alice" or headers.source ~ "^web")
    value.items[0].sku in ["a1", "a2"] and not value.test
    text contains "timeout" and partition == 3

An expression is made of paths, literals and these operators, from loosest to tightest: `or`, `and`, `not`, then one of
`==` (or `=`) `!=` `<` `<=` `>` `>=` `~` (a regular expression is found in it) `!~` `in` `contains`. A path begins with
a field of the record (FIELDS) and goes on with `.name`, `[0]` or `["name"]`; where it leads nowhere it is null. A
comparison never fails: values of different kinds are unequal, and neither is less. A path alone is true unless it is
null, false, 0 or empty. Regular expressions are RE2's: no look-around and no back-references, but never slow.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.core.errors import OperatorError
from headrace.core.pattern import Pattern

FIELDS = {
    "topic": "the topic's name",
    "partition": "a number",
    "offset": "a number",
    "timestamp": "milliseconds since 1970",
    "key": "text, or what it holds if it is a JSON object",
    "value": "what it holds if it is JSON, else text",
    "text": "the value as text, even if it is JSON",
    "headers": "by name: headers.trace",
    "size": "bytes of key and value",
}
LENGTH_MAX = 10_000
DEPTH_MAX = 100

Record = Mapping[str, Any]
Test = Callable[[Record], bool]
_Get = Callable[[Record], Any]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<operator>==|!=|<=|>=|!~|=|<|>|~|\(|\)|\[|\]|,|\.)
    | (?P<word>[A-Za-z_][\w-]*)
    )""",
    re.VERBOSE,
)
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None}
_WORDS = frozenset({"and", "or", "not", "in", "contains", *_LITERALS})
_COMPARISONS = frozenset({"==", "=", "!=", "<", "<=", ">", ">=", "~", "!~", "in", "contains"})
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class FilterError(OperatorError):
    """An expression that cannot be understood."""


class _Token(NamedTuple):
    kind: str  # number, string, operator, word, end
    text: str
    at: int


def parse_filter(text: str) -> Test:
    if len(text) > LENGTH_MAX:
        raise FilterError(f"the expression has {len(text):,} characters; at most {LENGTH_MAX:,} are read")
    parser = _Parser(text)
    found = parser.either(0)
    parser.end()
    return lambda record: _true(found(record))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0

    def end(self) -> None:
        if self._next.kind != "end":
            raise self._wrong("and, or, or the end")

    def either(self, depth: int) -> _Get:
        if depth > DEPTH_MAX:
            raise FilterError(f"the expression is nested more than {DEPTH_MAX} deep")
        found = self._both(depth)
        while self._takes("or"):
            found = _or(found, self._both(depth))
        return found

    def _both(self, depth: int) -> _Get:
        found = self._negated(depth)
        while self._takes("and"):
            found = _and(found, self._negated(depth))
        return found

    def _negated(self, depth: int) -> _Get:
        if depth > DEPTH_MAX:
            raise FilterError(f"the expression is nested more than {DEPTH_MAX} deep")
        if self._takes("not"):
            inner = self._negated(depth + 1)
            return lambda record: not _true(inner(record))
        return self._comparison(depth)

    def _comparison(self, depth: int) -> _Get:
        left = self._operand(depth)
        token = self._next
        if token.kind == "end" or token.kind == "string" or token.text not in _COMPARISONS:
            return left
        self._at += 1
        if token.text in ("~", "!~"):
            pattern = self._pattern()
            wanted = token.text == "~"
            return lambda record: _found(pattern, left(record)) is wanted
        return _compared(token.text, left, self._operand(depth))

    def _pattern(self) -> Pattern:
        token = self._next
        if token.kind != "string":
            raise self._wrong("a regular expression in quotes")
        self._at += 1
        try:
            return Pattern(_unquoted(token.text, raw=True))
        except ValueError as error:
            raise FilterError(f"{token.text} is not a regular expression in RE2's syntax: {error}") from None

    def _operand(self, depth: int) -> _Get:
        token = self._next
        self._at += 1
        if token.kind == "number":
            number = float(token.text) if any(letter in token.text for letter in ".eE") else int(token.text)
            return lambda record: number
        if token.kind == "string":
            string = _unquoted(token.text)
            return lambda record: string
        if token.kind == "word" and token.text in _LITERALS:
            literal = _LITERALS[token.text]
            return lambda record: literal
        if token.kind == "word" and token.text not in _WORDS:
            return self._path(token)
        if token.kind == "operator" and token.text == "(":
            found = self.either(depth + 1)
            self._needs(")")
            return found
        if token.kind == "operator" and token.text == "[":
            return self._list(depth)
        self._at -= 1
        raise self._wrong("a field, a number, a text in quotes or (")

    def _list(self, depth: int) -> _Get:
        parts: list[_Get] = []
        while not self._takes("]"):
            if parts:
                self._needs(",")
            parts.append(self._operand(depth + 1))
        return lambda record: [part(record) for part in parts]

    def _path(self, token: _Token) -> _Get:
        if token.text not in FIELDS:
            near = difflib.get_close_matches(token.text, FIELDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(FIELDS)}; put texts in quotes"
            raise FilterError(f"{token.text!r} is not a field of a record; {hint}")
        steps: list[str | int] = []
        while True:
            if self._takes("."):
                name = self._next
                if name.kind != "word":
                    raise self._wrong("a name after the dot")
                self._at += 1
                steps.append(name.text)
            elif self._takes("["):
                inside = self._next
                self._at += 1
                if inside.kind == "number" and inside.text.lstrip("-").isdecimal():
                    steps.append(int(inside.text))
                elif inside.kind == "string":
                    steps.append(_unquoted(inside.text))
                else:
                    self._at -= 1
                    raise self._wrong("a number or a name in quotes")
                self._needs("]")
            else:
                return _follow(token.text, tuple(steps))

    # ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _takes(self, text: str) -> bool:
        if self._next.kind in ("operator", "word") and self._next.text == text:
            self._at += 1
            return True
        return False

    def _needs(self, text: str) -> None:
        if not self._takes(text):
            raise self._wrong(repr(text))

    def _wrong(self, wanted: str) -> FilterError:
        token = self._next
        found = "it ends" if token.kind == "end" else f"{token.text!r} stands"
        return FilterError(f"{self._text!r}: {found} at {token.at + 1} where {wanted} is expected")


def _tokens(text: str) -> list[_Token]:
    found = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            raise FilterError(f"{text!r}: {text[start]!r} at {start + 1} means nothing here")
        found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    return [*found, _Token("end", "", len(text))]


def _unquoted(text: str, *, raw: bool = False) -> str:
    quote = text[0]
    if raw:  # the backslashes are the regular expression's
        return text[1:-1].replace("\\" + quote, quote)
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])


# ── what the parts of an expression do ───────────────────────────────────────────────────────────────────────────────


def _true(value: Any) -> bool:
    return bool(value)


def _or(left: _Get, right: _Get) -> _Get:
    return lambda record: _true(left(record)) or _true(right(record))


def _and(left: _Get, right: _Get) -> _Get:
    return lambda record: _true(left(record)) and _true(right(record))


def _follow(field: str, steps: tuple[str | int, ...]) -> _Get:
    def get(record: Record) -> Any:
        value = record.get(field)
        for step in steps:
            if isinstance(step, str) and isinstance(value, Mapping):
                value = value.get(step)
            elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
                value = value[step]
            else:
                return None
        return value

    return get


def _found(pattern: Pattern, value: Any) -> bool:
    if value is None or isinstance(value, Mapping | list):
        return False
    return pattern.found_in(value if isinstance(value, str) else _text(value))


def _text(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _compared(operator: str, left: _Get, right: _Get) -> _Get:
    if operator in ("==", "="):
        return lambda record: _equal(left(record), right(record))
    if operator == "!=":
        return lambda record: not _equal(left(record), right(record))
    if operator == "in":
        return lambda record: _contains(right(record), left(record))
    if operator == "contains":
        return lambda record: _contains(left(record), right(record))
    return lambda record: _ordered(operator, left(record), right(record))


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) is not isinstance(right, bool):
        return False  # in Python, 1 == True
    return bool(left == right)


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    if isinstance(whole, Mapping):
        return isinstance(part, str) and part in whole
    return isinstance(whole, list) and any(_equal(each, part) for each in whole)


def _ordered(operator: str, left: Any, right: Any) -> bool:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        return False
    if operator == "<":
        return bool(left < right)
    if operator == "<=":
        return bool(left <= right)
    return bool(left > right) if operator == ">" else bool(left >= right)
