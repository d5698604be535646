"""One task of a batch that goes to a topic: its rows in one Kafka transaction, with the batch's number in it.

This runs on Spark's workers. The transaction also commits `batch + 1` as the offset of a group that only this task
has; so what is in the topic and what is known to be in it change in one step. A task that finds its batch there skips
it; an older run of the same task that still lives is fenced off when this one begins. It must never commit before it
has seen its last row: a driver that dies looks to its workers like the end of the data.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pyarrow
    from confluent_kafka import Producer

ASK_S_MAX = 30.0
COMMIT_S_MAX = 60.0
COMMIT_TRIES_MAX = 3
TRANSACTION_TIMEOUT_MS = 300_000
POLL_ROWS = 1_000


class TopicTaskError(Exception):
    """A task could not write; the batch is run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTask:
    """`name` is that of the node in its pipeline and version; `task` its number."""

    name: str
    task: int
    batch: int
    topic: str
    config: Mapping[str, Any]
    transactional: bool = True

    @property
    def id(self) -> str:
        """Transactional id and group id."""
        return f"headrace/{self.name}/{self.task}"

    def run(self, batches: "Iterator[pyarrow.RecordBatch]") -> int:
        """The number of rows written; -1 when the batch was there already."""
        rows = _Rows(batches)
        first = rows.next_batch()
        if first is None:
            rows.check_whole(self.id)
            return 0
        if not self.transactional:
            return self._write_plainly(first, rows)
        with _Transaction(self) as transaction:
            if transaction.committed() > self.batch:
                while rows.next_batch() is not None:
                    pass
                return -1
            transaction.begin()
            columns: tuple[list[Any], ...] | None = first
            while columns is not None:
                transaction.produce(columns)
                columns = rows.next_batch()
            rows.check_whole(self.id)
            transaction.commit(self.batch + 1)
        return rows.count

    def _write_plainly(self, first: tuple[list[Any], ...], rows: "_Rows") -> int:
        """At least once: what Spark's own sink does. Only for the test that shows the difference."""
        from confluent_kafka import Producer

        producer = Producer({**self.config, "partitioner": "murmur2_random"})
        columns: tuple[list[Any], ...] | None = first
        while columns is not None:
            _produce(producer, self.topic, columns)
            columns = rows.next_batch()
        producer.flush(COMMIT_S_MAX)
        return rows.count


class _Rows:
    """The task's rows as lists, up to the mark that says that they are all."""

    def __init__(self, batches: "Iterator[pyarrow.RecordBatch]") -> None:
        self._batches = batches
        self._whole = False
        self.count = 0

    def next_batch(self) -> tuple[list[Any], ...] | None:
        for batch in self._batches:
            last = batch.column(3).to_pylist()
            rows = len(last)
            if rows and last[-1]:
                self._whole = True
                rows -= 1
            if rows:
                self.count += rows
                return tuple(batch.column(index).slice(0, rows).to_pylist() for index in range(3))
        return None

    def check_whole(self, name: str) -> None:
        if not self._whole:
            raise TopicTaskError(f"{name}: its rows ended before the last one; nothing was committed")


class _Transaction:
    def __init__(self, task: TopicTask) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._task = task
        self._open = False
        self._place = TopicPartition(task.topic, 0)
        self._producer = Producer(
            {
                **task.config,
                "transactional.id": task.id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "partitioner": "murmur2_random",  # what Java's clients do, so that a key stays in its partition
                "linger.ms": 5,
                # Else librdkafka 2.16 forgets its brokers when all are gone for a moment, but may wait without end for
                # one of them when it sends the offsets.
                "metadata.recovery.strategy": "none",
            }
        )
        self._group = Consumer(
            {**task.config, "group.id": task.id, "enable.auto.commit": False, "isolation.level": "read_committed"}
        )

    def __enter__(self) -> "_Transaction":
        # Fences whoever had this id, and ends what it left open: after this the committed offset is the truth.
        self._producer.init_transactions(ASK_S_MAX)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if self._open:
                self._producer.abort_transaction(ASK_S_MAX)
        except Exception:
            pass  # it times out at the broker, or the next init_transactions ends it
        finally:
            self._group.close()

    def committed(self) -> int:
        """The next batch that this task has to write."""
        place = self._group.committed([self._place], timeout=ASK_S_MAX)[0]
        if place.error is not None:
            raise TopicTaskError(f"{self._task.id}: {place.error}")
        return int(max(place.offset, 0))

    def begin(self) -> None:
        self._producer.begin_transaction()
        self._open = True

    def produce(self, columns: tuple[list[Any], ...]) -> None:
        _produce(self._producer, self._task.topic, columns)

    def commit(self, offset: int) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self._producer.send_offsets_to_transaction(
            [TopicPartition(self._task.topic, 0, offset)], self._group.consumer_group_metadata(), ASK_S_MAX
        )
        for attempt in range(COMMIT_TRIES_MAX):
            try:
                self._producer.commit_transaction(COMMIT_S_MAX)
                self._open = False
                return
            except KafkaException as error:
                if not error.args[0].retriable() or attempt == COMMIT_TRIES_MAX - 1:
                    raise


def _produce(producer: "Producer", topic: str, columns: tuple[list[Any], ...]) -> None:
    for index, (key, value, headers) in enumerate(zip(*columns, strict=True)):
        pairs = [(each["key"], each["value"]) for each in headers] if headers else None
        while True:
            try:
                if pairs is None:
                    producer.produce(topic, value, key)
                else:
                    producer.produce(topic, value, key, headers=cast(Any, pairs))
                break
            except BufferError:
                producer.poll(0.1)  # the queue is full: let some of it go out
        if index % POLL_ROWS == 0:
            producer.poll(0)
