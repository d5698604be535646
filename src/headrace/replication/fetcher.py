"""A follower's part: what other brokers lead, and this one has a replica of, is fetched from them and appended.

One `LeaderFetcher` per leader has one connection and one fetch under way, for all partitions that the leader leads. The
bytes of a batch are written as they came. The next fetch goes out when all of the last one is written: its offsets tell
the leader what this replica has, and the leader counts on that.

A follower says with each fetch which epoch wrote its last batch. Where the leader's history is another one it answers
with the largest epoch that both can have and where that ends; the follower cuts its log there, or where its own
records of that epoch end, and fetches again, until nothing differs.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from headrace.core.clock import Clock
from headrace.core.errors import PeerError, StorageError
from headrace.core.telemetry import event as log_event
from headrace.log.partition_log import PartitionLog
from headrace.net.reactor import Reactor
from headrace.net.workers import Workers
from headrace.protocol import replica_fetch
from headrace.protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
)
from headrace.protocol.replica_fetch import Told, Wanted
from headrace.protocol.wire import MalformedError
from headrace.replication.broker_link import BrokerLink
from headrace.replication.image import Endpoint

REST_S: Final = 0.02  # until a log that is to be cut is asked again whether it is at rest
SESSION_EPOCH_MAX: Final = (1 << 31) - 1

logger = logging.getLogger(__name__)

Key = tuple[bytes, int]  # the id of a topic and the number of a partition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Kafka's replica.fetch.*."""

    wait_ms_max: int = 500
    bytes_min: int = 1
    partition_bytes_max: int = 1 << 20
    bytes_max: int = 10 << 20
    backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000


class Store(Protocol):
    """Where the logs are."""

    def truncate(self, cuts: dict[PartitionLog, int]) -> None: ...

    def start_again(self, log: PartitionLog, offset: int) -> None: ...

    def failed(self, log: PartitionLog, error: OSError) -> StorageError: ...


class _Followed:
    """One partition that is fetched. Who waits for what of it is written, too."""

    __slots__ = ("delayed", "epoch", "fetcher", "key", "log", "said", "start_offset", "unwritten", "watermark")

    def __init__(self, fetcher: "LeaderFetcher", key: Key, log: PartitionLog, epoch: int) -> None:
        self.fetcher = fetcher
        self.key = key
        self.log = log
        self.epoch = epoch  # of the leader
        self.said: Wanted | None = None  # what the leader's session has of it
        self.delayed = False  # something was wrong: it is left alone for a while
        self.unwritten = 0  # batches
        self.watermark = self.start_offset = 0  # of the leader, by its last answer

    def wanted(self) -> Wanted:
        log = self.log
        return Wanted(self.key[1], self.epoch, log.end_offset, log.written_epoch, log.start_offset)

    # What a log tells whoever waits for a batch.

    def written(self, log: PartitionLog) -> None:
        pass

    def done(self, log: PartitionLog, error: Exception | None) -> None:
        self.unwritten -= 1
        if error is not None:
            self.fetcher.delay(self, str(error))
        elif not self.unwritten:
            self.keep_up()
        self.fetcher.one_written()

    def keep_up(self) -> None:
        """What the leader said was committed and kept, as far as it is here."""
        log = self.log
        if log.deleted:
            return
        log.commit_to(min(self.watermark, log.end_offset))
        if log.start_offset < self.start_offset <= log.high_watermark:
            log.delete_records_before(self.start_offset)


