"""A full disk: clear refusals, nothing acknowledged is lost, reads go on, and with room producing goes on."""

from __future__ import annotations

import errno
import os
import random
import shutil

import pytest
import raw
from confluent_kafka import KafkaError, Message, Producer
from raw import ErrorCode
from waits import WAIT_S_MAX, eventually

DISK_BYTES = 6 << 20
KEPT_FREE_BYTES = 1 << 20


class Writing:
    """Sends until it is refused, and knows what it was told."""

    def __init__(self, bootstrap: str, partitions: int, rng: random.Random, segment_bytes: int = 400_000) -> None:
        self._rng = rng
        self.client = raw.Client(bootstrap)
        self.topic = raw.make_topic(self.client, partitions, **{"internal.segment.bytes": segment_bytes})
        self.values: dict[int, list[bytes]] = {index: [] for index in range(partitions)}

    def send(self, size_max: int = 60_000) -> int:
        """The error code of one batch to some partition."""
        index = self._rng.choice(list(self.values))
        kept = self.values[index]
        more = [b"%d " % (len(kept) + n) + self._rng.randbytes(self._rng.randrange(size_max)) for n in (0, 1)]
        answer = raw.produce(self.client, self.topic, raw.batch(raw.values(*more)), partition=index)
        if answer.error_code == 0:
            assert answer.base_offset == len(kept), "the next offset, whatever was refused before"
            kept += more
        else:
            assert answer.error_code == ErrorCode.kafka_storage_error, answer
            assert "No space left" in answer.error_message, answer
            assert answer.base_offset == -1
        return int(answer.error_code)

    def fill(self) -> None:
        for size_max in (60_000, 6_000, 60):  # the last free bytes too
            refusals = 0
            for _ in range(5000):
                refusals += self.send(size_max) != 0
                if refusals >= 5:
                    break
            else:
                raise AssertionError("5000 batches were taken by a small disk")

    def check(self, client: raw.Client | None = None) -> None:
        """All that was acknowledged, and nothing else, can be read."""
        client = client or self.client
        for index, values in self.values.items():
            assert raw.list_offset(client, self.topic, index) == len(values)
            found: list[bytes | None] = []
            while len(found) < len(values):
                records = raw.fetch(client, self.topic, len(found), partition=index).records
                more = [record for record in raw.records_of(records) if record.offset >= len(found)]
                assert more, f"nothing is read at offset {len(found)} of partition {index}"
                found += [record.value for record in more]
            assert found == values, f"partition {index}"


@pytest.fixture
def filled(small_disk) -> str:
    """A small disk with a file on it that can be removed to make room."""
    path = small_disk(DISK_BYTES)
    with open(os.path.join(path, "ballast"), "wb") as ballast:
        ballast.write(bytes(KEPT_FREE_BYTES))
    return path


def test_full_disk_refuses_and_goes_on_when_there_is_room(filled, start_broker, rng):
    broker = start_broker({"log.dirs": f"{filled}/data"})
    writing = Writing(broker.bootstrap, 4, rng)
    writing.fill()
    assert shutil.disk_usage(filled).free < 100_000
    writing.check()
    os.unlink(os.path.join(filled, "ballast"))
    for _ in range(8):
        assert writing.send(10_000) == 0
    writing.check()


def test_broker_that_stops_on_a_full_disk_starts_again_and_loses_nothing(filled, start_broker, rng):
    settings = {"log.dirs": f"{filled}/data"}
    broker = start_broker(settings)
    writing = Writing(broker.bootstrap, 4, rng)
    writing.fill()
    broker.stop()
    broker = start_broker(settings)
    with raw.Client(broker.bootstrap) as client:
        writing.check(client)


def test_broker_killed_on_a_full_disk_starts_again_and_loses_nothing(filled, start_broker, rng):
    settings = {"log.dirs": f"{filled}/data"}
    broker = start_broker(settings)
    writing = Writing(broker.bootstrap, 4, rng)
    writing.fill()
    broker.kill()
    broker = start_broker(settings)
    with raw.Client(broker.bootstrap) as client:
        writing.check(client)


