"""Produce (0), versions 3 to 13: the hottest path of the broker.

A batch is checked, staged and, at the end of the turn, written; the answer goes out when it is. What a
request holds in memory is pinned until then. Where the records take long to look at, or a topic asks for another
compression than the producer used, a thread does that first, and the connection's next request waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Final

from headrace.broker.connection import Slot
from headrace.broker.handlers.transaction_errors import IMPLICIT_SINCE, for_produce
from headrace.core.errors import PeerError, RecordsError
from headrace.log.admission import UNCHECKED, check_slowly
from headrace.protocol.batch import HEADER_BYTES, PRODUCER, PRODUCER_AT, TRANSACTIONAL, check_produced
from headrace.protocol.error_codes import (
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from headrace.protocol.framing import Chunk
from headrace.protocol.produce import Answer, ProduceRequest, Refusal, TopicKey, encode, refused
from headrace.protocol.records import recompress

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.broker.node import Node
    from headrace.broker.topics import Topic
    from headrace.log.config import LogConfig
    from headrace.log.partition_log import PartitionLog

    _SlowBatch = tuple[TopicKey, int, PartitionLog, memoryview, int, int]  # topic, partition, log, data[start:end]
    _ToPack = tuple[int, int, int, int | None, str, LogConfig]  # start, end, codec, level; the log's name and settings

_ATTRIBUTES: Final = 22  # the low byte of a batch's attributes

# By where a batch starts: what stands for it and the largest timestamp in it, or why it is refused.
Packed = dict[int, tuple[bytearray, int] | PeerError]


class ProduceWait(Slot):
    """One request under way: answered when the last of its batches is written."""

    __slots__ = (
        "_chunk",
        "_correlation_id",
        "_node",
        "_size",
        "_started",
        "acks",
        "answers",
        "is_staged",
        "logs",
        "pending",
        "version",
    )

    def __init__(
        self,
        node: Node,
        connection: Connection,
        chunk: Chunk,
        size: int,
        version: int,
        correlation_id: int,
        acks: int,
    ) -> None:
        self.connection = connection
        self.barrier = False
        self.bytes_held = 0
        self.parts = None
        self.acks = acks
        self.answers: list[Answer] = []
        self.logs: list[PartitionLog | None] = []  # whose answer stands where; None where it was refused
        self.pending = 1  # one for the handler itself, while it stages
        self.is_staged = False
        self._node = node
        self._chunk = chunk
        self._size = size
        self.version = version
        self._correlation_id = correlation_id
        self._started = node.reactor.turn_started

    def refuse(self, key: TopicKey, index: int, error: PeerError) -> None:
        record_errors = error.records if isinstance(error, RecordsError) else ()
        self.answers.append(refused(key, index, error.code, Refusal(error.message, record_errors)))
        self.logs.append(None)
        self._node.metrics.error(error.code)

    def staged(self) -> None:
        """The handler is through with it."""
        self.is_staged = True
        if self.pending == 1:
            self.done(None, None)  # nothing is under way
        else:
            self.pending -= 1

    def give_up(self, error: BaseException) -> None:
        """A bug of ours ends the connection. What the request pins and counts is let go when all of it that was staged
        before is written."""
        self.connection.broke(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        if not self.is_staged:
            self.staged()

    def done(self, log: PartitionLog | None, error: Exception | None) -> None:
        if error is not None:
            for at, each in enumerate(self.logs):
                if each is log:
                    key, numbers, _ = self.answers[at]
                    self.answers[at] = refused(key, numbers[0], KAFKA_STORAGE_ERROR, Refusal(str(error)))
        self.pending -= 1
        if self.pending:
            return
        self._chunk.unpin()
        connection = self.connection
        node = self._node
        node.server.end(connection, self._size)
        node.metrics.produce_latency.observe(perf_counter() - self._started)
        if self.acks != 0:
            self.parts = [encode(self.version, self._correlation_id, self.answers)]
            connection.answered(self)
        elif any(numbers[1] for _, numbers, _ in self.answers):
            # With acks=0 a closed connection is the only way to say that something went wrong.
            connection.close()
        elif not connection.closed:
            connection.settle()


class ProduceHandler:
    __slots__ = ("_topics", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._topics = node.topics

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
        node = self.node
        acks = request[1]
        size = end - at
        node.server.begin(connection, size)
        wait = ProduceWait(node, connection, chunk, size, version, correlation_id, acks)
        if acks != 0:
            connection.waiting.append(wait)
        try:
            if len(request[3]) != 1 or len(request[3][0][1]) != 1:
                request = _last_of_each(request)
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
            _Packing(self, request, view, wait, to_pack, refused).begin()
        else:
            self.stage(request, view, wait, refused)

    def stage(
        self,
        request: ProduceRequest,
        view: memoryview,
        wait: ProduceWait,
        packed: Packed | None,
    ) -> None:
        now_ms = self.node.turn_ms()
        topics = self._topics
        acks_are_valid = -1 <= wait.acks <= 1
        transactional = request[0] is not None
        slow: list[_SlowBatch] = []
        for key, wanted in request[3]:
            topic = topics.by_name.get(key) if type(key) is str else topics.by_wire_id(key)  # type: ignore[arg-type]
            for index, start, end in wanted:
                try:
                    if topic is None or not acks_are_valid or not 0 <= index < len(topic.partitions) or topic.internal:
                        raise self._unfit(topic, key, index, wait.acks)
                    log = topic.partitions[index].log
                    if log is None:
                        raise PeerError(KAFKA_STORAGE_ERROR, f"{topic.name}-{index}: its log directory is offline")
                    data, largest = view, UNCHECKED
                    if packed and (other := packed.get(start)) is not None:
                        if isinstance(other, PeerError):
                            raise other
                        data, start, end, largest = memoryview(other[0]), 0, len(other[0]), other[1]
                    if not self.place(wait, key, index, log, data, start, end, now_ms, transactional, largest):
                        slow.append((key, index, log, data, start, end))
                except PeerError as error:
                    wait.refuse(key, index, error)
        if slow:
            _SlowCheck(self, wait, slow, now_ms, request[0]).begin()
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
            base_offset, append_time = log.stage(
                data, start, end, now_ms, wait, transactional=transactional, largest=largest
            )
        except PeerError:
            wait.pending -= 1
            raise
        except OSError as error:
            wait.pending -= 1
            raise PeerError(KAFKA_STORAGE_ERROR, str(self.node.store.failed(log, error))) from error
        except Exception:
            if not log.groups or wait not in log.groups[-1].waiters:  # else its memory is needed until it is written
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

    # ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────

    def _verify_first(
        self, connection: Connection, request: ProduceRequest, view: memoryview, wait: ProduceWait, version: int
    ) -> None:
        """A transactional batch is taken only if its partition is in the transaction, or can be added to it now."""
        transactions, transactional_id = self.node.transactions, request[0] or ""
        refused: Packed = {}
        missing: list[tuple[str, int, int]] = []  # topic, partition, where its batch starts
        producer = (-1, -1)
        for topic, index, start, log in self.transactional(request, view):
            producer = PRODUCER.unpack_from(view, start + PRODUCER_AT)
            entry = log.producers.get(producer[0])
            if entry is not None and entry.epoch == producer[1] and entry.txn_first_offset >= 0:
                continue  # it was asked for when the first batch of this transaction came
            code = transactions.verify(transactional_id, *producer, topic, index)
            if code == NONE:
                continue
            if version >= IMPLICIT_SINCE:
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
        transactions.add_implicitly(transactional_id, *producer, partitions, decided)

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
        code = self.node.transactions.verify(transactional_id, producer_id, epoch, log.topic, log.index)
        if code != NONE:
            raise _outside(for_produce(code, version), log.topic, log.index)

    def transactional(self, request: ProduceRequest, view: memoryview) -> Iterator[tuple[str, int, int, PartitionLog]]:
        """(topic, partition, start, log) of the request's transactional batches."""
        for key, wanted in request[3]:
            topic = self._topics.by_name.get(key) if isinstance(key, str) else self._topics.by_wire_id(key)
            for index, start, end in wanted if topic is not None else ():
                if topic is None or not 0 <= index < len(topic.partitions) or end - start < HEADER_BYTES:
                    continue
                log = topic.partitions[index].log
                if log is not None and view[start + _ATTRIBUTES] & TRANSACTIONAL:
                    yield topic.name, index, start, log

    # ── another compression than the producer's ──────────────────────────────────────────────────────────────────

    def _to_pack(self, request: ProduceRequest, view: memoryview) -> list[_ToPack]:
        """The batches whose topic names another codec."""
        found: list[_ToPack] = []
        for key, wanted in request[3]:
            topic = self._topics.get(key) if isinstance(key, str) else self._topics.by_wire_id(key)
            if topic is None or topic.config.compression_type == "producer":
                continue
            for index, start, end in wanted:
                if not 0 <= index < len(topic.partitions) or end - start < HEADER_BYTES:
                    continue
                log = topic.partitions[index].log
                codec = log.needs_conversion(view[start + _ATTRIBUTES]) if log is not None else None
                if log is not None and codec is not None:
                    found.append((start, end, codec, topic.config.compression_level, log.name, log.config))
        return found


