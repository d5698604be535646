"""Coordinators of a test's own in a node: `coordinators(node).groups = fake`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def coordinators(node: Any) -> SimpleNamespace:
    if not isinstance(node._coordination, SimpleNamespace):
        node._coordination = SimpleNamespace(
            has_gathered=False, end_of_turn=lambda: None, topic_deleted=lambda topic: None
        )
    return node._coordination
