"""Coordinators of a test's own among the parts of a node: `coordinators(node).groups = fake`."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from headrace.broker.api import Later, framed
from headrace.broker.coordination import Coordination
from headrace.broker.steps import Steps
from headrace.core.steps import finish


def give(request: Any, slot: Any, answer: Any) -> None:
    """An answer, all steps of it at once, as the router gives it to its slot."""
    if isinstance(answer, Steps):
        answer = finish(answer.body)
    if isinstance(answer, Later):
        answer.bind(request, slot, give)
    else:
        slot.answer([framed(request.response(answer))])


class Coordinators(SimpleNamespace):
    # What stands between handlers and the two coordinators is the broker's own.
    ask_transaction = Coordination.ask_transaction
    verify_again = Coordination.verify_again
    _elsewhere = None

    def __call__(self) -> Coordinators:
        """As the parts of a broker ask for them."""
        return self


def coordinators(node: Any) -> Coordinators:
    if not isinstance(node.parts.coordinators, Coordinators):
        node.parts = dataclasses.replace(node.parts, coordinators=Coordinators())
    made: Coordinators = node.parts.coordinators
    return made


def load_all(coordinator: Any, partition_count: int, epoch: int = 0) -> None:
    """The broker of the test leads every partition of the coordinator's topic, and has read it."""
    for partition in range(partition_count):
        finish(coordinator.load(partition, epoch))


def offsets_of(node: Any, group_id: str = "g") -> Any:
    """Where a group's offsets are kept."""
    return node.parts.groups.shard(group_id).table.offsets
