"""Regular expressions that clients send: over topic names, and over transactional ids. Whole names only."""

from headrace.core.errors import PeerError
from headrace.core.pattern import LENGTH_MAX, Pattern
from headrace.protocol.error_codes import INVALID_REGULAR_EXPRESSION

SHOWN_MAX = 60


class TopicPattern:
    """Raises PeerError for an expression that is malformed or too large."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._pattern = Pattern(text)
        except ValueError as error:
            shown = text if len(text) <= LENGTH_MAX else text[:SHOWN_MAX] + "…"
            message = f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {error}."
            raise PeerError(INVALID_REGULAR_EXPRESSION, message) from None

    def matches(self, name: str) -> bool:
        return self._pattern.matches(name)
