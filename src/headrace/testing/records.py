"""Records as a test writes them down, sent to a broker and read back from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from headrace.core.errors import OperatorError

WAIT_S_MAX = 120.0  # ends a hang, and nothing else


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record with all that it has; where only the value matters, the value alone will do."""

    value: Any
    key: str | bytes | None = None
    headers: Mapping[str, str | bytes] = field(default_factory=dict)
    partition: int | None = None
    timestamp: datetime | None = None

    @property
    def json(self) -> Any:
        """The value of a record that was read, parsed."""
        return json.loads(self.value)


def send(bootstrap: str, topic: str, rows: Sequence[Any]) -> None:
    """Sends rows in order: a dict as JSON, text and bytes as they are, None as a tombstone, or a `Record`."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    failures: list[Any] = []
    for number, row in enumerate(rows):
        record = row if isinstance(row, Record) else Record(value=row)
        more: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.timestamp is not None:
            more["timestamp"] = round(record.timestamp.timestamp() * 1000)
        producer.produce(
            topic,
            _bytes(topic, number, record.value),
            record.key,
            headers=list(record.headers.items()),
            on_delivery=lambda error, _: failures.append(error) if error else None,
            **more,
        )
        producer.poll(0)
    if producer.flush(WAIT_S_MAX) or failures:
        raise OperatorError(f"{topic}: a row could not be sent: {failures[0] if failures else 'no answer'}")


def read(bootstrap: str, topic: str) -> list[Record]:
    """All committed records of a topic, partition by partition."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    config = {"group.id": "headrace-testing", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, "log_level": 0, **config})
    try:
        known = consumer.list_topics(timeout=WAIT_S_MAX).topics
        if topic not in known:
            raise OperatorError(f"{topic}: no such topic; there are: {', '.join(sorted(known)) or 'none'}")
        partitions = list(known[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found, ended = [], 0
        while ended < len(partitions):
            message = consumer.poll(WAIT_S_MAX)
            if message is None:
                raise OperatorError(f"{topic}: no answer within {WAIT_S_MAX:g} s")
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return [_record(each) for each in sorted(found, key=lambda each: (each.partition(), each.offset()))]


def _record(message: Any) -> Record:
    return Record(
        value=message.value(),
        key=message.key(),
        headers=dict(message.headers() or ()),
        partition=message.partition(),
        timestamp=datetime.fromtimestamp(message.timestamp()[1] / 1000).astimezone(),
    )


def _bytes(topic: str, number: int, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return json.dumps(value, default=_time).encode()
    except (TypeError, ValueError) as error:
        raise OperatorError(f"{topic}: row {number} is not JSON: {error}; give bytes or text") from error


def _time(value: object) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON")
