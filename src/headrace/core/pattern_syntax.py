"""The syntax of RE2's regular expressions, read into a tree.

Only what tells whether something matches is kept: whether a repeat is greedy, and what a group captures, is not. What
RE2 refuses is refused with RE2's words, as a ValueError: look-around and back-references first of all.
"""

import re
from collections.abc import Container
from typing import NamedTuple

from headrace.core.pattern_characters import (
    ANY,
    NO_NEWLINE,
    Characters,
    Either,
    Folded,
    Not,
    Range,
    perl_sets,
    posix_set,
    unicode_set,
)

REPEAT_MAX = 1000
DEPTH_MAX = 200


class Chars(NamedTuple):
    characters: Characters


class Assertion(NamedTuple):
    condition: str  # start, end, line start, line end, boundary or inside


class Sequence(NamedTuple):
    parts: "tuple[Node, ...]"


class Alternatives(NamedTuple):
    choices: "tuple[Node, ...]"


class Repeat(NamedTuple):
    part: "Node"
    least: int
    most: int | None


Node = Chars | Assertion | Sequence | Alternatives | Repeat

_ASSERTIONS = {"A": "start", "z": "end", "b": "boundary", "B": "inside"}
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_COUNTS = re.compile(r"\{(\d+)(,(\d*))?\}")
_NAMED = re.compile(r"\(\?P?<([^>]*)>")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")


def parse(text: str, *, unicode: bool = False) -> Node:
    """With `unicode`, \\d, \\w and \\s are those of all scripts, as in Python; otherwise of ASCII, as in RE2."""
    reader = _Reader(text, perl_sets(unicode=unicode))
    tree = reader.alternatives(0)
    if reader.at < len(text):
        raise ValueError("unexpected )")
    return tree


