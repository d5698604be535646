"""The controller: the broker that was elected carries out what `plan` says, until there is nothing left to do.

It is elected by one multi that creates `/controller`, which goes with its session, and bumps `/controller_epoch`. Each
of its writes checks the version of that node, so a controller that was deposed without knowing it changes nothing.
Before it decides, everything is read again: what it writes must follow from the tree of its own epoch.

It keeps no memory of what it was about to do. A write that is refused, or whose answer was lost, is followed by reading
that znode again and by another plan. While there is no connection nothing is decided.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from headrace.client.zookeeper.calls import Step, create_request
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.core.errors import OperatorError
from headrace.core.telemetry import event as log_event
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.results import MultiDone
from headrace.protocol.zookeeper.stat import Stat
from headrace.replication import znodes
from headrace.replication.dialogue import Asking, Dialogue, Talk, ensured, multi, read_data
from headrace.replication.election import Way
from headrace.replication.image import NO_CONTROLLER, NO_VERSION, ClusterImage
from headrace.replication.operations import DeleteTopic, EndReassignment, Operation, SetState
from headrace.replication.plan import Place

WRITES_MAX: Final = 128  # without an answer
STATES_PER_MULTI: Final = 100  # first states of one topic
NODES_PER_MULTI: Final = 500  # that are deleted at once

logger = logging.getLogger(__name__)


class Controller:
    def __init__(
        self,
        broker: int,
        *,
        now_ms: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], None],
        image: Callable[[], ClusterImage],
        planned: Callable[[ClusterImage], Iterator[Operation]],
        is_current: Callable[[], bool],
        read_again: Callable[[str], None],
    ) -> None:
        """`image` and `is_current` are what the reader of the tree knows; `planned` is `plan` with what users asked
        for; `read_again` has a znode read that is not what it was taken for."""
        self.epoch = -1  # of this broker's time as controller
        self._broker = broker
        self._now_ms = now_ms
        self._call_soon = call_soon
        self._image = image
        self._planned = planned
        self._is_current = is_current
        self._read_again = read_again
        self._client: Asking | None = None
        self._session = 0
        self._epoch_version = -1  # of `/controller_epoch`, which each write checks; -1 while it is not controller
        self._electing: Talk | None = None
        self._writing: dict[Talk, None] = {}
        self._written: dict[Place, int] = {}  # versions that were written and not read yet
        self._is_planning = False

    @property
    def is_active(self) -> bool:
        return self._epoch_version >= 0

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────

    def joined(self, client: Asking, session: int) -> None:
        """This broker is registered, or connected again. Whether it is the controller is to be seen."""
        self._client = client
        self._session = session
        self._stand()

    def disconnected(self) -> None:
        """Perhaps another one is elected meanwhile: it decides nothing until it knows."""
        self._client = None
        self._epoch_version = -1
        for talk in (*self._writing, *([self._electing] if self._electing is not None else ())):
            talk.stop()
        self._writing.clear()
        self._written.clear()
        self._electing = None

    def image_changed(self) -> None:
        """The reader has read more."""
        if self.is_active:
            if self._image().controller_id not in (self._broker, NO_CONTROLLER) and self._is_current():
                self._resign("another broker is the controller")
            else:
                self._plan_soon()
        elif self._is_current() and self._image().controller_id == NO_CONTROLLER:
            self._stand()

    # ── election ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _stand(self) -> None:
        if self._client is None or self._electing is not None or self.is_active:
            return
        self._electing = Talk(self._client, self._candidacy(), self._call_soon, self._decided)

    def _candidacy(self) -> Dialogue[None]:
        yield from ensured(znodes.CONTROLLER_EPOCH, b"0")
        found = yield from read_data(znodes.CONTROLLER_EPOCH)
        if found is None:
            return
        epoch, version = znodes.read_controller_epoch(found.data or b""), found.stat.version
        there = yield from read_data(znodes.CONTROLLER)
        if there is not None:
            # It was elected before its connection broke, and its session has lived on: the epoch is still its own.
            if there.stat.owner == self._session:
                self._elected(epoch, version)
            return
        own = znodes.write_controller(self._broker, self._now_ms())
        try:
            done = yield multi(
                [
                    create_request(znodes.CONTROLLER, own, codes.EPHEMERAL),
                    requests.SetData(znodes.CONTROLLER_EPOCH, b"%d" % (epoch + 1), version),
                ]
            )
        except ZooKeeperError as error:
            if error.code not in (codes.NODE_EXISTS, codes.BAD_VERSION):
                raise
            return
        if isinstance(done, MultiDone) and isinstance(done.steps[1], Stat):
            self._elected(epoch + 1, done.steps[1].version)

    def _elected(self, epoch: int, version: int) -> None:
        self.epoch = epoch
        self._epoch_version = version
        log_event(logger, logging.INFO, "elected controller", broker=self._broker, epoch=epoch)
        # What is read from here on is of this epoch or later.
        self._read_again(znodes.CONTROLLER)

    def _decided(self, error: ZooKeeperError | OperatorError | None) -> None:
        self._electing = None
        if error is not None and not (isinstance(error, ZooKeeperError) and error.code == codes.CONNECTION_LOSS):
            log_event(logger, logging.WARNING, "no controller could be elected", reason=str(error))

    def _resign(self, why: str) -> None:
        log_event(logger, logging.INFO, "controller no more", broker=self._broker, epoch=self.epoch, reason=why)
        client, session = self._client, self._session
        self.disconnected()
        self._client, self._session = client, session
        self._call_soon(self._stand)  # whether it is the controller still, the tree says

    # ── writing what is planned ──────────────────────────────────────────────────────────────────────────────────

    def _plan_soon(self) -> None:
        if not self._is_planning and self.is_active:
            self._is_planning = True
            self._call_soon(self._carry_out)

    def _carry_out(self) -> None:
        """The next writes, when those before are answered and what they changed was read."""
        self._is_planning = False
        if not self.is_active or self._writing or not self._is_current():
            return
        image = self._image()
        self._written = {place: version for place, version in self._written.items() if _is_older(image, place, version)}
        fresh = (each for each in self._planned(image) if _place_of(each) not in self._written)
        for each in _grouped(islice(fresh, WRITES_MAX)):
            self._write(each)

    def _write(self, operations: Sequence[Operation]) -> None:
        client = self._client
        if client is None:
            return
        for each in operations:
            _say(each, self.epoch)
        talk: Talk | None = None
        is_over = False

        def ended(error: ZooKeeperError | OperatorError | None) -> None:
            nonlocal is_over
            is_over = True
            if talk is not None:
                self._writing.pop(talk, None)
            self._wrote(operations, error)

        talk = Talk(client, self._writes(operations), self._call_soon, ended)
        if not is_over:
            self._writing[talk] = None

    def _wrote(self, operations: Sequence[Operation], error: ZooKeeperError | OperatorError | None) -> None:
        if error is None:
            for each in operations:
                if isinstance(each, SetState):
                    self._written[each.topic, each.index] = each.expected_version + 1
        elif isinstance(error, ZooKeeperError) and error.path == znodes.CONTROLLER_EPOCH:
            self._resign("its epoch is over")
            return
        else:
            log_event(
                logger, logging.INFO, "a write was refused: it is read again, and planned again", reason=str(error)
            )
            for each in operations:
                self._read_again(znodes.topic(each.topic))
                if isinstance(each, SetState):
                    self._read_again(znodes.state(each.topic, each.index))
        self._plan_soon()

    def _writes(self, operations: Sequence[Operation]) -> Dialogue[None]:
        first = operations[0]
        if isinstance(first, DeleteTopic):
            yield from self._delete(first)
        elif isinstance(first, SetState) and first.expected_version == NO_VERSION:
            yield from self._first_states(first.topic, [each for each in operations if isinstance(each, SetState)])
        elif isinstance(first, SetState):
            data = znodes.write_state(first.state, self.epoch)
            path = znodes.state(first.topic, first.index)
            yield self._guarded([requests.SetData(path, data, first.expected_version)])
        else:
            yield from self._end_reassignment(first)

    def _guarded(self, steps: Sequence[Step]) -> requests.Multi:
        return multi([requests.Check(znodes.CONTROLLER_EPOCH, self._epoch_version), *steps])

    def _first_states(self, topic: str, operations: Sequence[SetState]) -> Dialogue[None]:
        """Their parents may be there already, from a controller that went in the midst of this."""
        parents = [znodes.partitions(topic), *(znodes.partition(topic, each.index) for each in operations)]
        states: list[Step] = [
            create_request(znodes.state(topic, each.index), znodes.write_state(each.state, self.epoch))
            for each in operations
        ]
        while True:
            try:
                yield self._guarded([*(create_request(path, b"") for path in parents), *states])
                return
            except ZooKeeperError as error:
                if error.code != codes.NODE_EXISTS or error.path not in parents:
                    raise
                parents.remove(error.path)

    def _end_reassignment(self, operation: EndReassignment) -> Dialogue[None]:
        path = znodes.topic(operation.topic)
        found = yield from read_data(path)
        if found is None:
            return
        told = znodes.read_assignment(operation.topic, found.data or b"")
        data = znodes.write_assignment(told.ended(operation.index, operation.replicas))
        yield self._guarded([requests.SetData(path, data, found.stat.version)])

    def _delete(self, operation: DeleteTopic) -> Dialogue[None]:
        """From the leaves up: a controller that comes after goes on where this ends. The topic and the wish to delete
        it go in one step, or the wish would be held against a topic of the same name."""
        name = operation.topic
        below = [znodes.topic_settings(name)]
        found = yield from read_data(znodes.topic(name))
        if found is not None:
            told = znodes.read_assignment(name, found.data or b"")
            for index in range(len(told.replicas)):
                below += [znodes.state(name, index), znodes.partition(name, index)]
        for at in range(0, len(below), NODES_PER_MULTI):
            yield from self._remove(below[at : at + NODES_PER_MULTI])
        yield from self._remove([znodes.partitions(name), znodes.topic(name), znodes.deleted_topic(name)])

    def _remove(self, paths: Sequence[str]) -> Dialogue[None]:
        """All at once, save those that are gone already."""
        left = list(paths)
        while left:
            try:
                yield self._guarded([requests.Delete(path, -1) for path in left])
                return
            except ZooKeeperError as error:
                if error.code != codes.NO_NODE or error.path not in left:
                    raise
                left.remove(error.path)


def _place_of(operation: Operation) -> Place:
    return operation.topic, -1 if isinstance(operation, DeleteTopic) else operation.index


def _is_older(image: ClusterImage, place: Place, version: int) -> bool:
    """Whether the image does not know yet what was written. A topic that is gone has nothing more to be read."""
    found = image.partition(*place)
    return found is not None and found.version < version


def _grouped(operations: Iterator[Operation]) -> Iterator[list[Operation]]:
    """Each for itself, so that one that is refused takes no other with it; first states of a topic together, since they
    share their parents."""
    group: list[Operation] = []
    for each in operations:
        is_first = isinstance(each, SetState) and each.expected_version == NO_VERSION
        if group and (not is_first or group[0].topic != each.topic or len(group) == STATES_PER_MULTI):
            yield group
            group = []
        if is_first:
            group.append(each)
        else:
            yield [each]
    if group:
        yield group


def _say(operation: Operation, epoch: int) -> None:
    if isinstance(operation, SetState) and operation.way is not None:
        loses = operation.way in (Way.UNCLEAN, Way.LAST_RESORT)
        log_event(
            logger,
            logging.ERROR if loses else logging.INFO,
            "a leader is elected" if operation.state.leader >= 0 else "a partition has no leader",
            partition=f"{operation.topic}-{operation.index}",
            leader=operation.state.leader,
            epoch=operation.state.leader_epoch,
            how=operation.way.value,
            controller_epoch=epoch,
        )
