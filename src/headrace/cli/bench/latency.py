"""`headrace bench latency`: from one client to another through the broker, one record at a time."""

import os
import time
from array import array
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.names import complete_topic
from headrace.cli.reaching import broker_options

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach

WARM_UP = 50  # records that do not count
LOST_S_MAX = 10.0


@click.command(short_help="From one client to another, one record at a time.")
@click.option("--records", "-n", type=click.IntRange(1), default=1_000, show_default=True, metavar="N")
@click.option("--size", type=click.IntRange(8), default=100, show_default=True, metavar="BYTES", help="Of a value.")
@click.option("--topic", shell_complete=complete_topic, help="An existing topic.  [default: one created for this run]")
@click.option("--acks", type=click.Choice(("all", "1")), default="all", show_default=True)
@broker_options
def latency(records: int, size: int, topic: str | None, acks: str, reach: "Reach", as_json: bool) -> None:
    """Send a record, wait until a consumer has it, send the next: how long each takes from client to client.

    \b
    Examples:
      headrace bench latency
      headrace bench latency --records 10000 --json
    """
    from headrace.cli.bench.meter import bench_topic, report

    with bench_topic(reach, topic, 1) as name:
        found = run(reach, name, records, size, acks)
    report("latency", name, found, as_json)


def run(reach: "Reach", topic: str, records: int, size: int, acks: str) -> dict[str, Any]:
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    from headrace.cli.bench.meter import RateMeter
    from headrace.cli.bench.percentiles import summary
    from headrace.cli.kafka.consuming import close
    from headrace.client.librdkafka import consumer_settings, make_client, producer_settings
    from headrace.core.errors import OperatorError

    settings = reach.client_settings()
    reading = {
        "group.id": "headrace-bench",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 500,
        "allow.auto.create.topics": False,
    }
    consumer: Consumer = make_client("headrace", Consumer, {**consumer_settings(settings), **reading})
    sending = {"linger.ms": "0", "acks": acks, "allow.auto.create.topics": "false"}
    producer: Producer = make_client("headrace", Producer, producer_settings({**settings, **sending}))
    latencies = array("d")
    payload = os.urandom(size)
    try:
        start = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=LOST_S_MAX)
        at = start[1] if start is not None else OFFSET_END
        consumer.assign([TopicPartition(topic, 0, at)])
        meter = RateMeter(records)
        for number in range(records + WARM_UP):
            stamped = number.to_bytes(8, "big") + payload[8:]
            began = time.perf_counter()
            producer.produce(topic, stamped, partition=0)
            producer.poll(0)
            while True:
                message = consumer.poll(LOST_S_MAX)
                if message is None:
                    raise OperatorError(f"{topic}: a record did not come within {LOST_S_MAX:g} s; see the broker's log")
                if message.error() is None and message.value() == stamped:
                    break
            if number >= WARM_UP:
                latencies.append((time.perf_counter() - began) * 1000)
                meter.add(1, size)
        meter.clear()
    finally:
        close(consumer)
        producer.flush(5)
    return {**meter.end(), "size": size, "latency_ms": summary(latencies)}
