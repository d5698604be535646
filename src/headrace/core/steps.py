"""Work in steps: a generator that yields wherever others may be served. Who has the time takes all steps at once."""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def finish(work: Generator[object, None, Result]) -> Result:
    """All steps, here and now."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result
