"""`headrace bench produce`: sends as fast as it can, or at a given rate, and measures each acknowledgement."""

import os
import time
from array import array
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.names import complete_topic
from headrace.cli.reaching import broker_options

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach

PAYLOADS = 64  # different ones, so that compression does not see one value forever


@click.command(short_help="Records per second in, and how long each takes.")
@click.option("--records", "-n", type=click.IntRange(1), default=200_000, show_default=True, metavar="N")
@click.option("--size", type=click.IntRange(1), default=100, show_default=True, metavar="BYTES", help="Of a value.")
@click.option("--rate", type=click.FloatRange(1), metavar="N", help="Records per second.  [default: as many as it can]")
@click.option("--topic", shell_complete=complete_topic, help="An existing topic.  [default: one created for this run]")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@click.option("--acks", type=click.Choice(("all", "1", "0")), default="all", show_default=True)
@click.option("--linger-ms", type=click.FloatRange(0), default=5.0, show_default=True, metavar="MS")
@click.option("--compression", type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")), default="none")
@broker_options
def produce(
    records: int,
    size: int,
    rate: float | None,
    topic: str | None,
    partitions: int,
    acks: str,
    linger_ms: float,
    compression: str,
    reach: "Reach",
    as_json: bool,
) -> None:
    """Send records as fast as one client can, and measure how long each acknowledgement takes.

    \b
    Examples:
      headrace bench produce
      headrace bench produce --records 1000000 --size 1000 --rate 50000 --json
    """
    from headrace.cli.bench.meter import bench_topic, report

    settings = {"acks": acks, "linger.ms": linger_ms, "compression.type": compression}
    with bench_topic(reach, topic, partitions) as name:
        found = run(reach, name, records, size, rate=rate, settings=settings)
    report("produce", name, found, as_json)


def run(
    reach: "Reach",
    topic: str,
    records: int,
    size: int,
    *,
    rate: float | None = None,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    from confluent_kafka import Producer

    from headrace.cli.bench.meter import RateMeter
    from headrace.cli.bench.percentiles import summary
    from headrace.cli.reaching import kafka_text
    from headrace.client.librdkafka import make_client, producer_settings
    from headrace.core.errors import OperatorError

    latencies = array("d")
    failures: list[str] = []

    def done(error: Any, message: Any) -> None:
        if error is None:
            latencies.append(message.latency() * 1000)
        elif not failures:
            failures.append(kafka_text(error))

    own = {
        "queue.buffering.max.messages": 200_000,
        "message.timeout.ms": 30_000,
        "allow.auto.create.topics": False,  # or it would make its topic again after it was deleted
    }
    given = {**producer_settings({**reach.client_settings(), **(settings or {})}), **own}
    producer: Producer = make_client("headrace", Producer, given)
    payloads = [os.urandom((size + 1) // 2).hex()[:size].encode() for _ in range(PAYLOADS)]
    # Neither the connection nor the producer's id is what is measured.
    producer.list_topics(topic, timeout=10)
    producer.produce(topic, payloads[0])
    producer.flush(10)
    meter = RateMeter(records)
    began = time.monotonic()
    try:
        for number in range(records):
            if rate is not None:
                _wait_for(producer, began + number / rate)
            while True:
                try:
                    producer.produce(topic, payloads[number % PAYLOADS], on_delivery=done)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 64 == 0:
                producer.poll(0)
                meter.add(len(latencies) - meter.records, (len(latencies) - meter.records) * size)
                if failures:
                    break
        while producer.flush(0.1) and not failures:
            meter.add(len(latencies) - meter.records, (len(latencies) - meter.records) * size)
    finally:
        meter.clear()
        if failures:
            producer.purge()
            producer.flush(5)
    meter.add(len(latencies) - meter.records, (len(latencies) - meter.records) * size)
    if failures:
        raise OperatorError(f"{failures[0]}; {len(latencies):,} of {records:,} records were acknowledged")
    return {**meter.end(), "size": size, "latency_ms": summary(latencies)}


def _wait_for(producer: Any, when: float) -> None:
    while (left := when - time.monotonic()) > 0:
        producer.poll(min(left, 0.05))
