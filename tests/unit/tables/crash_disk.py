"""A disk on which the process dies at a step of one's choice, before or after that step is done."""

from __future__ import annotations

from typing import Any

from headrace.tables.links import LinkDisk

STEPS = (
    "write_file",
    "write",
    "sync",
    "rename",
    "unlink",
    "make_directory",
    "sync_directory",
    "remove_tree",
)


class Killed(BaseException):
    """Not an Exception: nothing in the code under test may catch it."""


class CrashDisk(LinkDisk):
    """Dies in step `at` (counted from 0): before it if not `after`."""

    def __init__(self, at: int, *, after: bool = False) -> None:
        self.at = at
        self.after = after
        self.steps = 0

    def _step(self, name: str, *args: Any, **kwargs: Any) -> Any:
        number, self.steps = self.steps, self.steps + 1
        if number == self.at and not self.after:
            raise Killed(name)
        result = getattr(super(), name)(*args, **kwargs)
        if number == self.at:
            raise Killed(name)
        return result


def _wrapped(name: str) -> Any:
    def step(self: CrashDisk, *args: Any, **kwargs: Any) -> Any:
        return self._step(name, *args, **kwargs)

    return step


for _name in STEPS:
    setattr(CrashDisk, _name, _wrapped(_name))
