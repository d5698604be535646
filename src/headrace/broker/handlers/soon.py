"""An answer that mostly comes at once: only if it does not is there a `Later` for the connection to wait for."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, cast

from headrace.broker.api import Later
from headrace.broker.steps import Steps

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
            found = yield from found.body
        return cast("Body | Later", found)

    def result(self) -> Body | Later | Steps:
        if self._body is not None:
            found: Body | Steps = self._body
            return found
        self._later = Later()
        return self._later
