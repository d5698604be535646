"""Exactly once: results and the offset of what they were made from are one transaction.

A worker that dies in the middle leaves neither a result nor a commit that counts; the next one does that part again.
Whoever reads with `isolation.level=read_committed` sees every result once. The price is a transaction for each batch.
"""

from confluent_kafka import Consumer, Producer
from example_broker import address, make_topic

PAYMENTS = ["10", "20", "30"]


class CrashError(Exception):
    """The worker dies here, as if the power had gone."""


def worker(bootstrap: str, payments: str, receipts: str, count: int, crash_at: str | None = None) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{payments}-receipts",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    # The id is the worker's name: when it starts again, what its predecessor left open is aborted.
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{payments}-worker-1"})
    producer.init_transactions(30)
    consumer.subscribe([payments])
    try:
        for _ in range(count):
            message = consumer.poll(60)
            if message is None:
                return
            producer.begin_transaction()
            producer.produce(receipts, f"receipt for {message.value().decode()}")
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
            )
            if message.value().decode() == crash_at:
                producer.flush()  # the receipt has even reached the broker
                raise CrashError
            producer.commit_transaction(30)
    except CrashError:
        pass
    finally:
        consumer.close()


def run(bootstrap: str) -> None:
    payments, receipts = make_topic(bootstrap, "payments"), make_topic(bootstrap, "receipts")
    producer = Producer({"bootstrap.servers": bootstrap})
    for payment in PAYMENTS:
        producer.produce(payments, payment)
    producer.flush()
    worker(bootstrap, payments, receipts, count=3, crash_at="20")
    worker(bootstrap, payments, receipts, count=2)  # started again after the crash

    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": receipts,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.subscribe([receipts])
    found = [message.value().decode() for message in reader.consume(len(PAYMENTS), timeout=60)]
    found += [message.value().decode() for message in reader.consume(1, timeout=1)]
    reader.close()
    print(f"receipts: {', '.join(found)}")
    print("each payment has one receipt, in spite of the crash")


if __name__ == "__main__":
    with address() as bootstrap:
        run(bootstrap)
