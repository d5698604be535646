"""Offsets that one request commits, in slices: each is a batch of its own in the journal, and others are served between
two of them. The request is answered when the last one is written."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from headrace.broker.handlers.offset_topics import Sorted
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.steps import Steps
from headrace.coordinator.offsets.requests import AnswerCodes, add_by_topic
from headrace.coordinator.offsets.store import Entry

OFFSETS_PER_SLICE: Final = 40

Told = tuple[str, int, int]  # topic, partition, error code


class CommitSlices:
    """What the group said of each slice."""

    __slots__ = ("_found", "_left", "_slices", "_with_ids", "soon")

    def __init__(self, found: Sorted, with_ids: Callable[[list[Any]], list[Any]] | None = None) -> None:
        self.soon = Soon()
        self._found = found
        self._with_ids = with_ids
        self._left = 1  # until the last slice was given
        self._slices: list[Sequence[Told]] = []

    def expect(self, entries: Sequence[Entry]) -> AnswerCodes:
        """Who is told the codes of these."""
        place = len(self._slices)
        self._slices.append(())
        self._left += 1

        def told(codes: list[int]) -> None:
            self._slices[place] = [(name, at, code) for (name, at, _), code in zip(entries, codes, strict=True)]
            self.end()

        return told

    def refuse(self, entries: Sequence[Entry], code: int) -> None:
        self._slices.append([(name, at, code) for name, at, _ in entries])

    def end(self) -> None:
        """One slice is told, or the last one was given."""
        self._left -= 1
        if self._left == 0:
            self.soon(Steps(self._body()))

    def _body(self) -> Generator[None, None, Body]:
        topics: list[dict[str, Any]] = []
        for told in self._slices:
            add_by_topic(topics, told)
            yield
        answered = topics if self._with_ids is None else self._with_ids(topics)
        return {"topics": (yield from self._found.merge_in_steps(answered))}
