"""A directory that can be damaged: written once, as a clean stop and as a kill leave it, then copied for each damage.

`read_everything` reads as a client does: it takes whole batches with the right CRC, asks again where it got none, and
seeks past what is refused. Whatever it misses must have been named.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import crc32c
import raw
from faulty_disk import FaultyDisk
from node_thread import NodeThread
from waits import eventually

from headrace.core.errors import HeadraceError
from headrace.log.partition_log import PartitionLog
from headrace.log.transactions import Marker, build_marker

FIRST_MS = 1_700_000_000_000
SETTINGS: dict[str, Any] = {"log_scrub_bytes_per_second": 0}
TOPIC = "orders"
CORRUPT_MESSAGE, OUT_OF_RANGE = 2, 1
ASKED_AGAIN_MAX = 2  # times that a reader asks for the same offset before it must be told what is wrong
_HEADER = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True)
class Template:
    """What was written, and where copies of it are."""

    clean: str
    killed: str
    topic: raw.Topic
    values: dict[int, bytes]
    end: int
    flushed: int  # everything below it was flushed before the kill
    aborted: list[tuple[int, int]]
    last: tuple[int, bytes]  # base offset and bytes of the last batch of an idempotent producer


class Waiter:
    def done(self, log: PartitionLog, error: Exception | None) -> None:
        assert error is None, error


def write_template(folder: str) -> Template:
    """Several segments with indexes, an aborted transaction, an idempotent producer; some of it above the recovery
    point."""
    clean, killed = os.path.join(folder, "clean"), os.path.join(folder, "killed")
    node = NodeThread(FaultyDisk(), SETTINGS | {"log_dirs": (clean,)})
    values: dict[int, bytes] = {}
    with raw.Client(node.bootstrap) as client:
        sizes = {"internal.segment.bytes": 30_000, "index.interval.bytes": 1000}
        topic = raw.make_topic(client, 1, TOPIC, **sizes)
        producer = client.call(raw.INIT_PRODUCER_ID, 4, {"transactional_id": None}).producer_id
        log = node.node.store.find(TOPIC, 0)
        assert log is not None
        sent = 0

        def some(count: int) -> tuple[int, bytes]:
            nonlocal sent
            for _ in range(count):
                base = log.end_offset
                more = [b"value %d " % (base + i) + os.urandom(500) for i in range(3)]
                records = [raw.Record(value, timestamp=FIRST_MS + base + i) for i, value in enumerate(more)]
                data = raw.batch(records, producer=(producer, 0, sent))
                answer = raw.produce(client, topic, data)
                assert (answer.error_code, answer.base_offset) == (0, base)
                values.update((base + i, value) for i, value in enumerate(more))
                sent += 3
            return base, data

        some(25)
        aborted_from = log.end_offset
        node.on_loop(lambda: _abort(log, values))
        eventually(lambda: log.end_offset == aborted_from + 2, "the marker is written")
        some(35)

        def flush() -> bool:
            node.on_loop(node.node.housekeeping.checkpoint)
            return log.recovery_point == log.end_offset

        eventually(flush, "everything is flushed")
        node.on_loop(lambda: node.node.store.save_checkpoints())
        flushed = log.end_offset
        last = some(10)
        end = log.end_offset
    shutil.copytree(clean, killed)  # nothing is being written: this is what a kill would leave
    node.stop()
    assert len(glob.glob(os.path.join(clean, f"{TOPIC}-0", "*.log"))) >= 4
    return Template(clean, killed, topic, values, end, flushed, [(7777, aborted_from)], last)


def _abort(log: PartitionLog, values: dict[int, bytes]) -> None:
    """One transaction that is aborted, without the coordinator around it."""
    now = FIRST_MS + log.end_offset
    data = bytearray(raw.batch(raw.values(b"aborted", at_ms=now), attributes=raw.TRANSACTIONAL, producer=(7777, 0, 0)))
    values[log.end_offset] = b"aborted"
    log.appender.stage(memoryview(data), 0, len(data), now, Waiter(), transactional=True)
    marker = Marker(7777, 0, 0, False)
    log.appender.stage_own(build_marker(marker, now), now, Waiter(), marker)


# ── starting and reading ─────────────────────────────────────────────────────────────────────────────────────────────


class Lines(logging.Handler):
    """What was logged, with its fields."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "fields", {})
        self.lines.append(record.getMessage() + "".join(f" {key}={value}" for key, value in fields.items()))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@contextmanager
def logged() -> Iterator[Lines]:
    lines = Lines()
    logger = logging.getLogger("headrace")
    logger.addHandler(lines)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)


@dataclass
class Outcome:
    found: dict[int, bytes]
    refused: list[tuple[int, int]]  # offsets that were answered with CORRUPT_MESSAGE
    named: list[tuple[int, int]]  # offsets that the broker says are damaged or lost
    lines: str
    refusal: str = ""  # why it did not start
    aborted: list[tuple[int, int]] | None = None
    times: dict[int, int] | None = None  # by timestamp: the offset that it was answered with, or -code
    next_offset: int = -1
    health: list[str] | None = None

    def missing(self, template: Template) -> list[int]:
        return [offset for offset in template.values if offset not in self.found]

    def unnamed(self, template: Template) -> list[int]:
        """Records that are gone and of which nobody has said a word."""
        return [
            offset
            for offset in self.missing(template)
            if not any(first <= offset < following for first, following in self.named)
        ]


