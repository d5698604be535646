"""A line to words, and words to options, as ZooKeeper's shell does it (with Apache Commons CLI).

Options may stand anywhere, several in one word (`-sw`), a value behind its option with or without a space. The errors
begin with the Java class that names them, since that is what people and scripts have seen for years.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_WORD: Final = re.compile(r"""\s*([^"']\S*|"[^"]*"|'[^']*')\s*""")
_QUOTED: Final = re.compile(r"""^(["'])(.*)(\1)$""")
_NUMBER: Final = re.compile(r"-?\d+(\.\d*)?$")
_PACKAGE: Final = "org.apache.commons.cli."
_PADDING: Final = 3


class ShellError(Exception):
    """A command that failed: what is printed, and the exit code."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Option(NamedTuple):
    about: str
    takes_value: bool = False


class Options(NamedTuple):
    """Of one command: by letter, a few by a word. Of `one_of` at most one may be given, and one must if `required`."""

    known: Mapping[str, Option] = {}
    one_of: str = ""
    required: bool = False


class Given(NamedTuple):
    args: list[str]  # the command's name first
    options: dict[str, str]

    def has(self, letter: str) -> bool:
        return letter in self.options


def split_words(line: str) -> list[str]:
    words = []
    for match in _WORD.finditer(line):
        word = match.group(1)
        words.append(word[1:-1] if _QUOTED.match(word) else word)
    return words


def parse_options(options: Options, words: Sequence[str]) -> Given:
    given = Given([], {})
    waiting = ""  # the option whose value comes next
    plain = False  # after --
    for word in words:
        if plain:
            given.args.append(word)
        elif waiting and _is_value(options, word):
            given.options[waiting] = _unquoted(word)
            waiting = ""
        elif word == "--":
            plain = True
        elif word.startswith("--") or (word.startswith("-") and len(word) > 1):
            _demand_value(waiting)
            waiting = _read_option(options, given, word)
        else:
            given.args.append(word)
    _demand_value(waiting)
    if options.required and not any(letter in given.options for letter in options.one_of):
        listed = ", ".join(f"-{letter} {options.known[letter].about}" for letter in options.one_of)
        raise ShellError(f"{_PACKAGE}MissingOptionException: Missing required option: [{listed}]")
    return given


def _is_value(options: Options, word: str) -> bool:
    if not word.startswith("-") or len(word) == 1 or _NUMBER.match(word):
        return True
    return word[1:].partition("=")[0] not in options.known and word[1] not in options.known


def _demand_value(waiting: str) -> None:
    if waiting:
        raise ShellError(f"{_PACKAGE}MissingArgumentException: Missing argument for option: {waiting}")


def _read_option(options: Options, given: Given, word: str) -> str:
    """The option that is still without its value, if it takes one."""
    letters = word[1:]
    name, equals, value = letters.partition("=")
    if equals and name in options.known and options.known[name].takes_value:
        _choose(options, given, name, _unquoted(value))
        return ""
    if letters in options.known:
        _choose(options, given, letters, "")
        return letters if options.known[letters].takes_value else ""
    for at, letter in enumerate(letters):
        if letter not in options.known:
            raise ShellError(f"{_PACKAGE}UnrecognizedOptionException: Unrecognized option: {word}", 1)
        _choose(options, given, letter, "")
        if options.known[letter].takes_value:
            rest = letters[at + 1 :]
            if not rest:
                return letter
            given.options[letter] = _unquoted(rest)
            return ""
    return ""


def _choose(options: Options, given: Given, letter: str, value: str) -> None:
    for other in options.one_of if letter in options.one_of else "":
        if other != letter and other in given.options:
            raise ShellError(
                f"{_PACKAGE}AlreadySelectedException: The option '{letter}' was specified but an option from this group"
                f" has already been selected: '{other}'"
            )
    given.options[letter] = value


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def option_lines(options: Options) -> str:
    """Each option with what it is for, as a usage text ends."""
    heads = {
        letter: f" -{letter}" + (" <arg>" if option.takes_value else "") for letter, option in options.known.items()
    }
    width = max(map(len, heads.values())) + _PADDING
    ordered = sorted(options.known.items(), key=lambda item: item[0].lower())
    return "".join(f"{heads[letter]:<{width}}{option.about}\n" for letter, option in ordered)
