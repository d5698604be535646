"""One librdkafka client at full speed, in a process of its own; prints one line of JSON.

rdkafka_load.py produce ADDRESS TOPIC ACKS RECORDS
rdkafka_load.py consume ADDRESS TOPIC RECORDS
rdkafka_load.py transact ADDRESS TOPIC SECONDS RECORDS BYTES
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS = 6
RECORD = b"r" * 100
BATCH_RECORDS = 1000
STALL_S_MAX = 30.0


def produce(address: str, topic: str, acks: str, records: str) -> dict[str, float]:
    """Seconds from the first record to the last acknowledgement, of a producer that has sent one before.

    librdkafka looks for its producer id every half a second; whether it finds the broker at its first look depends on
    how the answers to its first requests happen to interleave, and would decide the figure.
    """
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": "none",
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(topic, timeout=STALL_S_MAX)
    producer.produce(topic, RECORD, partition=0)
    producer.flush(STALL_S_MAX)
    batch: list[dict[str, Any]] = [{"value": RECORD} for _ in range(BATCH_RECORDS)]
    queued, turn, goal = 0, 0, int(records)
    began, busy = time.monotonic(), _busy_s()
    while queued < goal:
        part = batch if goal - queued >= BATCH_RECORDS else batch[: goal - queued]
        accepted = producer.produce_batch(topic, part, partition=turn % PARTITIONS)
        queued += accepted
        turn += 1
        if accepted < len(part):  # the queue is full
            for message in part:
                message.pop("_error", None)
            producer.poll(0.005)
        if time.monotonic() - began > 10 * STALL_S_MAX:
            raise SystemExit(f"only {queued} of {goal} records were taken within {10 * STALL_S_MAX:g} s")
    left = producer.flush(STALL_S_MAX)
    took, busy = time.monotonic() - began, _busy_s() - busy
    # No callbacks, which would cost the client more than the broker: what the new topic holds is the proof.
    arrived = _stored_records(address, topic)
    if left or arrived < goal:
        raise SystemExit(f"{goal} records were sent, {left} of them not acknowledged, and {arrived} are stored")
    return {"records": goal, "rec_s": goal / took, "client_idle": max(0.0, 1 - busy / took)}


def _busy_s() -> float:
    """How long this thread ran or waited for a core: the rest of the time it waited for librdkafka, and so perhaps for
    the broker."""
    ran_ns, waited_ns = Path("/proc/thread-self/schedstat").read_text().split()[:2]
    return (int(ran_ns) + int(waited_ns)) / 1e9


def _stored_records(address: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, index)) for index in range(PARTITIONS)]
    consumer.close()
    return sum(high - low for low, high in ends)


def consume(address: str, topic: str, records: str) -> dict[str, float]:
    """Seconds from the assignment to the last record."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",  # the client asks for a name; assign never joins a group
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # A full queue is looked at again after 1 ms and not after a second, so that fetching never stops for long.
            # Without a bound the client reads ahead as far as the broker lets it, into memory new to the kernel:
            # the quicker broker then makes it the slower client.
            "queued.min.messages": 100_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.list_topics(topic, timeout=STALL_S_MAX)
    goal, seen = int(records), 0
    began, busy = time.monotonic(), _busy_s()
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    while seen < goal:
        messages = consumer.consume(10_000, timeout=STALL_S_MAX)
        if not messages:
            raise SystemExit(f"no record for {STALL_S_MAX:g} s after {seen} of {goal}")
        for message in (messages[0], messages[-1]):
            if message.error() is not None:
                raise SystemExit(f"after {seen} records: {message.error()}")
        seen += len(messages)
    took, busy = time.monotonic() - began, _busy_s() - busy
    consumer.close()
    return {"records": seen, "rec_s": seen / took, "client_idle": max(0.0, 1 - busy / took)}


def transact(address: str, topic: str, seconds: str, records: str, size: str) -> dict[str, float]:
    """One transaction after the other, each over all partitions; `records` of the result are transactions."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic, "compression.type": "none"})
    producer.init_transactions(STALL_S_MAX)
    value, each, done = b"r" * int(size), int(records), 0
    began = time.monotonic()
    until = began + float(seconds)
    while time.monotonic() < until:
        producer.begin_transaction()
        for number in range(each):
            producer.produce(topic, value, partition=number % PARTITIONS)
        producer.commit_transaction(STALL_S_MAX)
        done += 1
    took = time.monotonic() - began
    arrived = _stored_records(address, topic)
    if arrived < done * each:
        raise SystemExit(f"{done} transactions of {each} records were committed, and {arrived} records are stored")
    return {"records": done, "per_s": done / took}


COMMANDS: dict[str, Callable[..., dict[str, float]]] = {"produce": produce, "consume": consume, "transact": transact}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))
