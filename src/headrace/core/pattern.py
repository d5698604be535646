"""Regular expressions in RE2's syntax that take one step a character, whatever the expression is.

An expression of a client must never be able to hold up the broker, nor one of a user the tool; Python's own `re` goes
back and tries again, and can be made to do so forever by one line. Here the text is run through the set of all states
that the expression can be in. The sets that were met are remembered, so that most steps are one look-up.
"""

import itertools

from headrace.core.pattern_characters import UNICODE_WORD, WORD
from headrace.core.pattern_syntax import Alternatives, Assertion, Chars, Node, Repeat, Sequence, parse

LENGTH_MAX = 4096
STATES_MAX = 2_000  # what repeats of repeats may grow to: a text takes no more than that many looks a character
PARTS_MAX = 4 * STATES_MAX
STEPS_KEPT_MAX = 10_000

_EDGE, _WORD, _LINE, _OTHER = range(4)  # what stands before or after a place: nothing, a character of a word, a newline


class _Place:
    """The states before any condition was looked at, what stands before them, and where each character leads."""

    __slots__ = ("before", "decided", "following", "states")

    def __init__(self, states: frozenset[int], before: int, decided: bool | None) -> None:
        self.states = states
        self.before = before
        self.decided = decided  # whether it is found, if no further character can change that
        self.following: dict[str, _Place] = {}


class Pattern:
    """Raises ValueError, in RE2's words, for an expression that is malformed or too large."""

    def __init__(self, text: str, *, unicode: bool = False) -> None:
        if len(text) > LENGTH_MAX:
            raise ValueError(f"it is longer than {LENGTH_MAX} characters")
        tree = parse(text, unicode=unicode)
        self._word = UNICODE_WORD if unicode else WORD
        self._consumes: list[Chars | None] = []  # per state: on which characters it goes on
        self._targets: list[int] = []  # and where to
        self._jumps: list[tuple[tuple[str, int], ...]] = []  # per state: on which conditions it goes where at once
        self._parts = 0
        self._end = self._state()
        self._begin = self._build(tree, self._end)
        self._needed = _longest_literal(tree)
        self._kept = 0
        self._found = _Place(frozenset(), _OTHER, True)
        self._whole: dict[tuple[frozenset[int], int], _Place] = {}
        self._within: dict[tuple[frozenset[int], int], _Place] = {}

    def matches(self, text: str) -> bool:
        """The whole of it."""
        return self._run(text, self._whole)

    def found_in(self, text: str) -> bool:
        """Any part of it."""
        return self._needed in text and self._run(text, self._within)

    def _run(self, text: str, places: dict[tuple[frozenset[int], int], _Place]) -> bool:
        place = self._place(frozenset((self._begin,)), _EDGE, places)
        for character in text:
            place = place.following.get(character) or self._step(place, character, places)
            if place.decided is not None:
                return place.decided
        return self._end in self._reached(place, _EDGE)

    def _step(self, place: _Place, character: str, places: dict[tuple[frozenset[int], int], _Place]) -> _Place:
        kind = _WORD if character in self._word else _LINE if character == "\n" else _OTHER
        reached = self._reached(place, kind)
        if places is self._within and self._end in reached:
            found = self._found
        else:
            states = {self._begin} if places is self._within else set()
            for state in reached:
                move = self._consumes[state]
                if move is not None and character in move.characters:
                    states.add(self._targets[state])
            found = self._place(frozenset(states), kind, places)
        if self._kept >= STEPS_KEPT_MAX:
            self._kept = 0
            for each in (*self._whole.values(), *self._within.values()):
                each.following.clear()
            self._whole.clear()
            self._within.clear()
        self._kept += 1
        place.following[character] = found
        return found

    def _place(self, states: frozenset[int], before: int, places: dict[tuple[frozenset[int], int], _Place]) -> _Place:
        place = places.get((states, before))
        if place is None:
            place = places[states, before] = _Place(states, before, None if states else False)
        return place

    def _reached(self, place: _Place, after: int) -> set[int]:
        reached, waiting = set(place.states), list(place.states)
        while waiting:
            for condition, target in self._jumps[waiting.pop()]:
                if target not in reached and _holds(condition, place.before, after):
                    reached.add(target)
                    waiting.append(target)
        return reached

    def _state(self, jumps: tuple[tuple[str, int], ...] = (), consumes: Chars | None = None, target: int = 0) -> int:
        if len(self._jumps) >= STATES_MAX:
            raise ValueError(f"its repeats make more than {STATES_MAX} states")
        self._jumps.append(jumps)
        self._consumes.append(consumes)
        self._targets.append(target)
        return len(self._jumps) - 1

    def _build(self, node: Node, then: int) -> int:
        """The state from which the node is matched and `then` follows. Built from the end, so that `then` is known."""
        self._parts += 1  # counted apart from the states: repeats of nothing make none
        if self._parts > PARTS_MAX:
            raise ValueError(f"its repeats make more than {PARTS_MAX} parts")
        if isinstance(node, Chars):
            return self._state(consumes=node, target=then)
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


def _holds(condition: str, before: int, after: int) -> bool:
    if condition == "":
        return True
    if condition == "start":
        return before == _EDGE
    if condition == "end":
        return after == _EDGE
    if condition == "line start":
        return before in (_EDGE, _LINE)
    if condition == "line end":
        return after in (_EDGE, _LINE)
    at_boundary = (before == _WORD) != (after == _WORD)
    return at_boundary if condition == "boundary" else not at_boundary


def _longest_literal(tree: Node) -> str:
    """What must stand in every text that matches: looking for it is a hundred times quicker, and mostly enough."""
    longest = run = ""
    for part in tree.parts if isinstance(tree, Sequence) else (tree,):
        characters = part.characters if isinstance(part, Chars) else None
        if isinstance(characters, frozenset) and len(characters) == 1:
            run += next(iter(characters))
            longest = max(longest, run, key=len)
        elif not isinstance(part, Assertion):
            run = ""
    return longest
