"""Znodes: what is written is read again, in the form that Apache Kafka uses."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.replication import znodes
from headrace.replication.image import BrokerImage, Endpoint, PartitionImage
from headrace.replication.znodes import Assignment, ForeignError, Registration

BROKER = BrokerImage(
    id=3,
    endpoints={"INTERNAL": Endpoint(host="10.0.0.3", port=9093), "PLAINTEXT": Endpoint(host="::1", port=9092)},
    rack="east",
    incarnation=7,
    intact_from=5,
)
# As a broker of Kafka 3.9 in ZooKeeper mode writes them.
KAFKA_BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],'
    b'"jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp":"1700000000000"}'
)
KAFKA_TOPIC = (
    b'{"removing_replicas":{},"partitions":{"0":[1,2,0],"1":[2,0,1]},"topic_id":"AAAAAAAAAAAAAAAAAAAABQ",'
    b'"adding_replicas":{},"version":3}'
)
KAFKA_STATE = b'{"controller_epoch":4,"leader":1,"version":1,"leader_epoch":2,"isr":[1,2]}'


def test_a_registration_is_read_as_it_was_written():
    told = Registration(
        broker=BROKER,
        protocols={"INTERNAL": "SSL", "PLAINTEXT": "PLAINTEXT"},
        started_ms=12,
        offline={"orders": (1, 4)},
    )
    data = znodes.write_registration(told)
    assert znodes.read_registration(3, data) == told
    old = json.loads(data)
    assert (old["host"], old["port"], old["version"]) == ("::1", 9092, 5), "what clients of old read"


def test_what_apache_kafka_writes_is_read():
    broker = znodes.read_registration(1, KAFKA_BROKER).broker
    assert broker == BrokerImage(id=1, endpoints={"PLAINTEXT": Endpoint(host="h", port=9092)})
    assert znodes.read_assignment("t", KAFKA_TOPIC) == Assignment(id=uuid.UUID(int=5), replicas=((1, 2, 0), (2, 0, 1)))
    state = znodes.read_state("t", 0, KAFKA_STATE, 9)
    assert (state.leader, state.leader_epoch, state.isr, state.isr_incarnations) == (1, 2, (1, 2), (0, 0))
    assert (state.controller_epoch, state.version) == (4, 9)


def test_what_is_written_for_a_topic_is_what_apache_kafka_writes():
    told = Assignment(id=uuid.UUID(int=5), replicas=((1, 2, 0), (2, 0, 1)))
    assert znodes.write_assignment(told) == KAFKA_TOPIC


replica_lists = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(tuple)


@given(st.uuids(), st.lists(replica_lists, min_size=1, max_size=4), replica_lists)
def test_an_assignment_is_read_as_it_was_written(topic_id, replicas, adding):
    told = Assignment(id=topic_id, replicas=tuple(replicas), adding={0: adding})
    assert znodes.read_assignment("t", znodes.write_assignment(told)) == told


@given(replica_lists, st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_a_state_is_read_as_it_was_written(isr, epoch, incarnation):
    told = PartitionImage(
        replicas=isr,
        leader=isr[0],
        leader_epoch=epoch,
        isr=isr,
        leader_incarnation=incarnation,
        isr_incarnations=tuple(incarnation + each for each in isr),
    )
    found = znodes.read_state("t", 0, znodes.write_state(told, 6), 2)
    assert (found.leader, found.leader_epoch, found.isr) == (told.leader, told.leader_epoch, told.isr)
    assert (found.leader_incarnation, found.isr_incarnations) == (incarnation, told.isr_incarnations)
    assert (found.controller_epoch, found.version) == (6, 2)


def test_ids_settings_and_the_controller_are_read_as_they_were_written():
    assert znodes.read_controller(znodes.write_controller(3, 12)) == 3
    assert znodes.read_controller_epoch(b"12") == 12
    assert znodes.read_cluster_id(znodes.write_cluster_id("abc")) == "abc"
    assert znodes.read_producer_ids_end(znodes.write_producer_ids(1, 1000, 1999)) == 1999
    assert znodes.read_settings("/config/topics/t", znodes.write_settings({"a": "b"})) == {"a": "b"}


@pytest.mark.parametrize(
    ("read", "path"),
    [
        (lambda data: znodes.read_registration(1, data), "/brokers/ids/1"),
        (lambda data: znodes.read_assignment("t", data), "/brokers/topics/t"),
        (lambda data: znodes.read_state("t", 4, data, 0), "/brokers/topics/t/partitions/4/state"),
        (znodes.read_controller, "/controller"),
        (znodes.read_cluster_id, "/cluster/id"),
        (znodes.read_producer_ids_end, "/latest_producer_id_block"),
    ],
)
@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"isr":3,"endpoints":7,"partitions":[],"id":9}'])
def test_a_znode_that_somebody_else_wrote_is_named_with_the_remedy(read, path, data):
    with pytest.raises(ForeignError, match=f"^{path}: .*; repair it in ZooKeeper$"):
        read(data)
