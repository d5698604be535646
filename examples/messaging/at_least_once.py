"""At least once: the offset is committed after the work is done.

Nothing is ever lost. What was done just before the worker died is done again: the price, which costs nothing where
doing a thing twice is the same as doing it once.
"""

from confluent_kafka import Consumer, Producer
from example_broker import address, make_topic

PAYMENTS = ["pay 10", "pay 20", "pay 30"]


class CrashError(Exception):
    """The worker dies here, as if the power had gone."""


def worker(bootstrap: str, topic: str, booked: list[str], crash_at: str | None = None) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-bookkeeping",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        while PAYMENTS[-1] not in booked:
            message = consumer.poll(60)
            if message is None:
                return
            payment = message.value().decode()
            booked.append(payment)
            if payment == crash_at:
                raise CrashError
            consumer.commit(message, asynchronous=False)
    except CrashError:
        pass
    finally:
        consumer.close()  # it commits nothing: enable.auto.commit is off


def run(bootstrap: str) -> None:
    topic = make_topic(bootstrap, "payments")
    producer = Producer({"bootstrap.servers": bootstrap})
    for payment in PAYMENTS:
        producer.produce(topic, payment)
    producer.flush()
    booked: list[str] = []
    worker(bootstrap, topic, booked, crash_at="pay 20")
    worker(bootstrap, topic, booked)  # started again after the crash
    print(f"booked: {', '.join(booked)}")
    print("the one that was under way in the crash is booked twice; none is lost")


if __name__ == "__main__":
    with address() as bootstrap:
        run(bootstrap)
