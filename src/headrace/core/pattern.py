"""Regular expressions of clients and users, matched by RE2 in time that is linear in the text.

An expression of a client must never be able to hold up the broker, nor one of a user the tool; Python's own `re` can be
made to run forever by one line. Kafka's brokers use RE2J, so a refusal has RE2J's words.
"""

import re2

LENGTH_MAX = 4096
MEMORY_BYTES_MAX = 1 << 20  # of a compiled expression, and of the states that it remembers

_WORDS_OF_RE2J = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid character class": "invalid character class range",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
}


class Pattern:
    """Raises ValueError for an expression that is malformed or too large."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise ValueError(f"it has {len(text):,} characters, more than {LENGTH_MAX:,}")
        options = re2.Options()
        options.max_mem = MEMORY_BYTES_MAX
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2.compile(_utf8(text), options)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace").partition(": ")[0]
            raise ValueError(_WORDS_OF_RE2J.get(reason, reason)) from None

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text."""
        return self._compiled.fullmatch(_utf8(text)) is not None

    def found_in(self, text: str) -> bool:
        """Whether it matches any part of the text."""
        return self._compiled.search(_utf8(text)) is not None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # JSON can name half of a surrogate pair, which UTF-8 cannot
