"""Workloads of what a coordinator does: a group that takes one more member, offset commits, transactions.

The loads run on one thread of the benchmark itself, over plain sockets; librdkafka's producer of transactions has a
process of its own. Setting up groups and producers is neither timed nor counted.
"""

import statistics
import time
from collections.abc import Callable
from typing import Protocol

import wire
from book import Book
from brokers import PARTITIONS, Broker
from classic_group import ClassicGroup
from clients import rdkafka
from commits import Commits
from consumer_group import ConsumerGroup
from links import Loop
from processes import MeasurementError
from shared_tools import SharedTools
from transactions import Transactions
from turns import KAFKA, Side, Workload, measure, on_both
from workspace import Workspace, remove_topics, rest

NAMES = ("groups_classic", "groups_consumer", "commits_10", "commits_100", "transactions_rdkafka", "transactions_raw")
MEMBERS, GROUP_PARTITIONS = 50, 200
JOINS_MIN = 3
RECORDS, RECORD_BYTES, PRODUCERS = 100, 100, 10


class Load(Protocol):
    """Set up when it is made."""

    def run(self, seconds: float) -> dict[str, float]: ...

    def close(self) -> None: ...


class Joins:
    """A member joins and leaves again, over and over; only the joins are timed, the CPU is that of both."""

    def __init__(self, group: ClassicGroup | ConsumerGroup) -> None:
        self._group = group

    def run(self, seconds: float) -> dict[str, float]:
        until, took = time.monotonic() + seconds, []
        while time.monotonic() < until or len(took) < JOINS_MIN:
            took.append(self._group.join_one())
            self._group.leave_one()
        return {"records": 2.0 * len(took), "settle_ms": statistics.median(took) * 1000}

    def close(self) -> None:
        self._group.close()


def run(
    tools: SharedTools,
    book: Book,
    workspace: Workspace,
    brokers: tuple[Broker, Broker],
    wanted: set[str],
    *,
    rounds: int,
    seconds: float,
    warm_s: float,
) -> None:
    chosen = wanted & set(NAMES)
    if not chosen:
        return
    for broker in brokers:
        wire.wait_for_coordinators(broker.port)
    kafka = next(broker for broker in brokers if broker.name == KAFKA)
    _warm(tools, kafka, _workloads(warm_s / len(NAMES)), chosen)
    on_both(tools, book, workspace, brokers, _workloads(seconds), chosen, rounds=rounds)


def _warm(tools: SharedTools, kafka: Broker, workloads: list[Workload], chosen: set[str]) -> None:
    """The JVM has compiled nothing of all this yet."""
    print("  warming Kafka's coordinators", flush=True)
    for workload in workloads:
        if workload.name in chosen:
            try:
                measure(tools, workload, Side(KAFKA, kafka, f"warm-{workload.name}"))
            except MeasurementError as error:
                print(f"  {workload.name}: {error}", flush=True)  # it will fail again where that is noted
    remove_topics(kafka.port, kafka.data)
    rest()


def _workloads(seconds: float) -> list[Workload]:
    def group(kind: type[ClassicGroup] | type[ConsumerGroup]) -> Callable[[Side], Load]:
        return lambda side: Joins(kind(Loop(side.broker.port), side.topic, side.topic, GROUP_PARTITIONS, MEMBERS))

    def commits(connections: int) -> Callable[[Side], Load]:
        return lambda side: Commits(Loop(side.broker.port), side.topic, side.topic, connections)

    def transactions(side: Side) -> Load:
        loop = Loop(side.broker.port)
        sizes = {"producers": PRODUCERS, "partitions": PARTITIONS, "records": RECORDS, "size": RECORD_BYTES}
        return Transactions(loop, side.topic, **sizes)

    return [
        _set_up("groups_classic", GROUP_PARTITIONS, group(ClassicGroup), seconds),
        _set_up("groups_consumer", GROUP_PARTITIONS, group(ConsumerGroup), seconds),
        _set_up("commits_10", 10, commits(10), seconds),
        _set_up("commits_100", 100, commits(100), seconds),
        Workload(
            name="transactions_rdkafka",
            prepare=lambda side: wire.create_topics(side.broker.port, [side.topic], PARTITIONS),
            run=lambda side: rdkafka("transact", side.broker.address, side.topic, seconds, RECORDS, RECORD_BYTES),
        ),
        _set_up("transactions_raw", PARTITIONS, transactions, seconds),
    ]


def _set_up(name: str, partitions: int, make: Callable[[Side], Load], seconds: float) -> Workload:
    ready: list[Load] = []

    def prepare(side: Side) -> None:
        wire.create_topics(side.broker.port, [side.topic], partitions)
        ready.append(make(side))

    def run_it(side: Side) -> dict[str, float]:
        load = ready.pop()
        try:
            return load.run(seconds)
        finally:
            load.close()

    return Workload(name=name, prepare=prepare, run=run_it)
