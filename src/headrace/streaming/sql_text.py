"""What is surely wrong with a piece of Spark SQL, found without Spark: quotes and brackets that do not close.

A JVM takes seconds to start; a forgotten parenthesis should not. Only Spark's own parser knows its grammar, and no
other parser is as wide, so everything else is left to it. Never refuse here what Spark accepts: a text with anything in
it that this module does not read exactly as Spark does has no problem here.
"""

import re

_CLOSES = {")": "(", "]": "["}
# Comments in brackets nest and may be hints, dollar signs may quote, and in a raw string a backslash means itself.
_DOUBTFUL = re.compile(r"/\*|\$")
_RAW_STRING = re.compile(r"[rR]['\"]")


def problem(text: str) -> str | None:
    """In words, with the place in the text, counted from 1; None if there is none, or if only Spark can tell."""
    if _DOUBTFUL.search(text) or ("\\" in text and _RAW_STRING.search(text)):
        return None
    opened: list[tuple[str, int]] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter in "'\"`":
            end = _quoted_end(text, at)
            if end is None:
                return f"the {letter} at character {at + 1} is not closed"
            at = end
            continue
        if text.startswith("--", at):
            at = _comment_end(text, at)
            continue
        if letter in "([":
            opened.append((letter, at))
        elif letter in ")]":
            if not opened:
                return f"the {letter} at character {at + 1} closes nothing"
            before, place = opened.pop()
            if before != _CLOSES[letter]:
                return f"the {letter} at character {at + 1} does not close the {before} at character {place + 1}"
        at += 1
    if opened:
        before, place = opened[-1]
        return f"the {before} at character {place + 1} is not closed"
    return None


def _quoted_end(text: str, begin: int) -> int | None:
    """Behind the closing quote. A doubled quote stands for itself; so does one behind a backslash, but in a name."""
    quote = text[begin]
    at = begin + 1
    while at < len(text):
        if text[at] == "\\" and quote != "`":
            at += 2
        elif text[at] != quote:
            at += 1
        elif text.startswith(quote, at + 1):
            at += 2
        else:
            return at + 1
    return None


def _comment_end(text: str, begin: int) -> int:
    """The end of the line, unless a backslash stands before it."""
    at = begin
    while at < len(text) and text[at] not in "\r\n":
        at += 2 if text.startswith("\\\n", at) else 1
    return at
