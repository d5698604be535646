"""Request-reply: a question goes to one topic, its answer comes back on another.

The headers of a request say where the answer is to go and which request it belongs to; so many clients can ask many
servers at once, and nobody gets an answer that is not theirs.
"""

import threading
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition
from example_broker import address, make_topic


def serve(bootstrap: str, requests: str, stop: threading.Event) -> None:
    """Answers every request with its square."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{requests}-server", "auto.offset.reset": "earliest"}
    )
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer.subscribe([requests])
    while not stop.is_set():
        message = consumer.poll(0.05)
        if message is None or message.error() is not None:
            continue
        headers = dict(message.headers())
        answer = str(int(message.value()) ** 2)
        producer.produce(
            headers["reply-to"].decode(), answer, headers={"correlation-id": headers["correlation-id"]}, partition=0
        )
        producer.flush()
    consumer.close()


class Client:
    def __init__(self, bootstrap: str, requests: str, replies: str) -> None:
        self._requests, self._replies = requests, replies
        self._producer = Producer({"bootstrap.servers": bootstrap})
        # It reads replies from now on; it needs no group, since nobody shares them with it.
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        end = self._consumer.get_watermark_offsets(TopicPartition(replies, 0), timeout=60)[1]
        self._consumer.assign([TopicPartition(replies, 0, end)])

    def ask(self, question: str) -> str:
        correlation_id = uuid.uuid4().hex
        headers = {"reply-to": self._replies, "correlation-id": correlation_id}
        self._producer.produce(self._requests, question, headers=headers)
        self._producer.flush()
        for _ in range(300):
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            if dict(message.headers())["correlation-id"].decode() == correlation_id:
                return message.value().decode()
        raise TimeoutError(f"no answer to {question!r} within 30 s")

    def close(self) -> None:
        self._consumer.close()


def run(bootstrap: str) -> None:
    requests, replies = make_topic(bootstrap, "requests"), make_topic(bootstrap, "replies")
    stop = threading.Event()
    server = threading.Thread(target=serve, args=(bootstrap, requests, stop))
    server.start()
    client = Client(bootstrap, requests, replies)
    try:
        for number in (2, 7, 12):
            print(f"{number} squared is {client.ask(str(number))}")
    finally:
        stop.set()
        server.join()
        client.close()


if __name__ == "__main__":
    with address() as bootstrap:
        run(bootstrap)
