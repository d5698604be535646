"""Workloads turn and turn about: one after the other, each on both sides, the order swapped every round.

The first round is thrown away, as `compare` does: it warms what was cold.
"""

from collections.abc import Callable
from dataclasses import dataclass

from book import Book
from brokers import Broker
from processes import MeasurementError
from shared_tools import SharedTools
from workspace import Workspace, remove_topics, rest

KAFKA, HEADRACE = "kafka", "headrace"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared: mostly a broker, or a topic of the same broker."""

    name: str
    broker: Broker
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    run: Callable[[Side], dict[str, float]]
    prepare: Callable[[Side], None] = lambda side: None  # neither timed nor counted


def turn_about(
    tools: SharedTools,
    book: Book,
    workloads: list[Workload],
    sides: Callable[[int], tuple[Side, Side]],
    *,
    rounds: int,
    between: Callable[[], None],
) -> None:
    for number in range(rounds + 1):
        first, second = sides(number)
        for workload in workloads:
            if workload.name in book.failures:
                continue
            try:
                pair = [
                    (side.name, measure(tools, workload, side))
                    for side in ((first, second) if number % 2 else (second, first))
                ]
            except MeasurementError as error:
                book.fail(workload.name, error)
                continue
            if number:
                for side_name, figures in pair:
                    book.add(workload.name, side_name, **figures)
        between()


def on_both(
    tools: SharedTools,
    book: Book,
    workspace: Workspace,
    brokers: tuple[Broker, Broker],
    workloads: list[Workload],
    wanted: set[str],
    *,
    rounds: int,
) -> None:
    """One workload after the other, all rounds of it, on topics that are gone before the next round."""
    for workload in workloads:
        if workload.name not in wanted:
            continue

        def sides(number: int, name: str = workload.name) -> tuple[Side, Side]:
            workspace.check_space()
            first, second = (Side(broker.name, broker, f"{name}-{number}") for broker in brokers)
            return first, second

        def between() -> None:
            for broker in brokers:
                remove_topics(broker.port, broker.data)
            rest()

        turn_about(tools, book, [workload], sides, rounds=rounds, between=between)


def measure(tools: SharedTools, workload: Workload, side: Side) -> dict[str, float]:
    """The load's own figures, with the broker's CPU seconds per million records and memory as compare has them."""
    workload.prepare(side)
    broker = side.broker
    try:
        figures = tools.compare.measure(
            lambda host, port, topic: workload.run(side), "127.0.0.1", broker.port, broker.pid, side.topic
        )
    except OSError as error:
        raise MeasurementError(f"{broker.name} is gone: {error.strerror}") from error
    return {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}