def test_administration_of_a_full_disk_is_refused_and_topics_stay_as_they_were(filled, start_broker, rng):
    broker = start_broker({"log.dirs": f"{filled}/data"})
    writing = Writing(broker.bootstrap, 2, rng)
    writing.fill()
    client = writing.client
    before = names(client)
    refused = 0
    for number in range(50):
        spec = {"name": f"more-{number}", "num_partitions": 50, "replication_factor": 1}
        (answer,) = client.call(raw.CREATE_TOPICS, 7, {"topics": [spec], "timeout": 5000}).topics
        assert answer.error_code in (0, ErrorCode.kafka_storage_error), answer
        if answer.error_code:
            refused += 1
        else:
            before.add(spec["name"])
    assert refused
    assert names(client) == before
    writing.check()
    os.unlink(os.path.join(filled, "ballast"))
    raw.make_topic(client, 3, "after")
    assert writing.send(1000) == 0


def test_idempotent_producer_gets_its_records_through_once_there_is_room(filled, start_broker, rng):
    broker = start_broker({"log.dirs": f"{filled}/data"})
    writing = Writing(broker.bootstrap, 1, rng)
    delivered: list[tuple[int, bytes]] = []
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "retry.backoff.ms": 20}
    producer = Producer(settings | {"retry.backoff.max.ms": 200, "log_level": 0})

    def told(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append((message.offset() or 0, message.value() or b""))

    topic = raw.make_topic(writing.client, 1, "patient")
    writing.fill()
    wanted = [b"%d " % number + rng.randbytes(20_000) for number in range(20)]
    for value in wanted:
        producer.produce("patient", value, partition=0, on_delivery=told)
    eventually(lambda: producer.poll(0.05) == 0 and refused_count(broker) > 0, "the producer is refused")
    os.unlink(os.path.join(filled, "ballast"))
    assert producer.flush(WAIT_S_MAX) == 0
    assert delivered == list(enumerate(wanted))
    assert raw.list_offset(writing.client, topic) == len(wanted)


def refused_count(broker) -> int:
    return sum("No space left" in line for line in broker.log_lines())


def names(client: raw.Client) -> set[str]:
    return {topic.name for topic in client.call(raw.METADATA, 12, {"topics": None}).topics}


# The same with a disk that is made up, in the process of the test: it runs everywhere, and fills to the byte.


def test_disk_full_to_the_byte_never_takes_half_a_batch(start_node, rng):
    node = start_node()
    writing = Writing(node.bootstrap, 3, rng)
    for _ in range(30):
        node.disk.fill_after(rng.randrange(200_000))
        for _ in range(200):
            if writing.send(20_000):
                break
        assert writing.send(20_000) in (0, ErrorCode.kafka_storage_error)
        writing.check()
    node.disk.fill_after(None)
    for _ in range(5):
        assert writing.send(5_000) == 0
    writing.check()
    assert node.alive


@pytest.mark.parametrize("segment_bytes", [100_000, 100_000_000], ids=["rolls", "does-not-roll"])
@pytest.mark.parametrize("file", [".index", ".snapshot", "leader-epoch-checkpoint", "-offset-checkpoint"])
def test_room_for_records_but_none_for_what_goes_with_them(start_node, tmp_path, rng, file, segment_bytes):
    data = str(tmp_path / "data")
    node = start_node(log_dirs=(data,), log_flush_offset_checkpoint_interval_ms=50)
    writing = Writing(node.bootstrap, 2, rng, segment_bytes)
    assert writing.send() == 0
    points = os.path.join(data, "recovery-point-offset-checkpoint")
    eventually(lambda: b" 2\n" in (node.disk.read_file(points) or b""), "a recovery point after that batch")
    node.disk.fail(file, on=("write",), code=errno.ENOSPC)
    for _ in range(60):
        writing.send(30_000)
    writing.check()
    node.stop()  # still without room
    node = start_node(log_dirs=(data,))
    with raw.Client(node.bootstrap) as client:
        writing.check(client)
        writing.client = client
        assert writing.send() == 0
