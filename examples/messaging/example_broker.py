"""The broker of the examples: the one whose address is given, or one of their own that goes away with them."""

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, NewTopic

import headrace


@contextmanager
def address() -> Iterator[str]:
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    with headrace.Broker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap_servers


def make_topic(bootstrap: str, name: str, partitions: int = 1) -> str:
    """A topic with a name of its own, so that an example can be run again and again."""
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    return topic
