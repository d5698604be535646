"""Offsets that one request commits, in slices: each is a batch of its own in the journal, and others are served between
two of them. The request is answered when the last one is written."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final

from headrace.broker.handlers.offset_topics import Sorted
from headrace.broker.handlers.soon import Body, Slices, Soon
from headrace.coordinator.offsets.requests import AnswerCodes, add_by_topic
from headrace.coordinator.offsets.store import Entry

OFFSETS_PER_SLICE: Final = 40

Told = tuple[str, int, int]  # topic, partition, error code


class CommitSlices:
    """What the group said of each slice."""

    __slots__ = ("_slices",)

    def __init__(self, found: Sorted, with_ids: Callable[[list[Any]], list[Any]] | None = None) -> None:
        self._slices = Slices(partial(_body, found, with_ids))

    @property
    def soon(self) -> Soon:
        return self._slices.soon

    def expect(self, entries: Sequence[Entry]) -> AnswerCodes:
        """Who is told the codes of these."""
        told = self._slices.expect()
        return lambda codes: told([(name, at, code) for (name, at, _), code in zip(entries, codes, strict=True)])

    def refuse(self, entries: Sequence[Entry], code: int) -> None:
        self._slices.add([(name, at, code) for name, at, _ in entries])

    def end(self) -> None:
        self._slices.end()


def _body(
    found: Sorted, with_ids: Callable[[list[Any]], list[Any]] | None, slices: list[Sequence[Told]]
) -> Generator[None, None, Body]:
    topics: list[dict[str, Any]] = []
    for told in slices:
        add_by_topic(topics, told)
        yield
    answered = topics if with_ids is None else with_ids(topics)
    return {"topics": (yield from found.merge_in_steps(answered))}