class _Packing:
    """Batches of one request that a thread packs anew before any of them is staged: one by one, so that those of other
    clients have their turn in between."""

    __slots__ = ("_handler", "_now_ms", "_packed", "_refused", "_request", "_view", "_wait", "_wanted")

    def __init__(
        self,
        handler: ProduceHandler,
        request: ProduceRequest,
        view: memoryview,
        wait: ProduceWait,
        wanted: list[_ToPack],
        refused: Packed | None,
    ) -> None:
        self._handler = handler
        self._request = request
        self._view = view
        self._wait = wait
        self._wanted = wanted
        self._refused = refused
        self._packed: Packed = {}
        self._now_ms = handler.node.turn_ms()

    def begin(self) -> None:
        self._wait.connection.barriers += 1
        self._handler.node.slow_workers.submit(self.pack, self.done)

    def pack(self) -> tuple[bytearray, int] | PeerError:
        """In the thread: the next batch as it is kept, with the largest timestamp in it; or why it is refused."""
        start, end, codec, level, name, config = self._wanted[len(self._packed)]
        view = self._view
        try:
            check_produced(view, start, end)
            largest = check_slowly(name, config, view, start, end, self._now_ms)
            return recompress(bytes(view[start:end]), codec, level), largest
        except PeerError as error:
            return error

    def done(self, result: object, error: BaseException | None) -> None:
        wait = self._wait
        try:
            if error is not None:
                wait.give_up(error)
                return
            self._packed[self._wanted[len(self._packed)][0]] = result  # type: ignore[assignment]
            if len(self._packed) < len(self._wanted):
                self._handler.node.slow_workers.submit(self.pack, self.done)
                return
            wait.connection.barriers -= 1
            self._stage()
            wait.connection.settle()
        except Exception as failed:
            wait.give_up(failed)

    def _stage(self) -> None:
        request, view, wait = self._request, self._view, self._wait
        packed = self._packed
        if request[0] is not None:
            for _, _, start, log in self._handler.transactional(request, view):
                try:
                    self._handler.verify_again(request[0], log, view, start, wait.version)
                except PeerError as outside:
                    packed[start] = outside
        self._handler.stage(request, view, wait, {**packed, **(self._refused or {})})


