"""Answers that come when others have had their say: mostly at once, and only if not there is a `Later` for the
connection to wait for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, cast

from headrace.broker.api import Later
from headrace.broker.steps import Steps
from headrace.coordinator.journal import AllOf

Body = Mapping[str, Any]


class Soon:
    """Called with a body: a mapping, bytes where a handler keeps answers encoded, or steps that make it."""

    __slots__ = ("_body", "_later")

    def __init__(self) -> None:
        self._body: Any = None
        self._later: Later | None = None

    def __call__(self, body: Any) -> None:
        if self._later is None:
            self._body = body
        else:
            self._later.complete(body)

    def steps(self) -> Generator[None, None, Body | Later]:
        """The result, at the end of a handler that runs in steps itself."""
        found: Any = self.result()
        if isinstance(found, Steps):
            # What coordinators answer waits for nothing more.
            found = yield from cast("Generator[None, None, Body | Later]", found.body)
        return cast("Body | Later", found)

    def result(self) -> Body | Later | Steps:
        if self._body is not None:
            found: Body | Steps = self._body
            return found
        self._later = Later()
        return self._later


class Slices:
    """A request that is done in slices: answered with what `body` makes of all their answers, when the last is told."""

    __slots__ = ("_told", "_waiting", "soon")

    def __init__(self, body: Callable[[list[Any]], Generator[None, None, Body]]) -> None:
        soon = Soon()
        told: list[Any] = []
        self.soon = soon
        self._told = told
        self._waiting = AllOf(lambda _: soon(Steps(body(told))))

    def expect(self) -> Callable[[Any], None]:
        """Who is told the answer of the next slice."""
        place = len(self._told)
        self._told.append(None)
        self._waiting.expect()

        def told(answer: Any) -> None:
            self._told[place] = answer
            self._waiting.told(None)

        return told

    def add(self, answer: Any) -> None:
        """Of a slice that nobody has to be asked for."""
        self._told.append(answer)

    def end(self) -> None:
        """The last one was given."""
        self._waiting.told(None)
