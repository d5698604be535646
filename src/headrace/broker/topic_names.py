"""Which names a topic may have: Kafka's rules, in Kafka's words."""

import re

from headrace.coordinator.placing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_TOPIC_EXCEPTION
from headrace.protocol.wire import NAME_CHARACTERS_MAX

INTERNAL = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    problem = _problem(name)
    if problem is not None:
        raise PeerError(INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def check_not_internal(name: str, change: str, instead: str) -> None:
    """The coordinators keep their state in internal topics and place it by their partitions: no client changes them."""
    if name in INTERNAL:
        raise PeerError(INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is internal and cannot be {change}; {instead}")


def is_legal(name: str) -> bool:
    return _problem(name) is None


def folded(name: str) -> str:
    """A '.' and a '_' look the same in the name of a metric, so no two topics may differ in them alone."""
    return name.replace(".", "_")


def check_collision(name: str, other: str | None) -> None:
    """`other` is the topic that folds to the same name, if there is one."""
    if other is not None and other != name:
        raise PeerError(INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _problem(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_CHARACTERS_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
