"""Produce (0), versions 3 to 13: the hottest path of the broker.

A batch is checked, staged and, at the end of the turn, written; the answer goes out when it is. What a
request holds in memory is pinned until then. Where the records take long to look at, or a topic asks for another
compression than the producer used, a thread does that first, and the connection's next request waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from headrace.broker.handlers.produce_slowly import AT_ONCE_MAX, Packed, Packing, SlowCheck, Staging, is_short
from headrace.broker.handlers.produce_wait import ProduceWait
from headrace.broker.handlers.transaction_errors import IMPLICIT_SINCE, for_produce
from headrace.broker.rights import WRITE_TOPIC, WRITE_TRANSACTION, refused
from headrace.core.errors import PeerError
from headrace.log.admission import UNCHECKED
from headrace.protocol.batch import HEADER_BYTES, PRODUCER, PRODUCER_AT, TRANSACTIONAL
from headrace.protocol.error_codes import (
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from headrace.protocol.framing import Chunk
from headrace.protocol.produce import ProduceRequest, TopicKey, Wanted

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.connection import Connection
    from headrace.broker.handlers.produce_slowly import SlowBatch, ToPack
    from headrace.broker.metrics import Metrics
    from headrace.broker.parts import ProduceParts
    from headrace.broker.quotas import Throttle
    from headrace.broker.server import Server
    from headrace.broker.topics import Topic
    from headrace.broker.turn_clock import TurnClock
    from headrace.log.partition_log import PartitionLog
    from headrace.net.workers import Workers

_ATTRIBUTES: Final = 22  # the low byte of a batch's attributes


class ProduceHandler:
    __slots__ = (
        "_coordinators",
        "_rights",
        "_store",
        "_topics",
        "clock",
        "metrics",
        "reactor",
        "server",
        "slow_workers",
        "throttle",
    )

    def __init__(
        self,
        parts: ProduceParts,
        clock: TurnClock,
        server: Server,
        metrics: Metrics,
        throttle: Throttle,
        slow_workers: Workers,
    ) -> None:
        """`server` counts the memory that requests take, `slow_workers` look at what takes long."""
        self._topics = parts.topics
        self._store = parts.store
        self._coordinators = parts.coordinators
        self._rights = parts.rights
        self.throttle = throttle
        self.clock = clock
        self.server = server
        self.reactor = server.reactor
        self.metrics = metrics
        self.slow_workers = slow_workers

    def handle(
        self, connection: Connection, chunk: Chunk, at: int, end: int, version: int, correlation_id: int
    ) -> None:
        """Takes over the chunk's pin."""
        view = chunk.view
        try:
            request = connection.produce_decoder.decode(view, at, end, version)
        except BaseException:
            chunk.unpin()
            raise
        acks = request[1]
        size = end - at
        self.server.begin(connection, size)
        wait = ProduceWait(self, connection, chunk, size, version, correlation_id, acks, request[2])
        if acks != 0:
            connection.waiting.append(wait)
        try:
            if len(request[3]) != 1 or len(request[3][0][1]) != 1:
                request = _last_of_each(request)
            if not self._rights.is_open:
                request = self._allowed(connection.session, request, view, wait)
            if request[0] is not None:
                self._verify_first(connection, request, view, wait, version)
            else:
                self._go_on(connection, request, view, wait, None)
        except Exception as error:
            wait.give_up(error)

    def _go_on(
        self,
        connection: Connection,
        request: ProduceRequest,
        view: memoryview,
        wait: ProduceWait,
        refused: Packed | None,
    ) -> None:
        """With batches of which some may have been refused already."""
        if self._topics.packs_anew and (to_pack := self._to_pack(request, view)):
            Packing(self, request, view, wait, to_pack, refused).begin()
        else:
            self.stage(request, view, wait, refused)

    def stage(
        self,
        request: ProduceRequest,
        view: memoryview,
        wait: ProduceWait,
        packed: Packed | None,
    ) -> None:
        topics = request[3]
        if (len(topics) == 1 and len(topics[0][1]) <= AT_ONCE_MAX) or is_short(topics):
            slow: list[SlowBatch] = []
            self.stage_some(topics, view, wait, packed, request[0], slow, again=False)
            self.stage_slow(request, wait, slow)
        else:
            Staging(self, request, view, wait, packed).begin()

    def stage_some(
        self,
        topics: list[Wanted],
        view: memoryview,
        wait: ProduceWait,
        packed: Packed | None,
        transactional_id: str | None,
        slow: list[SlowBatch],
        *,
        again: bool,
    ) -> None:
        """Stages these batches, or puts them among the slow ones. `again`: others were served since the transaction
        was asked."""
        now_ms = self.clock.now_ms()
        known = self._topics
        acks_are_valid = -1 <= wait.acks <= 1
        transactional = transactional_id is not None
        for key, wanted in topics:
            # What `by_key` does, without its call: it is interpreted, and this is the hottest loop.
            topic = known.by_name.get(key) if type(key) is str else known.by_wire_id(key)  # type: ignore[arg-type]
            for index, start, end in wanted:
                try:
                    if topic is None or not acks_are_valid or not 0 <= index < len(topic.partitions) or topic.internal:
                        raise self._unfit(topic, key, index, wait.acks)
                    partition = topic.partitions[index]
                    log = partition.led
                    if log is None:
                        raise partition.refusal()
                    if wait.acks < 0 and (too_few := partition.too_few()) is not None:
                        raise too_few
                    data, largest = view, UNCHECKED
                    if packed and (other := packed.get(start)) is not None:
                        if isinstance(other, PeerError):
                            raise other
                        data, start, end, largest = memoryview(other[0]), 0, len(other[0]), other[1]
                    if again and transactional_id is not None and end - start >= HEADER_BYTES:
                        self.verify_again(transactional_id, log, data, start, wait.version)
                    if not self.place(wait, key, index, log, data, start, end, now_ms, transactional, largest):
                        slow.append((key, index, log, data, start, end))
                except PeerError as error:
                    wait.refuse(key, index, error)

    def check_led(self, key: TopicKey, index: int, log: PartitionLog) -> None:
        """That this broker still leads the partition with that log, after others were served."""
        topic = self._topics.by_key(key)
        if log.deleted or topic is None or not 0 <= index < len(topic.partitions):
            raise PeerError(UNKNOWN_TOPIC_OR_PARTITION, f"{log.name}: deleted while its records were checked")
        if topic.partitions[index].led is not log:
            raise topic.partitions[index].refusal()

    def stage_slow(self, request: ProduceRequest, wait: ProduceWait, slow: list[SlowBatch]) -> None:
        """What a thread must look at first; if there is nothing of the kind all of the request is staged."""
        if slow:
            SlowCheck(self, wait, slow, self.clock.now_ms(), request[0]).begin()
        else:
            wait.staged()

    def place(
        self,
        wait: ProduceWait,
        key: TopicKey,
        index: int,
        log: PartitionLog,
        data: memoryview,
        start: int,
        end: int,
        now_ms: int,
        transactional: bool,
        largest: int,
    ) -> bool:
        """Stages one batch; False if its records must be looked at in a thread first."""
        wait.pending += 1  # first, since a duplicate is done before `stage` returns
        try:
            base_offset, append_time = log.appender.stage(
                data,
                start,
                end,
                now_ms,
                wait,
                transactional=transactional,
                largest=largest,
                until_committed=wait.acks < 0,
            )
        except PeerError:
            wait.pending -= 1
            raise
        except OSError as error:
            wait.pending -= 1
            raise PeerError(KAFKA_STORAGE_ERROR, str(self._store.failed(log, error))) from error
        except Exception:
            if not log.appender.awaits(wait):  # else its memory is needed until it is written
                wait.pending -= 1
            raise
        if base_offset == UNCHECKED:
            wait.pending -= 1
            return False
        wait.answers.append((key, (index, NONE, base_offset, append_time, log.start_offset), None))
        wait.logs.append(log)
        return True

    def _unfit(self, topic: Topic | None, key: TopicKey, index: int, acks: int) -> PeerError:
        """Why a request cannot be about this partition."""
        if topic is None:
            code = UNKNOWN_TOPIC_OR_PARTITION if isinstance(key, str) else UNKNOWN_TOPIC_ID
            return PeerError(code, "This server does not host this topic-partition.")
        if not -1 <= acks <= 1:
            return PeerError(INVALID_REQUIRED_ACKS, f"acks={acks}; only -1, 0 and 1 are valid")
        if not 0 <= index < len(topic.partitions):
            return PeerError(UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return PeerError(INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic.name}")

    # ── rights ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _allowed(
        self, session: ClientSession, request: ProduceRequest, view: memoryview, wait: ProduceWait
    ) -> ProduceRequest:
        """What the session may write; the rest is refused, before anybody learns whether there is such a topic."""
        rights, transactional_id = self._rights, request[0]
        if _has_transactional(request, view) and (
            transactional_id is None or not rights.allows(session, WRITE_TRANSACTION, transactional_id)
        ):
            for topic in request[3]:
                _refuse_topic(topic, refused(WRITE_TRANSACTION), wait)
            return None, request[1], request[2], []
        kept: list[Wanted] = []
        for topic in request[3]:
            known = self._topics.by_wire_id(topic[0]) if isinstance(topic[0], bytes) else None
            name = known.name if known is not None else topic[0]
            if isinstance(name, bytes) or rights.allows(session, WRITE_TOPIC, name):
                kept.append(topic)
            else:
                _refuse_topic(topic, refused(WRITE_TOPIC), wait)
        return transactional_id, request[1], request[2], kept

    # ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────

    def _verify_first(
        self, connection: Connection, request: ProduceRequest, view: memoryview, wait: ProduceWait, version: int
    ) -> None:
        """A transactional batch is taken only if its partition is in the transaction, or can be added to it now."""
        transactions, transactional_id = self._coordinators().transactions, request[0] or ""
        refused: Packed = {}
        missing: list[tuple[str, int, int]] = []  # topic, partition, where its batch starts
        producers: set[tuple[int, int]] = {
            PRODUCER.unpack_from(view, start + PRODUCER_AT) for _, _, start, _ in self.transactional(request, view)
        }
        if len(producers) > 1:  # only one of them would be added to the transaction, and nobody would end the others'
            why = "Transactional records contained more than one producer ID"
            for topic_wanted in request[3]:
                _refuse_topic(topic_wanted, PeerError(INVALID_PRODUCER_ID_MAPPING, why), wait)
            self._go_on(connection, (None, request[1], request[2], []), view, wait, None)
            return
        producer = next(iter(producers), (-1, -1))
        for topic, index, start, log in self.transactional(request, view):
            entry = log.producers.get(producer[0])
            if entry is not None and entry.epoch == producer[1] and entry.txn_first_offset >= 0:
                continue  # it was asked for when the first batch of this transaction came
            code = transactions.verify(transactional_id, *producer, topic, index)
            if code == NONE:
                continue
            if version >= IMPLICIT_SINCE or code == NOT_COORDINATOR:  # then another broker is
                missing.append((topic, index, start))
            else:
                refused[start] = _outside(for_produce(code, version), topic, index)
        if not missing:
            self._go_on(connection, request, view, wait, refused)
            return
        connection.barriers += 1

        def decided(code: int) -> None:
            connection.barriers -= 1
            try:
                if code != NONE:
                    for topic, index, start in missing:
                        refused[start] = _outside(for_produce(code, version), topic, index)
                self._go_on(connection, request, view, wait, refused)
                connection.settle()
            except Exception as error:
                wait.give_up(error)

        partitions = [(topic, index) for topic, index, _ in missing]
        self._coordinators().ask_transaction(
            transactional_id, *producer, partitions, decided, adds=version >= IMPLICIT_SINCE
        )

    def verify_again(
        self, transactional_id: str, log: PartitionLog, data: memoryview, start: int, version: int
    ) -> None:
        """The transaction may have ended while a thread looked at the batch: it must not begin a new one."""
        if not data[start + _ATTRIBUTES] & TRANSACTIONAL:
            return
        producer_id, epoch = PRODUCER.unpack_from(data, start + PRODUCER_AT)
        entry = log.producers.get(producer_id)
        if entry is not None and entry.epoch == epoch and entry.txn_first_offset >= 0:
            return
        code = self._coordinators().verify_again(transactional_id, producer_id, epoch, log.topic, log.index)
        if code != NONE:
            raise _outside(for_produce(code, version), log.topic, log.index)

    def transactional(self, request: ProduceRequest, view: memoryview) -> Iterator[tuple[str, int, int, PartitionLog]]:
        """(topic, partition, start, log) of the request's transactional batches."""
        for key, wanted in request[3]:
            topic = self._topics.by_key(key)
            for index, start, end in wanted if topic is not None else ():
                if topic is None or not 0 <= index < len(topic.partitions) or end - start < HEADER_BYTES:
                    continue
                log = topic.partitions[index].led
                if log is not None and view[start + _ATTRIBUTES] & TRANSACTIONAL:
                    yield topic.name, index, start, log

    # ── another compression than the producer's ──────────────────────────────────────────────────────────────────

    def _to_pack(self, request: ProduceRequest, view: memoryview) -> list[ToPack]:
        """The batches whose topic names another codec."""
        found: list[ToPack] = []
        for key, wanted in request[3]:
            topic = self._topics.by_key(key)
            if topic is None or topic.config.compression_type == "producer":
                continue
            for index, start, end in wanted:
                if not 0 <= index < len(topic.partitions) or end - start < HEADER_BYTES:
                    continue
                log = topic.partitions[index].led
                codec = log.needs_conversion(view[start + _ATTRIBUTES]) if log is not None else None
                if log is not None and codec is not None:
                    found.append((start, end, codec, topic.config.compression_level, log.name, log.config))
        return found


