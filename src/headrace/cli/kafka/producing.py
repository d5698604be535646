"""Getting librdkafka's producer ready for its first record."""

import contextlib
from typing import Any

READY_S_MAX = 5.0


def ready(producer: Any, topic: str) -> None:
    """Connects it, so that the first record need not wait half a second.

    An idempotent producer asks for its id over the first connection; the first answer about topics ends that connection
    and begins another, and what was asked is asked again only by a timer. A second question waits for the other
    connection, and that is where the id comes from (seen with librdkafka 2.16). A broker that does not answer is no
    error here: what is sent will say so.
    """
    from confluent_kafka import KafkaException

    with contextlib.suppress(KafkaException):
        for _ in range(2):
            producer.list_topics(topic, timeout=READY_S_MAX)