class _Reader:
    def __init__(self, text: str, perl: dict[str, Container[str]]) -> None:
        self.text = text
        self.at = 0
        self.perl = perl
        self.flags: frozenset[str] = frozenset()  # i: ignore case, m: lines have starts and ends, s: . takes newlines
        self.names: set[str] = set()

    def alternatives(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise ValueError("expression nests too deeply")
        choices = [self.sequence(depth)]
        while self.text.startswith("|", self.at):
            self.at += 1
            choices.append(self.sequence(depth))
        return choices[0] if len(choices) == 1 else Alternatives(tuple(choices))

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            atom = self.atom(depth)
            if atom is not None:
                repeat = self.repeat(first=True)
                parts.append(atom if repeat is None else Repeat(atom, *repeat))
        return Sequence(tuple(parts))

    def repeat(self, *, first: bool) -> tuple[int, int | None] | None:
        """How often the atom before may stand, if that is said. Saying it twice is refused, as RE2 does."""
        found: tuple[int, int | None]
        symbol = self.text[self.at : self.at + 1]
        counts = _COUNTS.match(self.text, self.at)
        if symbol and symbol in "*+?":
            found = {"*": (0, None), "+": (1, None), "?": (0, 1)}[symbol]
            self.at += 1
        elif counts:
            least = int(counts[1]) if len(counts[1]) < 5 else REPEAT_MAX + 1
            most = least if counts[2] is None else None if counts[3] == "" else int(counts[3][:5])
            if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
                raise ValueError("invalid repeat count")
            found = (least, most)
            self.at = counts.end()
        else:
            return None
        if not first:
            raise ValueError("invalid nested repetition operator")
        if self.text.startswith("?", self.at):
            self.at += 1
        self.repeat(first=False)
        return found

    def atom(self, depth: int) -> Node | None:
        symbol = self.text[self.at]
        if symbol == "(":
            return self.group(depth)
        if symbol == "[":
            return self.character_class()
        if symbol in "*+?" or _COUNTS.match(self.text, self.at):
            raise ValueError("missing argument to repetition operator")
        if symbol == "\\":
            return self.escape()
        self.at += 1
        if symbol == ".":
            return Chars(ANY if "s" in self.flags else NO_NEWLINE)
        if symbol in "^$":
            return Assertion(("line " if "m" in self.flags else "") + ("start" if symbol == "^" else "end"))
        return self.literal(symbol)

    def literal(self, symbol: str) -> Chars:
        return Chars(self.folded(frozenset(symbol)))

    def folded(self, characters: Characters) -> Characters:
        return Folded(characters) if "i" in self.flags else characters

    def group(self, depth: int) -> Node | None:
        before = self.flags
        if self.text.startswith("(?", self.at):
            named = _NAMED.match(self.text, self.at)
            flags = _FLAGS.match(self.text, self.at)
            if self.text.startswith(("(?P<", "(?<"), self.at):
                if named is None or not re.fullmatch(r"\w+", named[1], re.ASCII):
                    raise ValueError("invalid named capture")
                if named[1] in self.names:
                    raise ValueError("duplicate capture group name")
                self.names.add(named[1])
                self.at = named.end()
            elif flags and set(flags[1] + (flags[2] or "")) <= set("imsU"):
                self.at = flags.end()
                self.flags = (before | set(flags[1])) - set(flags[2] or "")
                if flags[3] == ")":
                    return None  # from here to the end of the group around it
            else:
                raise ValueError("invalid or unsupported Perl syntax")
        else:
            self.at += 1
        inner = self.alternatives(depth + 1)
        if not self.text.startswith(")", self.at):
            raise ValueError("missing closing )")
        self.at += 1
        self.flags = before
        return inner

    def escape(self) -> Node:
        following = self.text[self.at + 1 : self.at + 2]
        if following in _ASSERTIONS:
            self.at += 2
            return Assertion(_ASSERTIONS[following])
        if following == "Q":
            end = self.text.find("\\E", self.at + 2)
            quoted = self.text[self.at + 2 : None if end < 0 else end]
            self.at = len(self.text) if end < 0 else end + 2
            return Sequence(tuple(self.literal(each) for each in quoted))
        named = self.named_set()
        return Chars(named) if named is not None else self.literal(self.escaped_character())

    def named_set(self) -> Characters | None:
        """\\d, \\W, \\pL, \\p{Lu} and their like; None if something else is escaped here."""
        name = self.text[self.at + 1 : self.at + 2]
        if name.lower() in self.perl and name:
            self.at += 2
            characters = self.perl[name.lower()]
            return characters if name.islower() else Not(characters)
        if name not in ("p", "P"):
            return None
        match = re.compile(r"\\[pP](?:\{(\^?)(\w+)\}|(\w))").match(self.text, self.at)
        if match is None:
            raise ValueError("invalid character class range")
        self.at = match.end()
        found = unicode_set(match[2] or match[3])
        return found if (name == "p") != bool(match[1]) else Not(found)

    def escaped_character(self) -> str:
        if self.at + 1 >= len(self.text):
            raise ValueError("trailing backslash at end of expression")
        octal = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})").match(self.text, self.at)
        hexadecimal = re.compile(r"\\x(?:\{([0-9a-fA-F]{1,8})\}|([0-9a-fA-F]{2}))").match(self.text, self.at)
        if octal:
            self.at = octal.end()
            return chr(int(octal[1], 8))
        if hexadecimal and int(hexadecimal[1] or hexadecimal[2], 16) <= 0x10FFFF:
            self.at = hexadecimal.end()
            return chr(int(hexadecimal[1] or hexadecimal[2], 16))
        symbol = self.text[self.at + 1]
        self.at += 2
        if symbol in _CONTROLS:
            return _CONTROLS[symbol]
        if symbol.isascii() and not symbol.isalnum():
            return symbol
        raise ValueError("invalid escape sequence")

    def character_class(self) -> Chars:
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        found: list[Characters] = []
        first = True
        while first or not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                raise ValueError("missing closing ]")
            found.append(self.class_item())
            first = False
        self.at += 1
        characters = self.folded(found[0] if len(found) == 1 else Either(tuple(found)))
        return Chars(Not(characters) if negated else characters)

    def class_item(self) -> Characters:
        if self.text.startswith("[:", self.at):
            end = self.text.find(":]", self.at)
            if end > 0:
                return self.posix_set(end)
        if self.text[self.at] == "\\":
            named = self.named_set()
            if named is not None:
                return named
        low = self.class_character()
        if not self.text.startswith("-", self.at) or self.text.startswith("-]", self.at):
            return frozenset(low)
        self.at += 1
        if self.at >= len(self.text):
            raise ValueError("missing closing ]")
        high = self.class_character()
        if high < low:
            raise ValueError("invalid character class range")
        return Range(low, high)

    def class_character(self) -> str:
        if self.text[self.at] == "\\":
            return self.escaped_character()
        self.at += 1
        return self.text[self.at - 1]

    def posix_set(self, end: int) -> Characters:
        name = self.text[self.at + 2 : end]
        self.at = end + 2
        found = posix_set(name.removeprefix("^"))
        return Not(found) if name.startswith("^") else found