def _last_of_each(request: ProduceRequest) -> ProduceRequest:
    """Of a partition that is named twice the last batch counts, and is answered, as in Kafka."""
    topics = request[3]
    if len({key for key, _ in topics}) == len(topics):
        for _, wanted in topics:
            if len({entry[0] for entry in wanted}) != len(wanted):
                break
        else:
            return request
    last: dict[TopicKey, dict[int, tuple[int, int, int]]] = {}
    for key, wanted in topics:
        of_topic = last.setdefault(key, {})
        for entry in wanted:
            of_topic[entry[0]] = entry
    return request[0], request[1], request[2], [(key, list(of_topic.values())) for key, of_topic in last.items()]


def _has_transactional(request: ProduceRequest, view: memoryview) -> bool:
    for _, wanted in request[3]:
        for _, start, end in wanted:
            if end - start >= HEADER_BYTES and view[start + _ATTRIBUTES] & TRANSACTIONAL:
                return True
    return False


def _refuse_topic(topic: Wanted, refusal: PeerError, wait: ProduceWait) -> None:
    for index, _, _ in topic[1]:
        wait.refuse(topic[0], index, refusal)


def _outside(code: int, topic: str, index: int) -> PeerError:
    return PeerError(code, f"{topic}-{index}: this batch is in no open transaction of its producer")
