"""`latency="realtime"`: from topic to topic by Spark's real-time trigger and its own Kafka sink, at least once.

There are no batches to hook on to, so what cannot be parsed is found by a second, ordinary query over the same topics,
which writes nothing but the quarantine. To the supervisor the two are one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.streaming.assembling import Assembled
from headrace.streaming.declarations import TopicOutput, TopicStream
from headrace.streaming.delta_writes import Stamp
from headrace.streaming.parsing import Parser
from headrace.streaming.quarantine import Quarantine, unparsed
from headrace.streaming.reached import usable
from headrace.streaming.topic_sink import record_columns
from headrace.tables.provenance import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT_EVERY = "5 seconds"  # how long one real-time batch lasts: what may come twice after a failure


class RealtimeState:
    """What is known of its batches: nothing. The fields are those of a BatchWriter."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.batch: int | None = None
        self.written = False
        self.ranges: tuple[Source, ...] = ()
        self.records_read: int | None = None
        self.rows_written: int | None = None


class Together:
    """Several queries that live and die as one; what is reported is the first one's."""

    def __init__(self, queries: "Sequence[StreamingQuery]") -> None:
        self._queries = queries

    @property
    def isActive(self) -> bool:  # noqa: N802 - the name that Spark gave it
        if all(query.isActive for query in self._queries):
            return True
        if self.exception() is not None:
            self.stop()
        return any(query.isActive for query in self._queries)

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        return self._queries[0].lastProgress

    @property
    def recentProgress(self) -> Any:  # noqa: N802
        return self._queries[0].recentProgress

    def awaitTermination(self) -> None:  # noqa: N802
        """Of the first: whether another has ended is asked now and then."""
        self._queries[0].awaitTermination()

    def exception(self) -> Any:
        return next((found for query in self._queries if (found := query.exception()) is not None), None)

    def stop(self) -> None:
        for query in self._queries:
            query.stop()


def start_realtime(
    assembled: Assembled, output: TopicOutput, *, topic: str, name: str, checkpoint: str, once: bool,
    options: Mapping[str, str],
) -> "StreamingQuery":  # fmt: skip
    frame = assembled.frame
    key, value, headers = record_columns(frame, output)
    records = frame.select(key.alias("key"), value.alias("value"), headers.alias("headers"))
    writer: Any = (
        records.writeStream.format("kafka")
        .queryName(name)
        .outputMode("append" if once else "update")
        .options(**options)
        .options(**{f"kafka.{key}": value for key, value in output.options.items()})
        .option("topic", topic)
        .option("includeHeaders", "true")
        .option("checkpointLocation", usable(checkpoint))
        .options(**assembled.node.options)
    )
    every = assembled.node.trigger or CHECKPOINT_EVERY
    writer = writer.trigger(availableNow=True) if once else writer.trigger(realTime=every)
    query: StreamingQuery = writer.start()
    return query


def start_quarantine(
    raw: "DataFrame",
    topic: TopicStream,
    parser: Parser,
    *,
    path: str,
    name: str,
    checkpoint: str,
    once: bool,
    stamp: Callable[[int], Stamp],
) -> "StreamingQuery":
    """Writes what cannot be parsed of a topic, and reads past all else."""

    table = Quarantine(path)

    def write(frame: "DataFrame", batch: int) -> None:
        table.write([unparsed(frame, parser, stamp(batch).as_part(f"unparsed/{topic.topic}"))])

    table.create(raw.sparkSession)
    writer: Any = raw.writeStream.foreachBatch(write).queryName(name)
    writer = writer.option("checkpointLocation", usable(checkpoint))
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=CHECKPOINT_EVERY)
    query: StreamingQuery = writer.start()
    return query
