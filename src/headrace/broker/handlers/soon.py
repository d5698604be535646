"""An answer that mostly comes at once: only if it does not is there a `Later` for the connection to wait for."""

from collections.abc import Mapping
from typing import Any, cast

from headrace.broker.api import Later

Body = Mapping[str, Any]


class Soon:
    """Called with a body: a mapping, or bytes where a handler keeps answers encoded."""

    __slots__ = ("_body", "_later")

    def __init__(self) -> None:
        self._body: Any = None
        self._later: Later | None = None

    def __call__(self, body: Any) -> None:
        if self._later is None:
            self._body = body
        else:
            self._later.complete(body)

    def result(self) -> Body | Later:
        if self._body is not None:
            return cast(Body, self._body)
        self._later = Later()
        return self._later
