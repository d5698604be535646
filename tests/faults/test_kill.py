"""`kill -9` at any moment, under load: what was acknowledged is there, once, in order, at its offset."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import raw
from confluent_kafka.admin import AdminClient
from ledger import Ledger, Place
from load import ConfluentLoad, KafkaPythonLoad, Load, PlainConfluentLoad
from topic_setup import create_topic
from waits import WAIT_S_MAX

# Recovery points move all the time, so that a start after a kill begins anywhere in a log.
BUSY = {"log.flush.offset.checkpoint.interval.ms": "150", "log.flush.interval.ms": "100"}
TOPICS = {
    "rolling": {"internal.segment.bytes": "60000"},  # Kafka's own way below the 1 MiB of segment.bytes
    "sparse": {"segment.bytes": str(1 << 20), "index.interval.bytes": "100"},
    "flushed": {"flush.messages": "1"},
}
PARTITIONS = 3


def test_acknowledged_records_survive_kill_9_under_load(start_broker, steady_port, tmp_path, rng, rounds):
    port, data = steady_port, str(tmp_path / "data")
    broker = start_broker(BUSY, data=data, port=port)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for topic, config in TOPICS.items():
        create_topic(admin, topic, partitions=PARTITIONS, config=config)
    places = [Place(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
    ledger = Ledger()
    loads: list[Load] = [
        kind(name, broker.bootstrap, places, ledger, rng)
        for name, kind in {
            "librdkafka": ConfluentLoad,
            "kafka-python": KafkaPythonLoad,
            "plain": PlainConfluentLoad,
        }.items()
    ]
    for _ in range(rounds(3)):
        ledger.await_more(rng.randrange(20, 600))
        time.sleep(rng.random() * 0.1)  # the moment itself: there is no event to wait for
        broker.kill()
        ends = ledger.ends()
        if rng.random() < 0.5:
            kill_while_it_starts(data, port, rng)
        broker = start_broker(BUSY, data=data, port=port)
        with raw.Client(broker.bootstrap) as client:
            for place, end in ends.items():
                assert end_offset(client, place) >= end, f"{place} lost acknowledged records"
    ledger.await_more(200)
    sent = sum(load.finish() for load in loads)
    assert ledger.count == sent, ledger.problems[:5]
    ledger.check(broker.bootstrap, exactly_once=("librdkafka", "kafka-python"))


def test_topics_that_were_made_or_deleted_stay_so_after_kill_9(start_broker, tmp_path, rng, rounds):
    data = str(tmp_path / "data")
    broker = start_broker(data=data)
    there: set[str] = set()
    gone: set[str] = set()
    for turn in range(rounds(3)):
        with raw.Client(broker.bootstrap) as client:
            for number in range(rng.randrange(1, 8)):
                name = f"topic-{turn}-{number}"
                raw.make_topic(client, partitions=rng.randrange(1, 5), name=name)
                there.add(name)
                if rng.random() < 0.4:
                    victim = rng.choice(sorted(there))
                    (answer,) = client.call(
                        raw.DELETE_TOPICS, 6, {"topics": [{"name": victim}], "timeout": 5000}
                    ).responses
                    assert answer.error_code == 0, answer
                    there.remove(victim)
                    gone.add(victim)
            # One more that is under way when the broker dies: it may be there or not, but whole.
            spec = {"name": f"last-{turn}", "num_partitions": 200, "replication_factor": 1}
            client.send(raw.CREATE_TOPICS, 7, {"topics": [spec], "timeout": 5000})
            time.sleep(rng.random() * 0.05)
            broker.kill()
        broker = start_broker(data=data)
        with raw.Client(broker.bootstrap) as client:
            found = {topic.name: topic for topic in client.call(raw.METADATA, 12, {"topics": None}).topics}
            assert there <= set(found)
            assert not gone & set(found)
            for topic in found.values():
                assert all(each.error_code == 0 for each in topic.partitions), topic.name
            unfinished = found.get(f"last-{turn}")
            assert unfinished is None or len(unfinished.partitions) == 200


def test_sigterm_under_load_stops_cleanly_and_the_next_start_reads_nothing(
    start_broker, start_node, steady_port, tmp_path, rng
):
    port, data = steady_port, str(tmp_path / "data")
    broker = start_broker(data=data, port=port)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    create_topic(admin, "rolling", partitions=PARTITIONS, config=TOPICS["rolling"])
    places = [Place("rolling", index) for index in range(PARTITIONS)]
    ledger = Ledger()
    load = ConfluentLoad("librdkafka", broker.bootstrap, places, ledger, rng)
    ledger.await_more(rng.randrange(200, 1000))
    broker.stop()
    node = start_node(log_dirs=(data,))
    assert node.node.store.recovered_bytes == 0
    with raw.Client(node.bootstrap) as client:
        for place, end in ledger.ends().items():
            assert end_offset(client, place) >= end
    node.stop()
    broker = start_broker(data=data, port=port)
    assert load.finish() == ledger.count, ledger.problems[:5]
    ledger.check(broker.bootstrap, exactly_once=("librdkafka",))


def end_offset(client: raw.Client, place: Place) -> int:
    asked = [{"partition_index": place.partition, "timestamp": -1}]
    body = {"replica_id": -1, "topics": [{"name": place.topic, "partitions": asked}]}
    found = client.call(raw.LIST_OFFSETS, 8, body).topics[0].partitions[0]
    assert found.error_code == 0, found
    return int(found.offset)


def kill_while_it_starts(data: str, port: int, rng: random.Random) -> None:
    """A broker that dies before it has read all of its logs must not make anything worse."""
    command = [sys.executable, "-m", "headrace.cli.main", "up", "--port", str(port), "--data", data]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(rng.random() * 0.5)
    process.send_signal(signal.SIGKILL)
    process.wait(WAIT_S_MAX)