class LeaderFetcher:
    """Everything that is fetched from one broker."""

    def __init__(
        self,
        leader: int,
        endpoint: Endpoint,
        *,
        broker: int,
        incarnation: Callable[[], int],
        reactor: Reactor,
        resolving: Workers,
        clock: Clock,
        store: Store,
        settings: FetchSettings,
        read_again: Callable[[PartitionLog], None],
    ) -> None:
        """`read_again`: the leader knows another epoch than this broker does, whose image may be old."""
        self.leader = leader
        self.endpoint = endpoint
        self._broker = broker
        self._incarnation = incarnation
        self._reactor = reactor
        self._resolving = resolving
        self._clock = clock
        self._store = store
        self._settings = settings
        self._read_again = read_again
        self._followed: dict[Key, _Followed] = {}
        self._changed: dict[Key, None] = {}  # what the leader's session has to be told
        self._forgotten: dict[Key, None] = {}
        self._cuts: dict[PartitionLog, int] = {}
        self._restarts: dict[PartitionLog, int] = {}  # the leader keeps nothing that follows what is here
        self._link: BrokerLink | None = None
        self._session = (0, replica_fetch.FULL_SESSION)
        self._correlation_id = 0
        self._unwritten = 0
        self._is_waiting = False  # for an answer
        self._is_backing_off = False
        self._is_going_on = False
        self._is_lost_said = False
        self.is_closed = False

    # ── what is followed ─────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, key: Key, log: PartitionLog, epoch: int) -> None:
        known = self._followed.get(key)
        if known is not None and known.log is log and known.epoch == epoch:
            return
        self._followed[key] = _Followed(self, key, log, epoch)
        self._changed[key] = None
        self._forgotten.pop(key, None)
        self._soon()

    def leave(self, key: Key) -> None:
        gone = self._followed.pop(key, None)
        self._changed.pop(key, None)
        if gone is None:
            return
        self._cuts.pop(gone.log, None)
        self._restarts.pop(gone.log, None)
        if gone.said is not None:
            self._forgotten[key] = None
        if not self._followed:
            self._hang_up()

    def close(self) -> None:
        self.is_closed = True
        self._followed.clear()
        self._cuts.clear()
        self._restarts.clear()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._is_waiting = False
        self._begin_session()

    def _begin_session(self) -> None:
        self._session = (0, replica_fetch.FULL_SESSION)
        self._forgotten.clear()
        self._changed = dict.fromkeys(self._followed)
        for each in self._followed.values():
            each.said = None

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _soon(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self._reactor.call_soon(self._go_on)

    def one_written(self) -> None:
        self._unwritten -= 1
        if not self._unwritten:
            self._go_on()

    def _go_on(self) -> None:
        """The next fetch, if there is something to fetch and nothing to wait for."""
        self._is_going_on = False
        if self.is_closed or self._is_waiting or self._unwritten or self._is_backing_off or not self._followed:
            return
        if (self._cuts or self._restarts) and not self._cut():
            return
        session_id, session_epoch = self._session
        is_full = session_epoch == replica_fetch.FULL_SESSION
        wanted: dict[bytes, list[Wanted]] = {}
        for key in list(self._followed if is_full else self._changed):
            each = self._followed.get(key)
            if each is None:
                continue
            if each.delayed:
                if each.said is not None:
                    self._forgotten[key] = None
                    each.said = None
                continue
            each.said = each.wanted()
            wanted.setdefault(key[0], []).append(each.said)
            self._forgotten.pop(key, None)
        self._changed.clear()
        if not wanted and not any(each.said is not None for each in self._followed.values()):
            return  # all of them are left alone for a while
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten if not is_full else ():
            forgotten.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        settings = self._settings
        frame = replica_fetch.encode(
            correlation_id=self._correlation_id,
            client_id=f"broker-{self._broker}-fetcher",
            broker=self._broker,
            incarnation=self._incarnation(),
            wait_ms_max=settings.wait_ms_max,
            bytes_min=settings.bytes_min,
            bytes_max=settings.bytes_max,
            partition_bytes_max=settings.partition_bytes_max,
            session=(session_id, session_epoch),
            wanted=wanted,
            forgotten=forgotten,
        )
        self._is_waiting = True
        if self._link is None:
            self._link = BrokerLink(
                self._reactor,
                self._resolving,
                self.endpoint.host,
                self.endpoint.port,
                answered=self._answered,
                lost=self._lost,
                timeout_s=(settings.socket_timeout_ms + settings.wait_ms_max) / 1000,
            )
        self._link.send(frame)

    def _lost(self, reason: str) -> None:
        self._link = None
        self._is_waiting = False
        self._begin_session()
        if not self._is_lost_said:
            self._is_lost_said = True
            where = f"{self.endpoint.host}:{self.endpoint.port}"
            log_event(
                logger, logging.WARNING, "replication waits for a leader", leader=self.leader, at=where, reason=reason
            )
        self._back_off()

    def _back_off(self) -> None:
        self._is_backing_off = True

        def again() -> None:
            self._is_backing_off = False
            self._go_on()

        self._reactor.call_later(self._settings.backoff_ms / 1000, again)

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _answered(self, frame: memoryview) -> None:
        self._is_waiting = False
        try:
            answer = replica_fetch.decode(frame)
        except MalformedError as error:
            self._give_up_link(str(error))
            return
        if answer.correlation_id != self._correlation_id:
            self._give_up_link(f"the answer to request {answer.correlation_id}, not {self._correlation_id}")
            return
        self._is_lost_said = False
        if answer.error != NONE:
            self._begin_session()
            if answer.error in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH):
                self._soon()
            else:
                log_event(logger, logging.WARNING, "a fetch was refused", leader=self.leader, code=answer.error)
                self._back_off()
            return
        epoch = self._session[1]
        self._session = (answer.session_id, 1 if epoch == SESSION_EPOCH_MAX else epoch + 1)
        if not answer.session_id:
            self._session = (0, replica_fetch.FULL_SESSION)
        now_ms = self._clock.now_ms()
        self._unwritten += 1  # for this loop itself
        for told in answer.partitions:
            each = self._followed.get((told.topic_id, told.partition))
            if each is not None and each.said is not None:
                self._take(each, each.said, told, frame, now_ms)
        self.one_written()

    def _give_up_link(self, reason: str) -> None:
        if self._link is not None:
            self._link.close()
        self._lost(reason)

    def _take(self, each: _Followed, asked: Wanted, told: Told, frame: memoryview, now_ms: int) -> None:
        log = each.log
        if log.deleted:
            return
        if log.end_offset != asked.offset or log.next_offset != asked.offset:
            # What this broker wrote as a leader came to the file only now: the answer is to an old question.
            self._changed[each.key] = None
            return
        if told.error == OFFSET_OUT_OF_RANGE and told.start_offset > log.end_offset:
            self._restarts[log] = told.start_offset
            self._changed[each.key] = None
            return
        if told.error != NONE:
            if told.error in (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER):
                self._read_again(log)
            self.delay(each, f"broker {self.leader} answered with error {told.error}")
            return
        if told.diverging is not None:
            epoch, end_offset = told.diverging
            own_epoch, own_end = log.end_offset_for_epoch(epoch)
            self._cuts[log] = min(end_offset, own_end) if own_epoch >= 0 else end_offset
            self._changed[each.key] = None
            return
        each.watermark = told.high_watermark
        each.start_offset = told.start_offset
        found = replica_fetch.batches(frame, told.start, told.end) if told.end > told.start else []
        if not found:
            each.keep_up()
            return
        self._changed[each.key] = None
        for start, end in found:
            each.unwritten += 1
            self._unwritten += 1
            try:
                log.appender.stage_replica(frame, start, end, each.epoch, now_ms, each)
            except (PeerError, OSError) as error:
                each.unwritten -= 1
                self._unwritten -= 1
                why = self._store.failed(log, error) if isinstance(error, OSError) else error
                self.delay(each, str(why))
                return

    def delay(self, each: _Followed, why: str) -> None:
        """Something is wrong with one partition: the others go on."""
        if each.delayed:
            return
        each.delayed = True
        self._changed[each.key] = None
        log_event(logger, logging.WARNING, "a replica waits", partition=each.log.name, reason=why)

        def again() -> None:
            each.delayed = False
            if self._followed.get(each.key) is each:
                self._changed[each.key] = None
                self._soon()

        self._reactor.call_later(self._settings.backoff_ms / 1000, again)

    # ── cutting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _cut(self) -> bool:
        """Cuts what has to be cut; False while a log is written, flushed or looked at: then it is tried again."""
        if not all(log.is_at_rest for log in (*self._cuts, *self._restarts)):
            self._reactor.call_later(REST_S, self._go_on)
            return False
        cuts, self._cuts = self._cuts, {}
        restarts, self._restarts = self._restarts, {}
        for log, offset in cuts.items():
            if offset < log.high_watermark:
                log_event(
                    logger,
                    logging.ERROR,
                    "committed records are cut: the leader does not have them",
                    partition=log.name,
                    offset=offset,
                    committed=log.high_watermark,
                )
        try:
            if cuts:
                self._store.truncate(cuts)
            for log, offset in restarts.items():
                self._store.start_again(log, offset)
        except StorageError as error:
            for each in self._followed.values():
                if each.log in cuts or each.log in restarts:
                    self.delay(each, str(error))
        return True
