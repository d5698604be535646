"""A Produce request from the moment it is read until its last batch is written, and then its answer."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from headrace.broker.connection import Slot
from headrace.core.errors import PeerError, RecordsError
from headrace.protocol.error_codes import KAFKA_STORAGE_ERROR
from headrace.protocol.framing import Chunk
from headrace.protocol.produce import Answer, Refusal, TopicKey, encode, refused

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.broker.node import Node
    from headrace.log.partition_log import PartitionLog


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
