"""Batches without records, which stand in place of lost offsets: every kind of reader passes over them.

Three places: before the first record and between two (`headrace log repair` puts them there), and behind the last one
(a start puts them there when the end of a log is gone).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import aiokafka
import pytest
import raw
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from headrace_process import HeadraceProcess
from java import JavaTools
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from raw import Client, make_topic, produce, values
from waits import WAIT_S_MAX

HEADER_BYTES = 61
BATCHES, RECORDS = 6, 5
LOST = (0, 2, 3)  # batches of the topic whose middle is damaged
SETTINGS = {"log.segment.bytes": str(1 << 20)}


class Damaged:
    """Two topics with lost records: which records are left of each, by offset."""

    def __init__(self, data: Path, broker: HeadraceProcess) -> None:
        self.data = data
        self.bootstrap = broker.bootstrap
        self.left: dict[str, list[tuple[int, str]]] = {}


def value(batch: int, record: int) -> str:
    return f"batch {batch} record {record}"


def fill(client: Client) -> raw.Topic:
    topic = make_topic(client)
    for batch in range(BATCHES):
        sent = raw.batch(values(*(value(batch, each).encode() for each in range(RECORDS))))
        assert produce(client, topic, sent).error_code == 0
    return topic


def left_of(batches: Iterable[int]) -> list[tuple[int, str]]:
    return [(batch * RECORDS + record, value(batch, record)) for batch in batches for record in range(RECORDS)]


def break_batches(path: Path) -> None:
    """A byte of the records of some batches is another one."""
    data = bytearray(path.read_bytes())
    at = 0
    for batch in range(BATCHES):
        if batch in LOST:
            data[at + HEADER_BYTES + 3] ^= 0xFF
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    assert at == len(data)
    path.write_bytes(data)


def cut_batches(path: Path, kept: int) -> None:
    data = path.read_bytes()
    at = 0
    for _ in range(kept):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    path.write_bytes(data[:at])


@pytest.fixture(scope="module")
def damaged(is_headrace: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    if not is_headrace:
        pytest.skip("damages the files of a broker of its own")
    data = tmp_path_factory.mktemp("fillers") / "data"
    with HeadraceProcess(str(data), SETTINGS) as broker, Client(broker.bootstrap) as client:
        middle, end = fill(client), fill(client)
    log = "00000000000000000000.log"
    break_batches(data / f"{middle.name}-0" / log)
    repair = [sys.executable, "-m", "headrace.cli.main", "log", "repair", str(data), "--execute"]
    ran = subprocess.run(repair, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert ran.returncode == 0, ran.stderr
    with HeadraceProcess(str(data), SETTINGS):  # notes at its end what is there
        pass
    cut_batches(data / f"{end.name}-0" / log, 2)
    with HeadraceProcess(str(data), SETTINGS) as broker:
        found = Damaged(data, broker)
        with Client(broker.bootstrap) as client:
            for topic in (middle, end):
                answer = produce(client, topic, raw.batch(values(b"new")))
                assert (answer.error_code, answer.base_offset) == (0, BATCHES * RECORDS), "no offset is given twice"
        new = (BATCHES * RECORDS, "new")
        found.left[middle.name] = [*left_of(tuple(each for each in range(BATCHES) if each not in LOST)), new]
        found.left[end.name] = [*left_of(range(2)), new]
        yield found


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_librdkafka_passes_over_fillers(damaged: Damaged, isolation: str) -> None:
    settings = {"bootstrap.servers": damaged.bootstrap, "group.id": "unused", "isolation.level": isolation}
    for topic, left in damaged.left.items():
        with closing(Consumer({**settings, "check.crcs": True})) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            messages = [consumer.poll(WAIT_S_MAX) for _ in left]
            assert [each and each.error() for each in messages] == [None] * len(left)
            assert [(each.offset(), each.value().decode()) for each in messages] == left
            inside = LOST[1] * RECORDS + 1
            consumer.seek(TopicPartition(topic, 0, inside))
            assert consumer.poll(WAIT_S_MAX).offset() == next(offset for offset, _ in left if offset >= inside)


@pytest.mark.xdist_group("java")
def test_java_passes_over_fillers(damaged: Damaged, java: JavaTools) -> None:
    for topic, left in damaged.left.items():
        records = java.ok("JavaClient", "consume", damaged.bootstrap, topic, len(left)).objects
        assert [(each["offset"], each["value"]) for each in records] == left


def test_kafka_python_passes_over_fillers(damaged: Damaged) -> None:
    for topic, left in damaged.left.items():
        with closing(KafkaConsumer(bootstrap_servers=[damaged.bootstrap], fetch_max_wait_ms=100)) as consumer:
            here = KafkaPythonPartition(topic, 0)
            consumer.assign([here])
            consumer.seek_to_beginning(here)
            found: list[tuple[int, str]] = []
            deadline = time.monotonic() + WAIT_S_MAX
            while len(found) < len(left) and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=500).values()
                found += [(each.offset, each.value.decode()) for batch in polled for each in batch]
        assert found == left


def test_aiokafka_passes_over_fillers(damaged: Damaged) -> None:
    async def read(topic: str, count: int) -> list[tuple[int, str]]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=damaged.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            got = [await asyncio.wait_for(consumer.getone(), WAIT_S_MAX) for _ in range(count)]
            return [(each.offset, each.value.decode()) for each in got]
        finally:
            await consumer.stop()

    for topic, left in damaged.left.items():
        assert asyncio.run(read(topic, len(left))) == left


def test_headrace_consume_passes_over_fillers(damaged: Damaged) -> None:
    for topic, left in damaged.left.items():
        command = [sys.executable, "-m", "headrace.cli.main", "consume", topic, "--bootstrap", damaged.bootstrap]
        command += ["--format", "raw"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
        assert (ran.returncode, ran.stdout.splitlines()) == (0, [value for _, value in left])
