"""Transactions at full speed over plain sockets, in their newest form: a produce request opens one by itself, and its
end brings the epoch of the next. Each producer writes to one partition and waits for every answer."""

import struct
import time

import flexible as f
from crc32c import crc32c
from links import Link, Loop
from processes import MeasurementError

PRODUCE, INIT_PRODUCER, END = (0, 12), (22, 5), (26, 5)
# The coordinator loads or is not known; the partition has no leader yet; the last transaction is still being ended.
NOT_YET = {3, 5, 6, 14, 15, 16, 51}
RETRY_S, LATE_S_MAX, START_S_MAX = 0.001, 30.0, 60.0
TRANSACTION_MS = 60_000
TRANSACTIONAL = 0x10
_BATCH = struct.Struct(">qiibI")


class Producer:
    def __init__(self, load: "Transactions", link: Link, name: str, topic: str, partition: int, records: bytes) -> None:
        self._load, self._link, self._records = load, link, records
        self._name = f.text(name)
        self._head = self._name + struct.pack(">hi", -1, 30_000) + b"\x02" + f.text(topic)
        self._head += b"\x02" + struct.pack(">i", partition)
        self._error_at = 5 + 1 + len(f.text(topic)) + 1 + 4  # header, an array's count, name, count, index
        self._id, self._epoch = -1, -1

    def start(self) -> None:
        body = self._name + struct.pack(">iqh", TRANSACTION_MS, -1, -1) + f.NOTHING
        self._link.told = self._started
        self._link.send(f.request(*INIT_PRODUCER, body))

    def _started(self, data: bytes) -> None:
        code, self._id, self._epoch = struct.unpack_from(">hqh", data, 9)
        if code in NOT_YET:
            self._load.loop.later(RETRY_S, self.start)
        elif code:
            raise MeasurementError(f"InitProducerId: error {code}")
        else:
            self._load.pending -= 1

    def produce(self) -> None:
        now_ms = int(time.time() * 1000)
        count = self._load.records
        checked = struct.pack(">hiqqqhii", TRANSACTIONAL, count - 1, now_ms, now_ms, self._id, self._epoch, 0, count)
        checked += self._records
        batch = _BATCH.pack(0, len(checked) + 9, -1, 2, crc32c(checked)) + checked
        self._link.told = self._produced
        self._link.send(f.request(*PRODUCE, self._head + f.sized(batch) + b"\x00\x00\x00"))

    def _produced(self, data: bytes) -> None:
        code = int.from_bytes(data[self._error_at : self._error_at + 2], "big")
        if code in NOT_YET:
            self._load.refused += 1
            self._load.loop.later(RETRY_S, self.produce)
        elif code:
            raise MeasurementError(f"Produce in a transaction: error {code}")
        else:
            self._end()

    def _end(self) -> None:
        body = self._name + struct.pack(">qh?", self._id, self._epoch, True) + f.NOTHING
        self._link.told = self._ended
        self._link.send(f.request(*END, body))

    def _ended(self, data: bytes) -> None:
        code, producer_id, epoch = struct.unpack_from(">hqh", data, 9)
        if code in NOT_YET:
            self._load.refused += 1
            self._load.loop.later(RETRY_S, self._end)
            return
        if code:
            raise MeasurementError(f"EndTxn: error {code}")
        self._id, self._epoch = producer_id, epoch
        self._load.done += 1
        if time.monotonic() < self._load.until:
            self.produce()
        else:
            self._load.pending -= 1


class Transactions:
    def __init__(self, loop: Loop, topic: str, *, producers: int, partitions: int, records: int, size: int) -> None:
        self.loop, self.records = loop, records
        self.done, self.refused, self.pending, self.until = 0, 0, producers, 0.0
        body = _records(records, b"r" * size)
        self._producers = [
            Producer(self, loop.connect(), f"{topic}-{number}", topic, number % partitions, body)
            for number in range(producers)
        ]
        for producer in self._producers:
            producer.start()
        loop.run(lambda: not self.pending, seconds_max=START_S_MAX, doing="producers with a transactional id")

    def run(self, seconds: float) -> dict[str, float]:
        began = time.monotonic()
        self.until, self.pending = began + seconds, len(self._producers)
        for producer in self._producers:
            producer.produce()
        self.loop.run(lambda: not self.pending, seconds_max=seconds + LATE_S_MAX, doing="transactions")
        took = time.monotonic() - began
        return {"records": self.done, "per_s": self.done / took, "refused": self.refused}

    def close(self) -> None:
        self.loop.close()


def _records(count: int, value: bytes) -> bytes:
    out = b""
    for index in range(count):
        record = b"\x00\x00" + _zigzag(index) + b"\x01" + _zigzag(len(value)) + value + b"\x00"
        out += _zigzag(len(record)) + record
    return out


def _zigzag(number: int) -> bytes:
    return f.count(2 * number - 1)
