"""Coordinators of a test's own in a node: `coordinators(node).groups = fake`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.broker.api import Later, framed
from headrace.broker.steps import Steps, finish


def give(request: Any, slot: Any, answer: Any) -> None:
    """An answer, all steps of it at once, as the router gives it to its slot."""
    if isinstance(answer, Steps):
        answer = finish(answer.body)
    if isinstance(answer, Later):
        answer.bind(request, slot, give)
    else:
        slot.answer([framed(request.response(answer))])


def coordinators(node: Any) -> SimpleNamespace:
    if not isinstance(node._coordination, SimpleNamespace):
        node._coordination = SimpleNamespace(
            has_gathered=False, end_of_turn=lambda: None, topics_deleted=lambda names, done: ()
        )
    return node._coordination