def start_and_read(template: Template, data: str, disk: FaultyDisk | None = None) -> Outcome:
    with logged() as lines:
        try:
            node = NodeThread(disk or FaultyDisk(), SETTINGS | {"log_dirs": (data,)})
        except HeadraceError as error:
            return Outcome({}, [], [], lines.text, refusal=str(error))
        try:
            with raw.Client(node.bootstrap) as client:
                outcome = read_everything(client, template, node)
                outcome.aborted = _aborted(client, template)
                outcome.times = {t: _time(client, template, t) for t in (FIRST_MS + 1, FIRST_MS + 100)}
                data_again = raw.batch(raw.values(b"written after the damage"))
                answer = raw.produce(client, template.topic, data_again)
                assert answer.error_code == 0, answer
                outcome.next_offset = answer.base_offset
                read = raw.fetch(client, template.topic, answer.base_offset)
                assert raw.values_of(read.records) == [b"written after the damage"]
                outcome.health = list(node.node.snapshot()["damage"])  # type: ignore[call-overload]
        finally:
            node.stop()
    outcome.lines = lines.text
    torn = [int(each) for each in re.findall(r"cut at byte .* the log ends at offset (\d+)", lines.text)]
    outcome.named += [(offset, 1 << 62) for offset in torn]
    return outcome


def read_everything(client: raw.Client, template: Template, node: NodeThread) -> Outcome:
    found: dict[int, bytes] = {}
    refused: list[tuple[int, int]] = []
    offset, end, asked_again = 0, raw.list_offset(client, template.topic), 0
    while offset < end:
        answer = raw.fetch(client, template.topic, offset)
        if answer.error_code == OUT_OF_RANGE:
            start = raw.list_offset(client, template.topic, timestamp=-2)
            assert start > offset, f"offset {offset} is out of range, and the log starts at {start}"
            offset = start
            continue
        if answer.error_code == CORRUPT_MESSAGE:
            following = _next_good(node, offset)
            assert following > offset, f"refused at {offset}, but nobody says where to go on"
            refused.append((offset, following))
            offset, asked_again = following, 0
            continue
        assert answer.error_code == 0, answer
        assert answer.records, f"an empty answer at {offset}, below the end {end}"
        before = offset
        for base, last, records in good_batches(bytes(answer.records)):
            if last < offset:
                continue
            assert base <= last
            found.update((record.offset, record.value or b"") for record in records if record.offset >= before)
            offset = last + 1
        asked_again = asked_again + 1 if offset == before else 0
        assert asked_again <= ASKED_AGAIN_MAX, f"a reader is stuck at {offset}: it gets bytes that are no batch"
    entries = [entry for directory in node.node.store.directories for entry in directory.damage.entries]
    named = [(each.first_offset, each.next_offset if each.next_offset >= 0 else 1 << 62) for each in entries]
    return Outcome(found, refused, named, "")


def _next_good(node: NodeThread, offset: int) -> int:
    entries = [entry for directory in node.node.store.directories for entry in directory.damage.entries]
    return max((e.next_offset for e in entries if e.first_offset <= offset < e.next_offset), default=-1)


def good_batches(data: bytes) -> Iterator[tuple[int, int, list[raw.Record]]]:
    """As a client reads an answer: up to the first batch that is not whole."""
    at = 0
    while at + _HEADER.size <= len(data):
        head = _HEADER.unpack_from(data, at)
        end = at + 12 + head[1]
        if head[1] < 49 or head[3] != 2 or end > len(data) or crc32c.crc32c(data[at + 21 : end]) != head[4]:
            return
        control = head[5] & raw.CONTROL
        yield head[0], head[0] + head[6], [] if control else raw.records_of(data[at:end])
        at = end


def _aborted(client: raw.Client, template: Template) -> list[tuple[int, int]] | None:
    body = raw.fetch_body((template.topic, 0, template.aborted[0][1]), max_wait=0, isolation_level=1)
    answer = client.call(raw.FETCH, 16, body).responses[0].partitions[0]
    if answer.error_code or answer.aborted_transactions is None:
        return None
    return [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]


def _time(client: raw.Client, template: Template, timestamp: int) -> int:
    asked = [{"partition_index": 0, "timestamp": timestamp}]
    body = {"replica_id": -1, "topics": [template.topic.ref | {"partitions": asked}]}
    answer = client.call(raw.LIST_OFFSETS, 8, body).topics[0].partitions[0]
    return int(answer.offset) if not answer.error_code else -int(answer.error_code)


# ── damages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Files:
    """The files of one copy, and what can be done to them."""

    def __init__(self, data: str) -> None:
        self.data = data
        self.partition = os.path.join(data, f"{TOPIC}-0")

    def log(self, at: int) -> str:
        return sorted(glob.glob(os.path.join(self.partition, "*.log")))[at]

    def beside(self, at: int, suffix: str) -> str:
        return self.log(at)[:-4] + suffix

    def all(self, pattern: str) -> list[str]:
        return glob.glob(os.path.join(self.partition, pattern))

    def root(self, name: str) -> str:
        return os.path.join(self.data, name)

    def positions(self, path: str) -> list[int]:
        with open(path, "rb") as file:
            data = file.read()
        found, at = [], 0
        while at + _HEADER.size <= len(data):
            found.append(at)
            at += 12 + _HEADER.unpack_from(data, at)[1]
        return found


def flip(path: str, position: int, mask: int = 0x41) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ mask]))


def overwrite(path: str, data: bytes, position: int = 0) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def garbage(path: str) -> None:
    """As many bytes as before, and none of them right. Always the same, so that a failure comes again."""
    size = os.path.getsize(path)
    overwrite(path, bytes((i * 197 + 91) % 251 for i in range(size)))


def append(path: str, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def empty(path: str) -> None:
    os.truncate(path, 0)


def write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
