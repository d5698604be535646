"""Workloads of real clients that `compare` lacks: librdkafka's producer and consumer, Java's consumer without a group.

A consumer reads a topic that the raw client has filled, so that its batches are alike on both brokers.
"""

import json
import sys
import time
from pathlib import Path

from book import Book
from brokers import Broker
from processes import MeasurementError, call
from shared_tools import SharedTools
from turns import Side, Workload, on_both
from workspace import Workspace

NAMES = ("rdkafka_produce", "rdkafka_produce_all", "rdkafka_consume", "java_consume", "java_assigned")
LOAD_S_MAX = 400.0
_HERE = Path(__file__).resolve().parent


def run(
    tools: SharedTools,
    book: Book,
    workspace: Workspace,
    brokers: tuple[Broker, Broker],
    wanted: set[str],
    *,
    rounds: int,
    records: int,
) -> None:
    on_both(tools, book, workspace, brokers, _workloads(tools, records), wanted, rounds=rounds)


def _workloads(tools: SharedTools, records: int) -> list[Workload]:
    # A consumer is quick and cheap: more records, or the clock of CPU time (10 ms) is too coarse.
    read = 2 * records

    def fill(side: Side) -> None:
        tools.fill(side.broker.port, side.topic, read)

    def produce(side: Side, acks: str) -> dict[str, float]:
        return rdkafka("produce", side.broker.address, side.topic, acks, records)

    java = ["java", "-Xmx1g", "-cp", f"{tools.jars}/*", str(_HERE / "ConsumeAll.java")]
    return [
        Workload(name="rdkafka_produce", run=lambda side: produce(side, "1")),
        Workload(name="rdkafka_produce_all", run=lambda side: produce(side, "all")),
        Workload(
            name="rdkafka_consume",
            prepare=fill,
            run=lambda side: rdkafka("consume", side.broker.address, side.topic, read),
        ),
        Workload(
            name="java_consume",
            prepare=fill,
            run=lambda side: _performance(tools, side, read),
        ),
        Workload(
            name="java_assigned",
            prepare=fill,
            run=lambda side: _figures([*java, side.broker.address, side.topic, str(read)]),
        ),
    ]


def _performance(tools: SharedTools, side: Side, records: int) -> dict[str, float]:
    """Kafka's own ConsumerPerformance, as compare calls it; its fetch rate leaves out the joining."""
    words = ["--bootstrap-server", side.broker.address, "--topic", side.topic, "--num-records", str(records)]
    words += ["--hide-header", "--group", f"group-{time.time_ns()}"]
    tool = [str(tools.apache_kafka), "tool", "org.apache.kafka.tools.ConsumerPerformance"]
    printed = call([*tool, *words], seconds_max=LOAD_S_MAX)
    for line in printed.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 10 and float(fields[4]) >= records:
            return {"records": float(fields[4]), "rec_s": float(fields[9])}
    raise MeasurementError(f"ConsumerPerformance did not read {records} records: {printed[-200:]!r}")


def rdkafka(*words: object) -> dict[str, float]:
    return _figures([sys.executable, str(_HERE / "rdkafka_load.py"), *map(str, words)])


def _figures(command: list[str]) -> dict[str, float]:
    printed = call(command, seconds_max=LOAD_S_MAX)
    for line in printed.splitlines():
        if line.startswith("{"):
            figures: dict[str, float] = json.loads(line)
            return figures
    raise MeasurementError(f"{Path(command[-4]).name} printed no figures: {printed[-200:]!r}")
