"""A broker's own part in the tree: that it is there, which incarnation it is, and where it is reached.

A broker joins with one multi: it bumps the version of `/headrace/brokers/N`, which is the incarnation, and creates
`/brokers/ids/N`, which goes with its session. Leadership and the ISR name the incarnation that they were given to, so
what an earlier start was given is not taken for this one's. With the registration a broker says since which incarnation
all that it wrote is still on its disks; `intact_from` decides that, without IO.

A session that has expired takes the registration with it. The broker joins again, as a new incarnation that has lost
nothing: it is the same process, with the same memory.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from headrace.client.zookeeper.calls import create_request
from headrace.client.zookeeper.errors import TooManyRequestsError, ZooKeeperError
from headrace.core.errors import OperatorError
from headrace.core.telemetry import event as log_event
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.results import Result
from headrace.replication import znodes
from headrace.replication.dialogue import Asking, Dialogue, Talk, ensured, multi, read_data
from headrace.replication.znodes import Footing, Registration

RETRY_S: Final = 1.0

logger = logging.getLogger(__name__)


def intact_from(before: Footing | None, boot_id: str, directories: frozenset[str], *, clean: bool, now: int) -> int:
    """From which incarnation on nothing that this broker wrote is lost; `now` is the one that begins.

    After a clean stop everything is on the disks. After a kill it is in the memory of the machine, unless the machine
    was started since. A directory that was there before and is not now has taken its part with it.
    """
    if before is None or not before.directories <= directories:
        return now
    return before.intact_from if clean or boot_id == before.boot_id else now


class Membership:
    def __init__(
        self,
        told: Registration,
        *,
        cluster_id: str,
        new_cluster_id: Callable[[], str],
        boot_id: str,
        directories: frozenset[str],
        was_clean: bool,
        call_soon: Callable[[Callable[[], None]], None],
        call_later: Callable[[float, Callable[[], None]], object],
        joined: Callable[[Registration], None],
        refused: Callable[[OperatorError], None],
    ) -> None:
        """`told` is what others are to know, without the incarnation. `cluster_id` is empty for a broker without data.
        `joined` is called each time that the broker is registered; `refused` when it never can be: its data is of
        another cluster."""
        self.registration: Registration | None = None  # as it stands in the tree
        self.cluster_id = cluster_id
        self._new_cluster_id = new_cluster_id
        self._told = told
        self._boot_id = boot_id
        self._directories = directories
        self._was_clean = was_clean
        self._call_soon = call_soon
        self._call_later = call_later
        self._joined = joined
        self._refused = refused
        self._client: Asking | None = None
        self._talk: Talk | None = None
        self._session = 0
        self._is_waiting_said = False
        self._is_untold = False

    @property
    def number(self) -> int:
        return self._told.broker.id

    @property
    def is_joined(self) -> bool:
        return self.registration is not None

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────

    def connected(self, client: Asking, session: int) -> None:
        """The session is there, or there again."""
        self._client = client
        self._session = session
        if not self.is_joined:
            self._join()
        elif self._is_untold:
            self._tell()

    def disconnected(self) -> None:
        """What is registered stays so: only the end of the session takes it away."""
        self._client = None
        if self._talk is not None:
            self._talk.stop()
            self._talk = None

    def expired(self) -> None:
        self.disconnected()
        self.registration = None

    # ── what changes while it is there ───────────────────────────────────────────────────────────────────────────

    def update(
        self, *, shutting_down: bool | None = None, offline: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        """Others learn that this broker is going, or which partitions its failed directories have taken with them."""
        told = self._told
        if shutting_down is not None:
            told = replace(told, broker=replace(told.broker, shutting_down=shutting_down))
        if offline is not None:
            told = replace(told, offline=offline)
        self._told = told
        self._tell()

    def _tell(self) -> None:
        """Until it is written: an answer that is lost may have been a no."""
        standing, client = self.registration, self._client
        self._is_untold = standing is not None
        if standing is None or client is None:
            return
        own = replace(
            self._told.broker, incarnation=standing.broker.incarnation, intact_from=standing.broker.intact_from
        )
        told = replace(self._told, broker=own)

        def answered(_: Result, error: ZooKeeperError | TooManyRequestsError | None) -> None:
            if error is None and self.registration is standing:
                self.registration = told
                self._is_untold = told.offline != self._told.offline or own.shutting_down != self._shutting_down
            elif isinstance(error, TooManyRequestsError):
                self._call_later(RETRY_S, self._tell)

        path = znodes.broker(self.number)
        client.ask(requests.SetData(path, znodes.write_registration(told), -1), answered)

    @property
    def _shutting_down(self) -> bool:
        return self._told.broker.shutting_down

    # ── joining ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _join(self) -> None:
        if self._client is None or self._talk is not None or self.is_joined:
            return
        self._talk = Talk(self._client, self._joining(), self._call_soon, self._ended)

    def _ended(self, error: ZooKeeperError | OperatorError | None) -> None:
        self._talk = None
        if error is not None and not (isinstance(error, ZooKeeperError) and error.code == codes.CONNECTION_LOSS):
            log_event(logger, logging.WARNING, "not registered yet: it is tried again", reason=str(error))
        if not self.is_joined:
            self._call_later(RETRY_S, self._join)

    def _joining(self) -> Dialogue[None]:
        for path in znodes.PERSISTENT:
            yield from ensured(path)
        if not (yield from self._is_our_cluster()):
            return
        number = self.number
        there = yield from read_data(znodes.broker(number))
        if there is not None:
            told = znodes.read_registration(number, there.data or b"")
            # The answer to an earlier multi was lost with its connection, and it was a yes.
            if there.stat.owner == self._session:
                self._have_joined(told)
            else:
                self._wait_for(told)
            return
        before, version = yield from self._footing()
        now = version + 1
        footing = Footing(
            boot_id=self._boot_id,
            directories=self._directories,
            intact_from=intact_from(before, self._boot_id, self._directories, clean=self._was_clean, now=now),
        )
        broker = replace(self._told.broker, incarnation=now, intact_from=footing.intact_from)
        told = replace(self._told, broker=broker)
        try:
            yield multi(
                [
                    requests.SetData(znodes.incarnation(number), znodes.write_footing(footing), version),
                    create_request(znodes.broker(number), znodes.write_registration(told), codes.EPHEMERAL),
                ]
            )
        except ZooKeeperError as error:
            # Somebody else has started with this number at this moment: the next try sees who.
            if error.code not in (codes.NODE_EXISTS, codes.BAD_VERSION):
                raise
            return
        self._have_joined(told)

    def _have_joined(self, told: Registration) -> None:
        self.registration = told
        self._is_waiting_said = False
        self._joined(told)

    def _wait_for(self, other: Registration) -> None:
        if self._is_waiting_said:
            return
        self._is_waiting_said = True
        where = ", ".join(f"{each.host}:{each.port}" for each in other.broker.endpoints.values())
        log_event(
            logger,
            logging.WARNING,
            "waiting: a broker of this number is registered; its session ends by itself if it is gone, else give this"
            " one another broker.id",
            broker=self.number,
            at=where,
        )

    def _is_our_cluster(self) -> Dialogue[bool]:
        """A broker that has no data yet becomes one of the cluster that it finds, or begins one."""
        own = self.cluster_id
        yield from ensured(znodes.CLUSTER_ID, znodes.write_cluster_id(own or self._new_cluster_id()))
        found = yield from read_data(znodes.CLUSTER_ID)
        there = znodes.read_cluster_id(found.data or b"") if found is not None else ""
        if there and there != own and own:
            why = f"its data is of cluster {own}, zookeeper.connect leads to cluster {there}"
            remedy = "give the address of its own ZooKeeper, or an empty directory"
            self._refused(OperatorError(f"broker {self.number}: {why}; {remedy}"))
            return False
        self.cluster_id = there
        return bool(there)

    def _footing(self) -> Dialogue[tuple[Footing | None, int]]:
        path = znodes.incarnation(self.number)
        yield from ensured(path)
        found = yield from read_data(path)
        if found is None or not found.data:
            return None, found.stat.version if found is not None else 0
        return znodes.read_footing(self.number, found.data), found.stat.version
