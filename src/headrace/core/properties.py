"""Reads Java's `.properties` format, as `server.properties` is written in.

Text in, `Property` entries out, in the order of the file, with the line that each begins on, so that a
message can point at it. It knows no setting by name and never guesses: what Java reads as a key is a key.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.core.errors import OperatorError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    key: str
    value: str
    line: int


def read_text(path: str, kind: str) -> str:
    """The text of a file, in UTF-8 or in Latin-1, which Java takes such a file to be; `kind` is what a complaint asks
    for, such as "a server.properties file"."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OperatorError(f"{path}: {reason}; give the path of {kind}") from error
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def parse_properties(text: str, source: str) -> list[Property]:
    """All entries of `text`; a key that stands twice is there twice, and the last one counts, as in Java."""
    found = []
    for line, logical in _logical_lines(text):
        key, value = _split(logical)
        where = f"{source}:{line}"
        found.append(Property(_unescape(key, where), _unescape(value, where), line))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Joins lines that end in an odd number of backslashes; leaves out comments and empty lines."""
    pieces: list[str] = []
    first = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        piece = raw.lstrip(_BLANK)
        if not pieces:
            if not piece or piece[0] in "#!":
                continue
            first = number
        if (len(piece) - len(piece.rstrip("\\"))) % 2:
            pieces.append(piece[:-1])
            continue
        pieces.append(piece)
        yield first, "".join(pieces)
        pieces = []
    if pieces:
        yield first, "".join(pieces)


def _split(line: str) -> tuple[str, str]:
    """The key ends at the first `=`, `:` or blank that no backslash guards."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char != "u":
            out.append(_ESCAPES.get(char, char))
            continue
        digits = text[at : at + 4]
        if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise OperatorError(f"{where}: \\u{digits} is not an escape; \\u takes four hexadecimal digits")
        out.append(chr(int(digits, 16)))
        at += 4
    # Java's escapes are UTF-16 units: a pair of them is one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
