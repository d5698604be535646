"""Regular expressions over topic names, as a consumer may subscribe with them: RE2's syntax, whole names only.

A client's expression must never be able to hold up the broker, so Python's own backtracking `re` is not used: names
are run through the set of all states that the expression can be in, which takes one step a character whatever the
expression is. The sets that were met are remembered, so that most steps are one look-up.
"""

import itertools

from headrace.coordinator.topic_pattern_syntax import (
    ALPHABET,
    WORD,
    Alternatives,
    Assertion,
    Chars,
    Node,
    Repeat,
    Sequence,
    parse,
)
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_REGULAR_EXPRESSION

PATTERN_LENGTH_MAX = 4096
STATES_MAX = 2_000  # what repeats of repeats may grow to: a name takes no more than that many looks a character
PARTS_MAX = 4 * STATES_MAX
STEPS_KEPT_MAX = 10_000

_EDGE, _WORD, _OTHER = range(3)  # what stands before or after a place: nothing, a character of a word, another one
_KIND = {each: _WORD if each in WORD else _OTHER for each in ALPHABET}
_Place = tuple[frozenset[int], int]  # the states before any condition was looked at, and what stands before them


class TopicPattern:
    """Raises PeerError for an expression that is malformed or too large."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > PATTERN_LENGTH_MAX:
            raise refused(text[:60] + "…", f"it is longer than {PATTERN_LENGTH_MAX} characters")
        try:
            tree = parse(text)
        except ValueError as error:
            raise refused(text, str(error)) from None
        self._consumes: list[tuple[frozenset[str], int] | None] = []  # per state: on which characters it goes where
        self._jumps: list[tuple[tuple[str, int], ...]] = []  # per state: on which conditions it goes where at once
        self._parts = 0
        self._end = self._state()
        self._start: _Place = (frozenset((self._build(tree, self._end),)), _EDGE)
        self._steps: dict[tuple[_Place, str], _Place] = {}

    def matches(self, name: str) -> bool:
        place = self._start
        for character in name:
            step = self._steps.get((place, character))
            if step is None:
                step = self._step(place, character)
            place = step
            if not place[0]:
                return False
        return self._end in self._reached(place, _EDGE)

    def _step(self, place: _Place, character: str) -> _Place:
        kind = _KIND.get(character, _OTHER)
        states = set()
        for state in self._reached(place, kind):
            move = self._consumes[state]
            if move is not None and character in move[0]:
                states.add(move[1])
        if len(self._steps) >= STEPS_KEPT_MAX:
            self._steps.clear()
        self._steps[place, character] = found = (frozenset(states), kind)
        return found

    def _reached(self, place: _Place, after: int) -> set[int]:
        states, before = place
        reached, waiting = set(states), list(states)
        while waiting:
            for condition, target in self._jumps[waiting.pop()]:
                if target not in reached and _holds(condition, before, after):
                    reached.add(target)
                    waiting.append(target)
        return reached

    def _state(
        self, jumps: tuple[tuple[str, int], ...] = (), consumes: tuple[frozenset[str], int] | None = None
    ) -> int:
        if len(self._jumps) >= STATES_MAX:
            raise refused(self.text, f"its repeats make more than {STATES_MAX} states")
        self._jumps.append(jumps)
        self._consumes.append(consumes)
        return len(self._jumps) - 1

    def _build(self, node: Node, then: int) -> int:
        """The state from which the node is matched and `then` follows. Built from the end, so that `then` is known."""
        self._parts += 1  # counted apart from the states: repeats of nothing make none
        if self._parts > PARTS_MAX:
            raise refused(self.text, f"its repeats make more than {PARTS_MAX} parts")
        if isinstance(node, Chars):
            return self._state(consumes=(node.characters, then))
        if isinstance(node, Assertion):
            return self._state(((node.condition, then),))
        if isinstance(node, Sequence):
            for each in reversed(node.parts):
                then = self._build(each, then)
            return then
        if isinstance(node, Alternatives):
            return self._state(tuple(("", self._build(each, then)) for each in node.choices))
        return self._build_repeat(node, then)

    def _build_repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self._state()
            body = self._build(node.part, loop)
            self._jumps[loop] = (("", body), ("", then))
            then = loop
        else:
            for _ in range(node.most - node.least):
                then = self._state((("", self._build(node.part, then)), ("", then)))
        for _ in itertools.repeat(None, node.least):
            then = self._build(node.part, then)
        return then


def refused(text: str, why: str) -> PeerError:
    return PeerError(
        INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}."
    )


def _holds(condition: str, before: int, after: int) -> bool:
    if condition == "":
        return True
    if condition == "start":
        return before == _EDGE
    if condition == "end":
        return after == _EDGE
    at_boundary = (before == _WORD) != (after == _WORD)
    return at_boundary if condition == "boundary" else not at_boundary
