"""One task that writes to a topic, against a real broker and without Spark: each row once, whatever comes between."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow
import pytest
from pipeline_runs import read_topic

import headrace
from headrace.streaming.topic_task import TopicTask, TopicTaskError, _Transaction

FIELDS = [
    ("key", pyarrow.binary()),
    ("value", pyarrow.binary()),
    ("headers", pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))),
    ("last", pyarrow.bool_()),
]
MARK = (None, None, None, True)


def arrow(*rows: tuple[object, ...]) -> pyarrow.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pyarrow.array(list(c), kind) for c, (_, kind) in zip(columns, FIELDS, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, names=[name for name, _ in FIELDS])


def row(number: int) -> tuple[object, ...]:
    return b"k%d" % number, b"v%d" % number, [{"key": "h", "value": b"x"}], False


def task(broker: headrace.Broker, topic: str, batch: int, number: int = 0) -> TopicTask:
    config = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    return TopicTask(name=f"shop/v1/{topic}", task=number, batch=batch, topic=topic, config=config)


def values(broker: headrace.Broker, topic: str) -> list[bytes]:
    return [message.value() for message in read_topic(broker.bootstrap_servers, topic)]


def test_a_batch_that_is_run_again_is_skipped_and_the_next_is_written(shared_broker: headrace.Broker) -> None:
    def rows(*numbers: int) -> Iterator[pyarrow.RecordBatch]:
        return iter([arrow(*map(row, numbers)), arrow(MARK)])

    assert task(shared_broker, "again", 0).run(rows(1, 2)) == 2
    assert task(shared_broker, "again", 0).run(rows(1, 2)) == -1
    assert task(shared_broker, "again", 1).run(rows(3)) == 1
    assert task(shared_broker, "again", 0, number=1).run(rows(4)) == 1
    assert sorted(values(shared_broker, "again")) == [b"v1", b"v2", b"v3", b"v4"]
    first = read_topic(shared_broker.bootstrap_servers, "again")[0]
    assert first.headers() == [("h", b"x")]
    assert first.key().startswith(b"k")


def test_rows_that_end_without_their_mark_are_not_committed(shared_broker: headrace.Broker) -> None:
    """So a driver looks that was killed: the stream of rows just ends."""
    with pytest.raises(TopicTaskError, match="ended before the last one"):
        task(shared_broker, "torn", 0).run(iter([arrow(row(1), row(2))]))
    with pytest.raises(TopicTaskError, match="ended before the last one"):
        task(shared_broker, "torn", 0).run(iter([]))
    assert task(shared_broker, "torn", 0).run(iter([arrow(row(1), row(2)), arrow(row(3), MARK)])) == 3
    assert sorted(values(shared_broker, "torn")) == [b"v1", b"v2", b"v3"]


def test_a_task_without_rows_writes_nothing(shared_broker: headrace.Broker) -> None:
    assert task(shared_broker, "empty", 0).run(iter([arrow(MARK)])) == 0


def test_an_older_run_of_the_task_is_fenced_off(shared_broker: headrace.Broker) -> None:
    from confluent_kafka import KafkaException

    with _Transaction(task(shared_broker, "zombie", 0)) as old:
        old.begin()
        old.produce(([b"k"], [b"old"], [None]))
        assert task(shared_broker, "zombie", 0).run(iter([arrow(row(1), MARK)])) == 1
        with pytest.raises(KafkaException):
            old.commit(1)
    assert values(shared_broker, "zombie") == [b"v1"]
