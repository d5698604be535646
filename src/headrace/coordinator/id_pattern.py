"""The regular expression by which ListTransactions chooses transactional ids: whole ids only.

It must not be able to hold up the broker. Ids of the characters that topics have, which is nearly all, go through
`TopicPattern`, which takes one step a character. That knows no other characters; for ids that have some, Python's own
`re` is used where it cannot run away: no groups (so no repeat of a repeat), few repeats, no long ids.
"""

import re

from headrace.coordinator.topic_pattern import TopicPattern, refused
from headrace.coordinator.topic_pattern_syntax import ALPHABET

REPEATS_MAX = 2
ID_LENGTH_MAX = 1_000


class IdPattern:
    """Raises PeerError for an expression that is malformed, or too large."""

    def __init__(self, text: str) -> None:
        self._pattern = TopicPattern(text)
        self._plain: re.Pattern[str] | None = None
        if "(" not in text and sum(map(text.count, "*+?{")) <= REPEATS_MAX:
            try:
                self._plain = re.compile(text)
            except re.error as error:
                raise refused(text, str(error)) from None

    def matches(self, transactional_id: str) -> bool:
        if ALPHABET.issuperset(transactional_id):
            return self._pattern.matches(transactional_id)
        if self._plain is None or len(transactional_id) > ID_LENGTH_MAX:
            return False
        return self._plain.fullmatch(transactional_id) is not None
