"""`headrace bench consume`: reads a topic from its beginning as fast as one client can."""

import time
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.names import complete_topic
from headrace.cli.reaching import broker_options

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach

QUIET_S_MAX = 10.0
BATCH_MAX = 1_000


@click.command(short_help="Records per second out.")
@click.option("--records", "-n", type=click.IntRange(1), default=200_000, show_default=True, metavar="N")
@click.option(
    "--size",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="BYTES",
    help="Size of each value, if the topic is created.",
)
@click.option(
    "--topic",
    shell_complete=complete_topic,
    help="An existing topic, read once from its beginning.  [default: one created and filled for this run]",
)
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@broker_options
def consume(records: int, size: int, topic: str | None, partitions: int, reach: "Reach", as_json: bool) -> None:
    """Read records as fast as one client can.

    \b
    Examples:
      headrace bench consume
      headrace bench consume --topic orders --json
    """
    from headrace.cli.bench import produce as bench_produce
    from headrace.cli.bench.meter import bench_topic, report

    with bench_topic(reach, topic, partitions) as name:
        if topic is None:
            bench_produce.run(reach, name, records, size, settings={"linger.ms": 50})
        found = run(reach, name, records)
    report("consume", name, found, as_json)


def run(reach: "Reach", topic: str, records: int) -> dict[str, Any]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    from headrace.cli.bench.meter import RateMeter
    from headrace.cli.bench.percentiles import summary
    from headrace.cli.kafka.consuming import close, take
    from headrace.cli.reaching import kafka_text
    from headrace.client.librdkafka import consumer_settings, make_client
    from headrace.client.offsets import leaders
    from headrace.client.topic_admin import offset_spans
    from headrace.core.errors import OperatorError

    with reach.cluster() as cluster:
        spans = offset_spans(cluster, leaders(cluster, [topic]))
    wanted = min(records, sum(span.records for span in spans.values()))
    own = {
        "group.id": "headrace-bench",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "queued.min.messages": 100_000,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }
    consumer: Consumer = make_client("headrace", Consumer, {**consumer_settings(reach.client_settings()), **own})
    open_places = {place for place, span in spans.items() if span.records}
    meter = RateMeter(wanted)
    began = last = time.monotonic()
    first_ms = 0.0
    try:
        consumer.assign([TopicPartition(*place, spans[place].start) for place in open_places])
        while meter.records < wanted and open_places:
            messages = take(consumer, BATCH_MAX, 0.2)
            count = size = 0
            for message in messages:
                error = message.error()
                if error is None:
                    count += 1
                    size += len(message.value() or b"") + len(message.key() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_places.discard((message.topic(), message.partition()))
                else:
                    raise OperatorError(f"{topic}: {kafka_text(error)}")
            now = time.monotonic()
            if count:
                first_ms, last = first_ms or (now - began) * 1000, now
                meter.add(count, size)
            elif now - last > QUIET_S_MAX:
                raise OperatorError(f"{topic}: nothing came for {QUIET_S_MAX:g} s; is the broker still running?")
    finally:
        meter.clear()
        close(consumer)
    found = {**meter.end(), "first_record_ms": round(first_ms, 3)}
    return {**found, "rate_percentiles": summary(meter.rates, digits=0)} if meter.rates else found
