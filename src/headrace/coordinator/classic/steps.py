"""What is done for each member of a group is done a few members at a time, so that a large group keeps nobody waiting
but its own members. An event of a classic group is such work: it yields where others may be served."""

from collections.abc import Generator
from typing import Final, TypeVar

MEMBERS_PER_STEP: Final = 128  # a group of fewer takes every event at once
EVENTS_PER_STEP: Final = 32  # that have waited for others of their group, and take no second step themselves

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