class _SlowCheck:
    """Batches of one request whose records are looked at in a thread, then staged on the loop: one by one, so that
    those of other clients have their turn in between."""

    __slots__ = ("_at", "_batches", "_handler", "_now_ms", "_transactional_id", "_wait")

    def __init__(
        self,
        handler: ProduceHandler,
        wait: ProduceWait,
        batches: list[_SlowBatch],
        now_ms: int,
        transactional_id: str | None,
    ) -> None:
        self._handler = handler
        self._wait = wait
        self._batches = batches
        self._at = 0  # which of them is with the thread
        self._now_ms = now_ms
        self._transactional_id = transactional_id

    def begin(self) -> None:
        self._wait.connection.barriers += 1
        self._handler.node.slow_workers.submit(self.check, self.done)

    def check(self) -> int | PeerError:
        """In the thread: the largest timestamp of the batch, or why it is refused."""
        _, _, log, data, start, end = self._batches[self._at]
        try:
            return check_slowly(log.name, log.config, data, start, end, self._now_ms)
        except PeerError as error:
            return error
        except (MemoryError, OSError) as error:
            why = f"{log.name}: no memory to inflate a batch of {end - start} bytes ({error}); send it again"
            return PeerError(KAFKA_STORAGE_ERROR, why)

    def done(self, result: object, error: BaseException | None) -> None:
        wait = self._wait
        try:
            if error is not None:
                wait.give_up(error)
                return
            self._place(result)
            self._at += 1
            if self._at < len(self._batches):
                self._handler.node.slow_workers.submit(self.check, self.done)
                return
            wait.connection.barriers -= 1
            wait.staged()
            wait.connection.settle()
        except Exception as failed:
            wait.give_up(failed)

    def _place(self, found: object) -> None:
        key, index, log, data, start, end = self._batches[self._at]
        wait, handler, transactional_id = self._wait, self._handler, self._transactional_id
        try:
            if not isinstance(found, int):
                raise found if isinstance(found, PeerError) else TypeError(f"{found!r} is not a timestamp")
            if log.deleted:
                raise PeerError(UNKNOWN_TOPIC_OR_PARTITION, f"{log.name}: deleted while its records were checked")
            if transactional_id is not None:
                handler.verify_again(transactional_id, log, data, start, wait.version)
            now_ms = handler.node.turn_ms()
            handler.place(wait, key, index, log, data, start, end, now_ms, transactional_id is not None, found)
        except PeerError as refusal:
            wait.refuse(key, index, refusal)


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


def _outside(code: int, topic: str, index: int) -> PeerError:
    return PeerError(code, f"{topic}-{index}: this batch is in no open transaction of its producer")
