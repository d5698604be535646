"""`kafka-dump-log.sh` and Kafka's DumpLogSegments over the same files: line by line the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from headrace_process import HeadraceProcess
from java import JavaTools
from memberships import crew_of
from tool_process import ok, run
from topic_setup import create_topic
from waits import WAIT_S_MAX

pytestmark = pytest.mark.xdist_group("java")

StartHeadrace = Callable[..., HeadraceProcess]
DUMP = "kafka-dump-log.sh"
JAVA_DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The directory of a broker that held one of everything, and was stopped."""
    if request.config.getoption("--bootstrap") is not None:
        pytest.skip("needs the files of a broker of its own")
    data = tmp_path_factory.mktemp("dump") / "data"
    settings = {"group.initial.rebalance.delay.ms": "0"}
    chance = random.Random(0)
    with HeadraceProcess(str(data), settings) as broker:
        admin = AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})
        create_topic(admin, "events", partitions=2, config={"index.interval.bytes": "2000"})
        create_topic(admin, "stamped", config={"message.timestamp.type": "LogAppendTime"})
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = Producer(
                {"log_level": 0, "bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 0}
            )
            for number in range(20):
                producer.produce(
                    "events",
                    f"{codec} {number} " + chance.randbytes(500).hex(),
                    f"key-{number}",
                    0,
                    headers=[("h", b"1")],
                )
                producer.flush(WAIT_S_MAX)
        producer.produce("stamped", None, "tombstone")
        producer.flush(WAIT_S_MAX)
        writer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "transactional.id": "an-id"})
        writer.init_transactions(WAIT_S_MAX)
        for end in (writer.commit_transaction, writer.abort_transaction):
            writer.begin_transaction()
            writer.produce("events", "in a transaction", partition=1)
            writer.flush(WAIT_S_MAX)
            end(WAIT_S_MAX)
        for protocol in ("classic", "consumer"):
            with crew_of(broker.bootstrap, f"{protocol}-group", "events", group_protocol=protocol) as crew:
                crew.join()
                crew.settle(2)
                crew.members[0].commit(offsets=[TopicPartition("events", 0, 5)], asynchronous=False)
    return data


def files(logs: Path, topic: str, *suffixes: str) -> str:
    found = [file for suffix in suffixes for file in sorted(logs.glob(f"{topic}-*/*.{suffix}")) if file.stat().st_size]
    assert found, f"no {suffixes} of {topic}"
    return ",".join(map(str, found))


@pytest.mark.parametrize(
    ("topic", "suffixes", "flags"),
    [
        ("events", ("log",), ()),
        ("events", ("log",), ("--deep-iteration",)),
        ("events", ("log",), ("--print-data-log",)),
        ("events", ("log",), ("--print-data-log", "--skip-record-metadata")),
        ("events", ("log",), ("--max-bytes", "5000")),
        ("events", ("index", "timeindex"), ()),
        ("events", ("index", "timeindex"), ("--verify-index-only",)),
        ("events", ("index", "timeindex"), ("--index-sanity-check",)),
        ("events", ("snapshot", "txnindex"), ()),
        ("stamped", ("log",), ("--print-data-log",)),
        ("__consumer_offsets", ("log",), ("--offsets-decoder",)),
        ("__transaction_state", ("log",), ("--transaction-log-decoder",)),
    ],
)
def test_both_show_the_same(
    java: JavaTools, logs: Path, topic: str, suffixes: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    words = (*flags, "--files", files(logs, topic, *suffixes))
    theirs = java.ok(JAVA_DUMP, *words)
    ours = ok(DUMP, *words)
    assert ours.lines == theirs.lines
    assert len(ours.lines) > 1


def test_a_torn_tail_and_a_damaged_batch_are_shown_alike(java: JavaTools, logs: Path, tmp_path: Path) -> None:
    source = next(file for file in sorted(logs.glob("events-0/*.log")) if file.stat().st_size)
    torn = tmp_path / source.name
    torn.write_bytes(source.read_bytes()[:-7])
    words = ("--deep-iteration", "--files", torn)
    theirs, ours = java.ok(JAVA_DUMP, *words), ok(DUMP, *words)
    assert ours.lines == theirs.lines
    assert "invalid bytes at the end of" in ours.lines[-1]
    data = bytearray(source.read_bytes())
    data[70] ^= 1  # within the first batch, behind its header
    torn.write_bytes(bytes(data))
    theirs, ours = java.run(JAVA_DUMP, "--files", torn), run(DUMP, "--files", torn)
    assert ours.lines == theirs.lines
    assert ours.lines[2].endswith("isvalid: false")


def test_an_index_that_does_not_fit_its_log_is_told(java: JavaTools, logs: Path, tmp_path: Path) -> None:
    index = next(file for file in sorted(logs.glob("events-0/*.index")) if file.stat().st_size > 16)
    for suffix in ("log", "index"):
        shutil.copy(index.with_suffix(f".{suffix}"), tmp_path)
    wrong = bytearray(index.read_bytes())
    wrong[3] += 1  # the offset of the first entry
    (tmp_path / index.name).write_bytes(bytes(wrong))
    words = ("--files", tmp_path / index.name)
    theirs, ours = java.run(JAVA_DUMP, *words), run(DUMP, *words)
    assert (ours.lines, ours.err) == (theirs.lines, theirs.err)
    assert ours.err.startswith("Mismatches in :")
    assert ours.exit == 1


def test_what_is_no_log_file_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    ran = run(DUMP, "--files", tmp_path / "notes.txt")
    assert ran.err == f"Ignoring unknown file {tmp_path}/notes.txt\n"
    ran = run(DUMP, "--files", tmp_path / "00000000000000000000.log")
    assert ran.exit == 1
    assert "no such file or directory" in ran.err
    (tmp_path / "name.log").write_bytes(b"")
    assert "a log's files are named after their first offset" in run(DUMP, "--files", tmp_path / "name.log").err
