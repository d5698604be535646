"""A process that consumes, transforms and produces, ten records a transaction, until it is killed.

It is started by the chaos test as `python transformer.py BOOTSTRAP SOURCE TARGET GROUP SLOT`. Its work takes time,
between all steps, so that most moments are in the midst of a transaction. It keeps nothing for
itself: what it did is in the transaction, or it did not happen. At any failure it ends; whoever started it starts
it again. A slot has one transactional id and one group instance, so a successor takes the place of the one before.
"""

from __future__ import annotations

import random
import sys
import time

from confluent_kafka import Consumer, Producer

WAIT_S_MAX = 120.0
WORK_S_MAX = 0.01


def work() -> None:
    time.sleep(random.uniform(0, WORK_S_MAX))


def main(bootstrap: str, source: str, target: str, group: str, slot: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": slot,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 60_000,
            "fetch.wait.max.ms": 50,
        }
    )
    identity = {"transactional.id": f"{group}-{slot}", "transaction.timeout.ms": 60_000}
    # When its only broker is gone, librdkafka 2.16 begins again from the bootstrap addresses, but sends the group's
    # offsets to the broker it has given up: `send_offsets_to_transaction` then waits without end, whatever its timeout.
    # Seen with Apache Kafka 4.3.1, too, killed and started again on its data: not with "none", each time without it.
    patience = {"metadata.recovery.strategy": "none"}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0} | identity | patience)
    producer.init_transactions(WAIT_S_MAX)
    consumer.subscribe([source])
    while True:
        messages = consumer.consume(10, timeout=0.1)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            producer.produce(target, message.value(), partition=message.partition())
        work()
        producer.flush(WAIT_S_MAX)
        work()
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WAIT_S_MAX)
        work()
        producer.commit_transaction(WAIT_S_MAX)
        work()


if __name__ == "__main__":
    main(*sys.argv[1:])
