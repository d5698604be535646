"""What happens to one batch of one node, in order: write it, count it, quarantine what was bad, keep the counts.

Spark calls a `BatchWriter` for each batch, on a thread of the query's own, and calls it again for a batch whose end it
did not see. Each step knows by its own transaction id whether it was done, so that the whole can be repeated from any
point. One pass over the batch is all that happens while nothing is bad.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import InvariantError
from headrace.streaming import expectations, extra_fields
from headrace.streaming.batch_offsets import batch_ranges
from headrace.streaming.declarations import Node, TopicStream
from headrace.streaming.delta_writes import Stamp
from headrace.streaming.expectations import outcome_of
from headrace.streaming.late_rows import LateRows
from headrace.streaming.parsing import Parser
from headrace.streaming.quarantine import Quarantine, rows_kept_out, unparsed
from headrace.streaming.sources import UNPARSED
from headrace.streaming.spark_internals.query import dropped_late, observed
from headrace.tables.expectations import Ledger
from headrace.tables.provenance import Source, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

START_S_MAX = 120.0


class Sink(Protocol):
    """Where a batch goes."""

    def done(self, spark: "SparkSession", stamp: Stamp) -> bool:
        """Whether this batch is there already, as far as one look can tell."""

    def write(self, frame: "DataFrame", stamp: Stamp) -> None:
        """Exactly once, however often it is called for a batch; it runs over the frame once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFacts:
    """What a writer knows of its node's place."""

    node: Node
    pipeline: str
    version: int
    checkpoint: str
    quarantine_dir: str
    tables: Mapping[str, str]  # names of the tables it reads, by Delta id
    observed: Mapping[str, TopicStream]
    transactional: bool = True


class BatchWriter:
    def __init__(
        self,
        facts: WriterFacts,
        sink: Sink,
        *,
        ledger: Ledger,
        read_again: "Callable[[SparkSession, TopicStream, TopicSource], DataFrame]",
        parser: Callable[[TopicStream], Parser],
        late_rows: LateRows | None = None,
        wrote: Callable[[], None] = lambda: None,
    ) -> None:
        """`late_rows` finds those that came behind the watermark, if they are to be put aside. `wrote` is called on the
        query's thread when the first batch is where it goes."""
        self._wrote = wrote
        self._late_rows = late_rows
        self._facts = facts
        self._sink = sink
        self._read_again = read_again
        self._parser = parser
        self._ledger = ledger
        self._quarantine = Quarantine(facts.quarantine_dir)
        self._query: StreamingQuery | None = None
        self._started = threading.Event()
        self._first = True
        self.failure: BaseException | None = None
        self.batch: int | None = None
        self.written = False
        self.ranges: tuple[Source, ...] = ()
        # Spark counts a record each time that a batch is passed over; this counts it once.
        self.records_read: int | None = 0 if facts.observed else None

    @property
    def rows_written(self) -> int | None:
        """Into a topic; what went into a table its log tells."""
        return getattr(self._sink, "rows_written", None)

    def started(self, query: "StreamingQuery") -> None:
        """Batches wait for this: only the query knows what was counted."""
        self._query = query
        self._started.set()

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        try:
            if not self._started.wait(START_S_MAX) or self._query is None:
                raise InvariantError(f"{self._facts.node.name}: a batch came before its query was known")
            self._batch(frame, batch, self._query)
        except BaseException as error:
            self.failure = error
            raise

    def _batch(self, frame: "DataFrame", batch: int, query: "StreamingQuery") -> None:
        facts = self._facts
        self.batch = batch
        self.ranges = batch_ranges(facts.checkpoint, batch, facts.tables)
        stamp = Stamp(
            pipeline=facts.pipeline,
            version=facts.version,
            node=facts.node.name,
            batch=batch,
            sources=self.ranges,
            transactional=facts.transactional,
        )
        # Only the first batch after a start can be one that was written before.
        if self._first and facts.transactional and self._sink.done(frame.sparkSession, stamp):
            # Run all the same: state must be committed, and what is bad must be known.
            frame.write.format("noop").mode("overwrite").save()
        else:
            self._sink.write(frame, stamp)
        self._first = False
        if not self.written:
            self.written = True
            self._wrote()
        metrics, (late, watermark_ms) = counts_of(query), dropped_late(query)
        bad = {name: metrics.get(UNPARSED + name, {}).get("bad", 0) for name in facts.observed}
        extra = extra_fields.counted(metrics.get(UNPARSED + name, {}) for name in facts.observed)
        outcome = outcome_of(batch, metrics, facts.node.expectations, sum(bad.values()), late, extra)
        parts = list(self._unparsed(frame.sparkSession, [name for name, count in bad.items() if count], stamp))
        if outcome.quarantined:
            rows, reason = expectations.quarantined(frame, facts.node.expectations)
            parts.append(rows_kept_out(rows, reason, stamp.as_part("quarantine")))
        if late and watermark_ms is not None and self._late_rows is not None:
            for raw in self._read(frame.sparkSession, *facts.observed):
                rows, reason = self._late_rows.find(frame.sparkSession, raw, watermark_ms)
                parts.append(rows_kept_out(rows, reason, stamp.as_part("late")))
        self._quarantine.write(parts)
        if self.records_read is not None:
            self.records_read += sum(metrics.get(UNPARSED + name, {}).get("rows", 0) for name in facts.observed)
        self._ledger.add(outcome)

    def _unparsed(
        self, spark: "SparkSession", names: Sequence[str], stamp: Stamp
    ) -> "Iterator[tuple[DataFrame, Stamp]]":
        """What could not be parsed of the topics with these names among the observed."""
        for name in names:
            for raw in self._read(spark, name):
                yield unparsed(raw, self._parser(self._facts.observed[name]), stamp.as_part(f"unparsed/{name}"))

    def _read(self, spark: "SparkSession", *names: str) -> "Iterator[DataFrame]":
        """The records of this batch, of the topics with these names among the observed."""
        for name in names:
            topic = self._facts.observed[name]
            for each in self.ranges:
                if isinstance(each, TopicSource) and each.topic == topic.topic:
                    yield self._read_again(spark, topic, each)


def counts_of(query: "StreamingQuery") -> dict[str, dict[str, Any]]:
    """What the plan of its batch counted, as far as it ran."""
    return {
        name: {key: value or 0 for key, value in json.loads(text).items()} for name, text in observed(query).items()
    }
