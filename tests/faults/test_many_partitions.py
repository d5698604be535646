"""Ten thousand partitions on one broker: bounded memory and descriptors. How quickly it starts is for bench/."""

from __future__ import annotations

from collections import Counter

import raw
from broker_process import BrokerProcess
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from waits import WAIT_MS_MAX, WAIT_S_MAX

TOPICS, PARTITIONS = 10, 1000
RSS_BYTES_MAX = 400 << 20
OPEN_FILES_MAX = 300
DESCRIPTORS_MAX = OPEN_FILES_MAX + 100
SETTINGS = {"headrace.log.open.files.max": str(OPEN_FILES_MAX)}


class Figures:
    """What was measured, to be shown, and held against the bounds."""

    def __init__(self) -> None:
        self.rss_bytes = self.descriptors = 0

    def look_at(self, broker: BrokerProcess) -> None:
        self.rss_bytes = max(self.rss_bytes, broker.peak_rss_bytes())
        self.descriptors = max(self.descriptors, broker.descriptor_count())

    def __str__(self) -> str:
        return f"at most {self.rss_bytes / (1 << 20):.0f} MB and {self.descriptors} descriptors"


def test_ten_thousand_partitions_stay_within_their_bounds_over_stops_and_kills(start_broker, tmp_path, rng, capsys):
    data, figures = str(tmp_path / "data"), Figures()
    spread = [(f"t{topic}", index) for topic in range(TOPICS) for index in range(PARTITIONS)]
    ends: Counter[tuple[str, int]] = Counter()
    broker = start_broker(SETTINGS, data=data)
    create(broker)
    for end in (BrokerProcess.stop, BrokerProcess.kill):
        check_metadata(broker)
        chosen = rng.sample(spread, 1500)
        produce(broker, chosen)
        ends.update(chosen)
        figures.look_at(broker)
        end(broker)
        broker = start_broker(SETTINGS, data=data)
        check_ends(broker, ends)
        figures.look_at(broker)
    with capsys.disabled():
        print(f"\n  {len(spread)} partitions: {figures}")
    assert figures.rss_bytes <= RSS_BYTES_MAX
    assert figures.descriptors <= DESCRIPTORS_MAX


def create(broker: BrokerProcess) -> None:
    with raw.Client(broker.bootstrap) as client:
        for topic in range(TOPICS):
            spec = {"name": f"t{topic}", "num_partitions": PARTITIONS, "replication_factor": 1}
            (answer,) = client.call(raw.CREATE_TOPICS, 7, {"topics": [spec], "timeout": WAIT_MS_MAX}).topics
            assert answer.error_code == 0, answer


def produce(broker: BrokerProcess, places: list[tuple[str, int]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 20})
    refused: list[str] = []
    for topic, index in places:
        producer.produce(
            topic, b"x" * 100, partition=index, on_delivery=lambda e, m: refused.append(str(e)) if e else None
        )
    assert producer.flush(WAIT_S_MAX) == 0
    assert not refused, refused[:5]


def check_metadata(broker: BrokerProcess) -> None:
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=WAIT_S_MAX).topics
    assert {name: len(topic.partitions) for name, topic in found.items()} == {
        f"t{topic}": PARTITIONS for topic in range(TOPICS)
    }


def check_ends(broker: BrokerProcess, ends: Counter[tuple[str, int]]) -> None:
    asked = [
        {"name": f"t{topic}", "partitions": [{"partition_index": i, "timestamp": -1} for i in range(PARTITIONS)]}
        for topic in range(TOPICS)
    ]
    with raw.Client(broker.bootstrap) as client:
        for topic in client.call(raw.LIST_OFFSETS, 8, {"replica_id": -1, "topics": asked}).topics:
            for partition in topic.partitions:
                place = topic.name, partition.partition_index
                assert (partition.error_code, partition.offset) == (0, ends[place]), place


def test_fewer_open_files_than_busy_partitions_lose_nothing(start_broker):
    """Files are opened and closed all the time, under those who read and write them."""
    broker = start_broker({"headrace.log.open.files.max": "16"})
    with raw.Client(broker.bootstrap) as client:
        topic = raw.make_topic(client, 100, **{"internal.segment.bytes": 2000})
        for turn in range(6):
            parts = [(topic, index, raw.batch(raw.values(b"%d" % turn * 500))) for index in range(100)]
            for answer in client.call(raw.PRODUCE, 13, raw.produce_body(*parts)).responses[0].partition_responses:
                assert (answer.error_code, answer.base_offset) == (0, turn)
            asked = [(topic, index, 0) for index in range(100)]
            for found in client.call(raw.FETCH, 16, raw.fetch_body(*asked)).responses[0].partitions:
                assert found.error_code == 0
                values = raw.values_of(found.records)
                assert values == [b"%d" % n * 500 for n in range(len(values))]
        assert broker.descriptor_count() < 100
