"""`make demo`: a broker in a process of its own, a million records in and out with a real client, the rates.

It needs nothing but what `make install` put in place, ends by itself, and leaves nothing behind.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, Producer, TopicPartition

RECORDS = 1_000_000
RECORD_BYTES = 100
PARTITIONS = 6
TOPIC = "demo"
STEP_S_MAX = 60.0


@contextlib.contextmanager
def broker(data: str) -> Iterator[tuple[str, int, float]]:
    """Starts `headrace up` on a free port; gives its address, process id and the seconds it took."""
    command = [sys.executable, "-m", "headrace.cli.main", "up", "--port", "0", "--data", data]
    began = time.monotonic()
    process = subprocess.Popen([*command, "--set", f"num.partitions={PARTITIONS}"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"listens on (\S+)", process.stdout.readline())
        if found is None:
            raise SystemExit("demo: the broker did not start; its own line above says why")
        yield found[1], process.pid, time.monotonic() - began
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def produce(address: str) -> float:
    """Seconds from the first record to the last acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "compression.type": "none",
            "linger.ms": 5,
            "batch.size": 256 * 1024,
            "queue.buffering.max.messages": 500_000,
        }
    )
    failures: list[object] = []
    payload = os.urandom(RECORD_BYTES)

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    began = time.monotonic()
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(TOPIC, payload, partition=number % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(STEP_S_MAX)
    took = time.monotonic() - began
    if failures or left:
        raise SystemExit(f"demo: {len(failures) + left} records were not acknowledged: {failures[:1]}")
    return took


def consume(address: str) -> float:
    """Seconds from the first to the last record read, over all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "demo",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 4 << 20,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    began = time.monotonic()
    seen = 0
    while seen < RECORDS:
        if time.monotonic() - began > STEP_S_MAX:
            raise SystemExit(f"demo: {seen:,} of {RECORDS:,} records were read within {STEP_S_MAX:g} s")
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is not None:
                raise SystemExit(f"demo: {message.error()}")
            seen += 1
    took = time.monotonic() - began
    consumer.close()
    return took


def memory_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="headrace-demo-") as data,
        broker(data) as (address, pid, start_s),
    ):
        idle_mb = memory_mb(pid)
        print(f"Headrace on {address}, started in {start_s:.2f} s; {RECORDS:,} records of {RECORD_BYTES} bytes,")
        print(f"{PARTITIONS} partitions, confluent-kafka: idempotent producer, then a consumer by assign\n")
        produce_s = produce(address)
        consume_s = consume(address)
        print(f"  {'':10}{'records/s':>12}{'MB/s':>8}{'seconds':>10}")
        for name, took in (("produce", produce_s), ("consume", consume_s)):
            rate = RECORDS / took
            print(f"  {name:10}{rate:>12,.0f}{rate * RECORD_BYTES / 1e6:>8.0f}{took:>10.2f}")
        print(f"\n  broker memory: {idle_mb:.0f} MB idle, {memory_mb(pid):.0f} MB after")


if __name__ == "__main__":
    main()
