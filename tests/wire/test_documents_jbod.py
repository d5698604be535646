"""Row 52 of the documents' index: several log directories, one of which may fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from headrace_process import HeadraceProcess
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from topic_setup import create_topic
from waits import WAIT_MS_MAX, WAIT_S_MAX

StartHeadrace = Callable[..., HeadraceProcess]
PARTITIONS = 4
KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE = 56, 5


def placement(client: KafkaAdminClient, topic: str) -> dict[str, set[int]]:
    """Which partitions of the topic lie in which log directory."""
    (broker,) = client.describe_log_dirs()
    return {
        os.path.basename(directory["log_dir"]): {
            partition["partition_index"]
            for described in directory["topics"]
            if described["name"] == topic
            for partition in described["partitions"]
        }
        for directory in broker["log_dirs"]
        if directory["error_code"] == 0
    }


def test_row_52_partitions_spread_over_directories_and_one_failed_disk_is_tolerated(
    start_headrace: StartHeadrace, topic: str, tmp_path: Path
) -> None:
    settings = {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    broker = start_headrace(settings)
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), topic, partitions=PARTITIONS)
    with closing(KafkaProducer(bootstrap_servers=[broker.bootstrap])) as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, b"before", partition=partition).get(WAIT_S_MAX)
    with closing(KafkaAdminClient(bootstrap_servers=[broker.bootstrap])) as client:
        placed = placement(client, topic)
    assert {name: len(partitions) for name, partitions in placed.items()} == {"one": 2, "two": 2}
    broker.stop()

    # A disk that is gone: where its directory was mounted there is now something that is none.
    os.rename(tmp_path / "two", tmp_path / "two.gone")
    (tmp_path / "two").write_bytes(b"")
    broker = start_headrace(settings)
    with closing(KafkaAdminClient(bootstrap_servers=[broker.bootstrap])) as client:
        assert placement(client, topic) == {"one": placed["one"]}
        (described,) = client.describe_topics([topic])
    states = {partition["partition_index"]: partition for partition in described["partitions"]}
    assert sorted(states) == list(range(PARTITIONS))
    for partition in placed["one"]:
        assert states[partition]["error_code"] == 0
        assert read_values(broker.bootstrap, topic, partition, 1) == [b"before"]
        with closing(KafkaProducer(bootstrap_servers=[broker.bootstrap])) as producer:
            assert producer.send(topic, b"after", partition=partition).get(WAIT_S_MAX).offset == 1
    for partition in placed["two"]:
        assert states[partition]["error_code"] in (KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE)
        assert states[partition]["leader_id"] == -1
        assert states[partition]["offline_replicas"] == states[partition]["replica_nodes"]
    refusals: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 1000})
    producer.produce(topic, b"lost?", partition=min(placed["two"]), on_delivery=lambda error, _: refusals.append(error))
    assert producer.flush(WAIT_S_MAX) == 0
    assert [error.code() for error in refusals] == [KafkaError._MSG_TIMED_OUT]


def read_values(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes]:
    with closing(KafkaConsumer(bootstrap_servers=[bootstrap], consumer_timeout_ms=WAIT_MS_MAX)) as consumer:
        here = TopicPartition(topic, partition)
        consumer.assign([here])
        consumer.seek(here, 0)
        return [next(consumer).value for _ in range(count)]
