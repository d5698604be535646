"""A leader's part: what its followers have, what is committed by that, and who is in sync.

`LeaderState` decides; here it is told what happens to the log, what followers fetch and what the tree says, and what it
proposes is written. Each change of an ISR is one multi: it names the version of the state that it replaces, and checks
the incarnation of each broker that joins. Of a change whose answer was lost nobody knows whether it was made: it counts
as both until everything was read again over a new connection.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.client.zookeeper.calls import Step
from headrace.client.zookeeper.errors import TooManyRequestsError, ZooKeeperError
from headrace.core.clock import Clock
from headrace.core.telemetry import event as log_event
from headrace.log.partition_log import PartitionLog
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.results import Result
from headrace.replication import znodes
from headrace.replication.dialogue import Asking, failure_of, multi
from headrace.replication.image import ClusterImage, PartitionImage
from headrace.replication.leader_state import LeaderState, Proposal
from headrace.replication.tree_reader import GONE

WRITES_MAX: Final = 128  # changes of ISRs without an answer

logger = logging.getLogger(__name__)

Place = tuple[str, int]


class Led:
    """One partition that this broker leads, and that has other replicas."""

    __slots__ = ("epoch", "image", "is_unknown", "log", "place", "state")

    def __init__(self, place: Place, image: PartitionImage, log: PartitionLog, state: LeaderState) -> None:
        self.place = place
        self.image = image
        self.log = log
        self.state = state
        self.epoch = image.leader_epoch
        self.is_unknown = False  # whether its last change was written

    def settled(self) -> None:
        """Its own log has grown."""
        self.state.min_isr = self.log.config.min_insync_replicas
        self.state.appended(self.log.settled_offset)
        self.commit()

    def commit(self) -> None:
        if self.state.high_watermark > self.log.high_watermark:
            self.log.commit_to(min(self.state.high_watermark, self.log.end_offset))


class Leading:
    def __init__(
        self,
        broker: int,
        *,
        clock: Clock,
        image: Callable[[], ClusterImage],
        lag_ms_max: Callable[[], int],
        controller_epoch: Callable[[Place], int],
        read_again: Callable[[str], None],
    ) -> None:
        """`controller_epoch` is the one that a partition's state names, which a change of its ISR leaves as it is."""
        self._broker = broker
        self._clock = clock
        self._image = image
        self._lag_ms_max = lag_ms_max
        self._controller_epoch = controller_epoch
        self._read_again = read_again
        self._client: Asking | None = None
        self._led: dict[Place, Led] = {}
        self._to_look_at: dict[Led, None] = {}  # whose ISR may have to change
        self._writing = 0

    # ── what the image says ──────────────────────────────────────────────────────────────────────────────────────

    def lead(self, place: Place, image: PartitionImage, log: PartitionLog) -> None:
        """This broker leads, with others as followers. The epoch is in its log already."""
        known = self._led.get(place)
        if known is not None and known.log is log and known.epoch == image.leader_epoch:
            known.image = image
            known.state.observed(image)
            known.commit()
            self._to_look_at[known] = None
            return
        self.leave(place)
        state = LeaderState(
            self._broker,
            image,
            epoch_start=log.end_offset,
            high_watermark=log.high_watermark,
            min_isr=log.config.min_insync_replicas,
            now_ms=self._now_ms(),
        )
        led = self._led[place] = Led(place, image, log, state)
        log.on_settled.append(led.settled)
        led.settled()
        self._to_look_at[led] = None

    def leave(self, place: Place) -> None:
        gone = self._led.pop(place, None)
        if gone is not None:
            self._to_look_at.pop(gone, None)
            if gone.settled in gone.log.on_settled:
                gone.log.on_settled.remove(gone.settled)

    # ── what followers say ───────────────────────────────────────────────────────────────────────────────────────

    def fetched(self, place: Place, broker: int, incarnation: int, offset: int) -> None:
        """A follower asks for what comes at this offset."""
        led = self._led.get(place)
        if led is None:
            return
        state = led.state
        state.fetched(broker, incarnation, offset, self._now_ms())
        led.commit()
        if broker not in state.isr:
            self._to_look_at[led] = None

    def still_waits(self, place: Place, broker: int, offset: int) -> None:
        """A follower has a fetch of this offset waiting: what it has not been told is not its fault."""
        led = self._led.get(place)
        if led is not None and offset >= led.log.end_offset:
            led.state.fetched(broker, led.state.incarnation_of(broker), offset, self._now_ms())

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────

    def connected(self, client: Asking) -> None:
        self._client = client

    def disconnected(self) -> None:
        """ISRs stay as they are until there is a connection again."""
        self._client = None
        self._writing = 0

    def all_read(self) -> None:
        """Everything was read over the connection that there is now."""
        for led in self._led.values():
            if led.is_unknown:
                led.is_unknown = False
                led.state.observed(led.image, is_settled=True)
                led.commit()
                self._to_look_at[led] = None

    # ── changing ISRs ────────────────────────────────────────────────────────────────────────────────────────────

    def brokers_changed(self) -> None:
        """One that is gone leaves every ISR at once."""
        self._to_look_at.update(dict.fromkeys(self._led.values()))

    def look_at_all(self) -> None:
        """Who lags for too long is found by the clock."""
        self.brokers_changed()
        self.look()

    def look(self) -> None:
        """At the end of a turn."""
        while self._to_look_at and self._client is not None and self._writing < WRITES_MAX:
            led = next(iter(self._to_look_at))
            del self._to_look_at[led]
            if led.is_unknown:
                continue
            proposal = led.state.propose(
                self._image().brokers,
                now_ms=self._now_ms(),
                lag_ms_max=self._lag_ms_max(),
                offline=led.image.offline,
            )
            if proposal is not None:
                self._write(led, proposal, self._client)

    def _write(self, led: Led, proposal: Proposal, client: Asking) -> None:
        name, index = led.place
        wanted = led.image.with_isr(proposal.isr)
        data = znodes.write_state(wanted, self._controller_epoch(led.place))
        path = znodes.state(name, index)
        steps: list[Step] = [
            requests.Check(znodes.incarnation(each), incarnation) for each, incarnation in proposal.joining.items()
        ]
        request = multi([*steps, requests.SetData(path, data, proposal.expected_version)])
        self._writing += 1

        def answered(result: Result, error: ZooKeeperError | TooManyRequestsError | None) -> None:
            self._writing = max(0, self._writing - 1)
            if error is None:
                error = failure_of(request, result)
            self._wrote(led, proposal, path, error)

        client.ask(request, answered)

    def _wrote(
        self, led: Led, proposal: Proposal, path: str, error: ZooKeeperError | TooManyRequestsError | None
    ) -> None:
        if self._led.get(led.place) is not led:
            return
        if error is None:
            led.state.accepted()
            told = replace(led.image.with_isr(proposal.isr), version=proposal.expected_version + 1)
            if told.version > led.image.version:
                led.image = told
            log_event(
                logger,
                logging.INFO,
                "the ISR is changed",
                partition=led.log.name,
                isr=",".join(map(str, proposal.isr)),
                epoch=led.epoch,
            )
            led.commit()
        elif isinstance(error, ZooKeeperError) and error.code in GONE:
            led.is_unknown = True
        else:
            # It was not made, for certain: somebody else has changed the state, or a follower was started again.
            led.state.observed(led.image, is_settled=True)
            led.commit()
            if isinstance(error, ZooKeeperError) and error.code == codes.BAD_VERSION:
                self._read_again(path)
                return
        self._to_look_at[led] = None

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
