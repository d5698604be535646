"""Publish-subscribe: every subscriber gets every message, in its own time.

A subscriber is a consumer group of its own. Those that come later still find what was published before.
"""

from confluent_kafka import Consumer, Producer
from example_broker import address, make_topic

EVENTS = ["order placed", "order paid", "order shipped"]


def publish(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for event in EVENTS:
        producer.produce(topic, event)
    producer.flush()


def subscribe(bootstrap: str, topic: str, name: str) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{topic}-{name}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    received = [message.value().decode() for message in consumer.consume(len(EVENTS), timeout=60)]
    consumer.close()
    return received


def run(bootstrap: str) -> None:
    topic = make_topic(bootstrap, "events")
    publish(bootstrap, topic)
    for name in ("billing", "shipping"):
        print(f"{name} received: {', '.join(subscribe(bootstrap, topic, name))}")


if __name__ == "__main__":
    with address() as bootstrap:
        run(bootstrap)
