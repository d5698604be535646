"""What was read of the tree, and the image that follows from it: the second feed of the image. No IO.

Whoever reads the tree says of each znode what it holds (`put`) or that it is gone (`remove`), in any order, and then
asks for the `delta` of all that was said. A topic is in the image from the moment at which its assignment is known;
partitions whose state was not read yet have none. A znode that makes no sense raises, and what was known of it stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from headrace.replication import znodes
from headrace.replication.image import (
    NO_CONTROLLER,
    NO_VERSION,
    BrokerImage,
    ImageDelta,
    PartitionImage,
    TopicImage,
)
from headrace.replication.znodes import Assignment, PartitionState, Registration

_BROKER: Final = re.compile(rf"{znodes.BROKER_IDS}/(\d+)")
_TOPIC: Final = re.compile(rf"{znodes.TOPICS}/([^/]+)")
_STATE: Final = re.compile(rf"{znodes.TOPICS}/([^/]+)/partitions/(\d+)/state")
_TOPIC_SETTINGS: Final = re.compile(rf"{znodes.TOPIC_SETTINGS}/([^/]+)")
_BROKER_SETTINGS: Final = re.compile(rf"{znodes.BROKER_SETTINGS}/([^/]+)")
_DELETED: Final = re.compile(rf"{znodes.DELETED_TOPICS}/([^/]+)")


def is_read(path: str) -> bool:
    """Whether the image, or a controller's wishes, depend on what this znode holds."""
    return path == znodes.CONTROLLER or any(
        each.fullmatch(path) for each in (_BROKER, _TOPIC, _STATE, _TOPIC_SETTINGS, _BROKER_SETTINGS, _DELETED)
    )


class TreeView:
    def __init__(self) -> None:
        self.deleted: set[str] = set()  # topics that users want to be gone
        self.broker_settings: dict[str, dict[str, str]] = {}  # by the broker's number as text, or `<default>`
        self._registrations: dict[int, Registration] = {}
        self._assignments: dict[str, Assignment] = {}
        self._states: dict[str, dict[int, PartitionState]] = {}
        self._settings: dict[str, dict[str, str]] = {}
        self._controller = NO_CONTROLLER
        self._changed_brokers: set[int] = set()
        self._changed_topics: set[str] = set()
        self._told_controller = NO_CONTROLLER

    # ── what was read ────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, path: str, data: bytes, version: int) -> None:
        if found := _STATE.fullmatch(path):
            name, index = found[1], int(found[2])
            state = znodes.read_state(name, index, data, version)
            self._states.setdefault(name, {})[index] = state
            self._changed_topics.add(name)
        elif found := _TOPIC.fullmatch(path):
            self._assignments[found[1]] = znodes.read_assignment(found[1], data)
            self._changed_topics.add(found[1])
        elif found := _BROKER.fullmatch(path):
            number = int(found[1])
            self._register(number, znodes.read_registration(number, data))
        elif found := _TOPIC_SETTINGS.fullmatch(path):
            self._settings[found[1]] = znodes.read_settings(path, data)
            self._changed_topics.add(found[1])
        elif found := _BROKER_SETTINGS.fullmatch(path):
            self.broker_settings[found[1]] = znodes.read_settings(path, data)
        elif found := _DELETED.fullmatch(path):
            self.deleted.add(found[1])
        elif path == znodes.CONTROLLER:
            self._controller = znodes.read_controller(data)

    def remove(self, path: str) -> None:
        if found := _STATE.fullmatch(path):
            self._states.get(found[1], {}).pop(int(found[2]), None)
            self._changed_topics.add(found[1])
        elif found := _TOPIC.fullmatch(path):
            self._assignments.pop(found[1], None)
            self._states.pop(found[1], None)
            self._changed_topics.add(found[1])
        elif found := _BROKER.fullmatch(path):
            self._register(int(found[1]), None)
        elif found := _TOPIC_SETTINGS.fullmatch(path):
            self._settings.pop(found[1], None)
            self._changed_topics.add(found[1])
        elif found := _BROKER_SETTINGS.fullmatch(path):
            self.broker_settings.pop(found[1], None)
        elif found := _DELETED.fullmatch(path):
            self.deleted.discard(found[1])
        elif path == znodes.CONTROLLER:
            self._controller = NO_CONTROLLER

    def _register(self, number: int, told: Registration | None) -> None:
        before = self._registrations.pop(number, None)
        if told is not None:
            self._registrations[number] = told
        self._changed_brokers.add(number)
        failed = (before.offline if before is not None else {}), (told.offline if told is not None else {})
        if failed[0] != failed[1]:
            self._changed_topics.update(*failed)

    def controller_epoch(self, topic: str, index: int) -> int:
        """Of the controller that wrote a partition's state last."""
        state = self._states.get(topic, {}).get(index)
        return state.controller_epoch if state is not None else 0

    def states_of(self, path: str) -> list[str]:
        """Of the assignment of a topic: where the states of its partitions lie. Of anything else: none."""
        found = _TOPIC.fullmatch(path)
        told = self._assignments.get(found[1]) if found else None
        return [znodes.state(found[1], index) for index in range(len(told.replicas))] if found and told else []

    # ── what follows ─────────────────────────────────────────────────────────────────────────────────────────────

    def delta(self) -> ImageDelta | None:
        """All that has changed since the last one; None if nothing has."""
        controller = self._controller if self._controller != self._told_controller else None
        if not self._changed_brokers and not self._changed_topics and controller is None:
            return None
        delta = ImageDelta(
            brokers={each: self._broker(each) for each in sorted(self._changed_brokers)},
            topics={each: self._topic(each) for each in sorted(self._changed_topics)},
            controller_id=controller,
        )
        self._changed_brokers.clear()
        self._changed_topics.clear()
        self._told_controller = self._controller
        return delta

    def _broker(self, number: int) -> BrokerImage | None:
        told = self._registrations.get(number)
        return told.broker if told is not None else None

    def _topic(self, name: str) -> TopicImage | None:
        told = self._assignments.get(name)
        if told is None:
            return None
        failed = self._failed(name)
        return TopicImage(
            name=name,
            id=told.id,
            partitions=tuple(
                [self._partition(name, index, told, failed.get(index, ())) for index in range(len(told.replicas))]
            ),
            overrides=self._settings.get(name, {}),
        )

    def _failed(self, name: str) -> dict[int, tuple[int, ...]]:
        """Brokers whose replica is in a failed directory, by partition."""
        failed: dict[int, tuple[int, ...]] = {}
        for number, told in sorted(self._registrations.items()):
            for index in told.offline.get(name, ()):
                failed[index] = (*failed.get(index, ()), number)
        return failed

    def _partition(self, name: str, index: int, told: Assignment, offline: Iterable[int]) -> PartitionImage:
        replicas = told.replicas[index]
        adding, removing = told.adding.get(index, ()), told.removing.get(index, ())
        state = self._states.get(name, {}).get(index)
        if state is None:
            return PartitionImage(
                replicas=replicas, adding=adding, removing=removing, offline=tuple(offline), version=NO_VERSION
            )
        return PartitionImage(
            replicas=replicas,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            offline=tuple(offline),
            leader_incarnation=state.leader_incarnation,
            isr_incarnations=state.isr_incarnations,
            adding=adding,
            removing=removing,
            version=state.version,
        )
