"""Point-to-point: each message goes to exactly one of several receivers.

All workers are members of one group, and the partitions are shared out among them. There can be as many workers at
work as there are partitions; if one goes away, the others take over its part.
"""

import threading
from collections import Counter

from confluent_kafka import Consumer, Producer
from example_broker import address, make_topic

JOBS = 40
WORKERS = 2


def work(bootstrap: str, topic: str, name: str, done: list[tuple[str, str]], all_joined: threading.Barrier) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{topic}-workers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while len(consumer.assignment()) != 4 // WORKERS:  # until the work is shared out
        consumer.poll(0.05)
    all_joined.wait(60)
    while len(done) < JOBS:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            done.append((name, message.value().decode()))
    consumer.close()


def run(bootstrap: str) -> None:
    topic = make_topic(bootstrap, "jobs", partitions=4)
    done: list[tuple[str, str]] = []
    all_joined = threading.Barrier(WORKERS + 1)
    workers = [
        threading.Thread(target=work, args=(bootstrap, topic, f"worker-{number}", done, all_joined))
        for number in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    all_joined.wait(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(JOBS):
        producer.produce(topic, f"job-{number}", partition=number % 4)
    producer.flush()
    for worker in workers:
        worker.join()
    for name, count in sorted(Counter(name for name, _ in done).items()):
        print(f"{name} did {count} jobs")
    print(f"{len({job for _, job in done})} different jobs, {len(done)} in all: each was done once")


if __name__ == "__main__":
    with address() as bootstrap:
        run(bootstrap)
