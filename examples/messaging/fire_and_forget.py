"""Fire-and-forget: the sender hands a message over and goes on; whether it arrived, it never learns.

`acks=0` asks for no answer. It is the cheapest way to send, for what may be lost: metrics, traces, cursor positions.
"""

import time

from confluent_kafka import Consumer, Producer
from example_broker import address, make_topic

READINGS = 1_000


def run(bootstrap: str) -> None:
    topic = make_topic(bootstrap, "readings")
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 0})
    producer.list_topics(topic, timeout=60)  # connected, as a sender that runs for long is
    began = time.perf_counter()
    for number in range(READINGS):
        producer.produce(topic, f"temperature {number % 30}")
    handed_over_ms = (time.perf_counter() - began) * 1000
    print(f"{READINGS} readings handed over in {handed_over_ms:.0f} ms, without waiting for anybody")

    producer.flush()  # only so that this program does not end before they have left it
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    arrived = consumer.consume(READINGS, timeout=60)
    consumer.close()
    print(f"{len(arrived)} arrived; nobody would have been told of any that did not")


if __name__ == "__main__":
    with address() as bootstrap:
        run(bootstrap)
