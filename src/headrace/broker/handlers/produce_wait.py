"""A Produce request from the moment it is read until its last batch is as safe as it asks for, and then its answer.

With acks=0 and acks=1 that is when this broker has written it, with acks=all when every replica in sync has it, or
when the request's own time is over.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from headrace.broker.connection import Slot
from headrace.core.errors import PeerError, RecordsError
from headrace.protocol.error_codes import KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT
from headrace.protocol.framing import Chunk
from headrace.protocol.produce import KEY, Answer, Refusal, TopicKey, encode, refused

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.broker.handlers.produce import ProduceHandler
    from headrace.log.partition_log import PartitionLog
    from headrace.net.reactor import Timer


class ProduceWait(Slot):
    """One request under way: answered when the last of its batches is safe."""

    __slots__ = (
        "_chunk",
        "_correlation_id",
        "_handler",
        "_late",
        "_size",
        "_started",
        "_timeout_ms",
        "_timer",
        "_uncommitted",
        "acks",
        "answers",
        "client_id",
        "is_staged",
        "logs",
        "pending",
        "version",
    )

    def __init__(
        self,
        handler: ProduceHandler,
        connection: Connection,
        chunk: Chunk,
        size: int,
        version: int,
        correlation_id: int,
        acks: int,
        timeout_ms: int,
    ) -> None:
        self.connection = connection
        self.client_id = connection.session.client_id  # of this request, whatever the next one says
        self.barrier = False
        self.bytes_held = 0
        self.parts = None
        self.acks = acks
        self.answers: list[Answer] = []
        self.logs: list[PartitionLog | None] = []  # whose answer stands where; None where it was refused
        self.pending = 1  # one for the handler itself, while it stages
        self.is_staged = False
        self._handler = handler
        self._chunk: Chunk | None = chunk
        self._timeout_ms = timeout_ms
        self._timer: Timer | None = None
        self._uncommitted: list[PartitionLog] = []  # written here, and not yet by all others
        self._late: list[PartitionLog] = []  # of them, those that are answered as late
        self._size = size
        self.version = version
        self._correlation_id = correlation_id
        self._started = handler.reactor.turn_started

    def refuse(self, key: TopicKey, index: int, error: PeerError) -> None:
        record_errors = error.records if isinstance(error, RecordsError) else ()
        self.answers.append(refused(key, index, error.code, Refusal(error.message, record_errors)))
        self.logs.append(None)
        self._handler.metrics.error(error.code)

    def staged(self) -> None:
        """The handler is through with it."""
        self.is_staged = True
        if self.pending == 1:
            self.done(None, None)  # nothing is under way
        else:
            self.pending -= 1
            if self.pending == len(self._uncommitted):
                self._let_go()

    def give_up(self, error: BaseException) -> None:
        """A bug of ours ends the connection. What the request pins and counts is let go when all of it that was staged
        before is written."""
        self.connection.broke(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        if not self.is_staged:
            self.staged()

    def written(self, log: PartitionLog) -> None:
        """The bytes that were sent are not needed any more once all of them are written."""
        self._uncommitted.append(log)
        if self._timer is None:
            self._timer = self._handler.reactor.call_later(max(self._timeout_ms, 0) / 1000, self._expire)
        if self.is_staged and self.pending == len(self._uncommitted):
            self._let_go()

    def _expire(self) -> None:
        """It is written here; whether the others will have it is not known in time."""
        self._timer = None  # what is written only now has its own time
        why = f"not committed within {self._timeout_ms} ms"
        waiting, self._uncommitted = self._uncommitted, []
        self._late += waiting
        for log in waiting:
            self._fail(log, PeerError(REQUEST_TIMED_OUT, f"{log.name}: {why}"))
        self.pending -= len(waiting)
        if waiting and not self.pending:
            self._answer()

    def done(self, log: PartitionLog | None, error: Exception | None) -> None:
        if log is not None and (self._uncommitted or self._late):
            if log in self._late:
                self._late.remove(log)
                return
            if log in self._uncommitted:
                self._uncommitted.remove(log)
        if error is not None and log is not None:
            self._fail(log, error)
        self.pending -= 1
        if not self.pending:
            self._answer()
        elif self._uncommitted and self.is_staged and self.pending == len(self._uncommitted):
            self._let_go()

    def _fail(self, log: PartitionLog, error: Exception) -> None:
        code = error.code if isinstance(error, PeerError) else KAFKA_STORAGE_ERROR
        for at, each in enumerate(self.logs):
            if each is log:
                key, numbers, _ = self.answers[at]
                self.answers[at] = refused(key, numbers[0], code, Refusal(str(error)))

    def _let_go(self) -> None:
        chunk = self._chunk
        if chunk is not None:
            self._chunk = None
            chunk.unpin()
            self._handler.server.end(self.connection, self._size)

    def _answer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._let_go()
        connection = self.connection
        self._handler.metrics.produce_latency.observe(perf_counter() - self._started)
        if self.acks != 0:
            throttle = self._handler.throttle
            throttle_ms = 0
            if not throttle.is_open:
                throttle_ms = throttle.ms(connection.session, self.client_id, KEY, self._size)
            self.parts = [encode(self.version, self._correlation_id, self.answers, throttle_ms)]
            connection.answered(self)
        elif any(numbers[1] for _, numbers, _ in self.answers):
            # With acks=0 a closed connection is the only way to say that something went wrong.
            connection.close()
        elif not connection.closed:
            connection.settle()
