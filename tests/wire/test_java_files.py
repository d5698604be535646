"""Apache Kafka reads the files of a log without a complaint: segments, indexes, snapshots and checkpoints.

The files are those of a Headrace broker that was stopped; with --bootstrap, those of that broker if it runs
on this machine, which proves the test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from headrace_process import HeadraceProcess
from java import JavaTools
from kafka import KafkaAdminClient
from topic_setup import create_topic, delete_topic, describe, fresh_name
from waits import WAIT_S_MAX

pytestmark = pytest.mark.xdist_group("java")

DUMP = "org.apache.kafka.tools.DumpLogSegments"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_PER_CODEC = 400
RECORDS = RECORDS_PER_CODEC * len(CODECS)
COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|missing|out of order|invalid|isvalid: false|corrupt|exception", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One partition on disk, of at least three segments, written idempotently by every codec."""

    directory: str  # the log directory, where the checkpoints are
    name: str  # topic-partition
    topic_id: str
    stopped: bool  # the last indexes of a running Kafka end with unused room, which its own tool calls damage

    def files(self, suffix: str) -> list[str]:
        path = os.path.join(self.directory, self.name)
        return sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(suffix))

    def indexes(self, suffix: str) -> list[str]:
        files = self.files(suffix)
        assert [Path(file).stem for file in files] == [Path(file).stem for file in self.files(".log")]
        return files if self.stopped else files[:-1]


@pytest.fixture(scope="module")
def log(is_headrace: bool, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    topic = fresh_name("files")
    if is_headrace:
        data = str(tmp_path_factory.mktemp("files") / "data")
        with HeadraceProcess(data) as broker:
            written = write(broker.bootstrap, topic, stopped=True)
        yield written
        return
    bootstrap = request.getfixturevalue("bootstrap")
    written = write(bootstrap, topic, stopped=False)
    try:
        if not os.path.isdir(os.path.join(written.directory, written.name)):
            pytest.skip(f"the files of {bootstrap} are not on this machine")
        yield written
    finally:
        delete_topic(AdminClient({"bootstrap.servers": bootstrap}), topic)


def write(bootstrap: str, topic: str, *, stopped: bool) -> Log:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topic(admin, topic, config={"segment.bytes": str(1 << 20)})
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        for n in range(RECORDS_PER_CODEC):
            # Hexadecimal noise: every codec halves it, and none makes it vanish, so that segments roll.
            producer.produce(topic, os.urandom(1500).hex(), key=str(n), headers={"codec": codec})
            if n % 50 == 49:
                assert producer.flush(WAIT_S_MAX) == 0
    with closing(KafkaAdminClient(bootstrap_servers=[bootstrap])) as client:
        (broker,) = client.describe_log_dirs({topic: [0]})
    (directory,) = [each["log_dir"] for each in broker["log_dirs"] if each["topics"]]
    topic_id = str(describe(admin, topic).topic_id).replace("/", "_").replace("+", "-")
    return Log(directory=directory, name=f"{topic}-0", topic_id=topic_id, stopped=stopped)


def dump(java: JavaTools, files: list[str], *options: str) -> str:
    assert files
    printed = java.ok(DUMP, *options, "--files", ",".join(files)).out
    complaint = COMPLAINTS.search(printed)
    assert complaint is None, printed[max(0, complaint.start() - 500) : complaint.end() + 500]
    return printed


def test_every_batch_and_record_of_every_segment_is_read(log: Log, java: JavaTools) -> None:
    segments = log.files(".log")
    assert len(segments) >= 3
    printed = dump(java, segments, "--deep-iteration", "--print-data-log")
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) .*isvalid: true", printed, re.MULTILINE)
    records = re.findall(r"^\| offset: (\d+) .*headerKeys: \[codec\] key: (\d+) payload:", printed, re.MULTILINE)
    assert [int(offset) for offset, _ in records] == list(range(RECORDS))
    assert [int(key) for _, key in records] == list(range(RECORDS_PER_CODEC)) * len(CODECS)
    assert [int(base) for base, _ in batches] == [0, *(int(last) + 1 for _, last in batches[:-1])]
    assert set(re.findall(r"compresscodec: (\w+)", printed)) == set(CODECS)
    assert set(re.findall(r"partitionLeaderEpoch: (-?\d+)", printed)) == {"0"}
    for file in segments:
        assert f"Log starting offset: {int(Path(file).stem)}" in printed


def test_every_offset_index_is_sane_and_agrees_with_its_segment(log: Log, java: JavaTools) -> None:
    indexes = log.indexes(".index")
    assert dump(java, indexes, "--index-sanity-check").count("passed sanity check") == len(indexes)
    printed = dump(java, indexes)  # each entry is looked up in the segment
    assert len(re.findall(r"^offset: \d+ position: \d+", printed, re.MULTILINE)) >= len(indexes) - 1


def test_every_time_index_is_sane_and_agrees_with_its_segment(log: Log, java: JavaTools) -> None:
    indexes = log.indexes(".timeindex")
    assert dump(java, indexes, "--index-sanity-check").count("passed sanity check") == len(indexes)
    printed = dump(java, indexes)
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", printed, re.MULTILINE)) >= len(indexes) - 1


def test_the_producer_snapshots_hold_every_producer(log: Log, java: JavaTools) -> None:
    snapshots = log.files(".snapshot")
    printed = dump(java, snapshots[-1:])
    producers = re.findall(r"^producerId: (\d+) producerEpoch: (\d+) .*lastSequence: (\d+)", printed, re.MULTILINE)
    # The last snapshot of a stopped broker is of its end, that of a running one of the last roll.
    assert len(producers) == len(CODECS) if log.stopped else 1 <= len(producers) <= len(CODECS)
    assert {epoch for _, epoch, _ in producers} == {"0"}
    assert len({producer for producer, _, _ in producers}) == len(producers)


def test_the_checkpoints_beside_the_segments_are_read(log: Log, java: JavaTools) -> None:
    epochs, metadata, recovery, start = java.ok("JavaFiles", log.directory, log.name).objects
    assert epochs == {"leaderEpochs": ["0@0"]}
    assert metadata["topicId"] in (log.topic_id, "")
    if log.stopped:  # so everything is flushed; a running broker writes these once a minute
        assert recovery["recovery-point-offset-checkpoint"][log.name] == RECORDS
        assert start["log-start-offset-checkpoint"].get(log.name, 0) == 0
