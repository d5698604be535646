"""Two listeners of one broker: a client of each is told addresses of its own, and works."""

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient
from waits import WAIT_S_MAX

from headrace.broker.embedded import Broker
from headrace.core.listeners import ListenerAddress

NAMES = ("INTERNAL", "EXTERNAL")


@pytest.fixture
def broker():
    listeners = tuple(ListenerAddress(name, "127.0.0.1", 0) for name in NAMES)
    with Broker(listeners=listeners) as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_a_client_of_each_listener_sees_its_own_port_and_works(broker, name):
    ports = broker._running.node.ports
    assert len(set(ports.values())) == len(NAMES)
    here = {"bootstrap.servers": f"127.0.0.1:{ports[name]}"}
    producer = Producer(here)
    producer.produce("orders", b"one")
    assert producer.flush(WAIT_S_MAX) == 0
    consumer = Consumer({**here, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    record = consumer.poll(WAIT_S_MAX)
    assert (record.error(), record.value()) == (None, b"one")
    consumer.commit(asynchronous=False)
    consumer.close()
    admin = AdminClient(here)
    assert {each.port for each in admin.list_topics(timeout=WAIT_S_MAX).brokers.values()} == {ports[name]}
    described = admin.describe_cluster(request_timeout=WAIT_S_MAX).result(WAIT_S_MAX)
    assert [each.port for each in described.nodes] == [ports[name]]
    # Asked of the group's coordinator, which FindCoordinator names.
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(WAIT_S_MAX)
    assert [each.offset for each in offsets.topic_partitions] == [1]
