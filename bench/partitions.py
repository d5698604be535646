"""10,000 partitions with a record in each: restart, memory, open files, and the rate of a busy topic beside them.

Two Headrace brokers run side by side, one with the partitions and one without.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import brokers
import wire
from book import Book
from processes import MeasurementError
from shared_tools import SharedTools
from stored import loads
from turns import Side, turn_about
from workspace import Workspace, remove_topics, rest

NAME = "partitions"
MANY, FEW = "many", "few"
TOPICS = 10
IDLE_S = 3.0


def run(tools: SharedTools, book: Book, workspace: Workspace, *, rounds: int, seconds: float, partitions: int) -> None:
    names = tuple(f"wide-{number}" for number in range(TOPICS))
    with _restarted(tools, book, workspace, names, partitions // TOPICS) as many:
        time.sleep(IDLE_S)
        memory = float(tools.compare.rss_mb(many.pid))
        book.add(NAME, MANY, idle_mb=memory, open_files=float(len(os.listdir(f"/proc/{many.pid}/fd"))))
        with brokers.headrace(workspace, "few") as few:

            def sides(number: int) -> tuple[Side, Side]:
                workspace.check_space()
                return Side(FEW, few, f"busy-{number}"), Side(MANY, many, f"busy-{number}")

            def between() -> None:
                for broker in (few, many):
                    remove_topics(broker.port, broker.data, keep=names)
                rest()

            turn_about(tools, book, loads(tools, NAME, seconds), sides, rounds=rounds, between=between)
        book.add(NAME, MANY, loaded_mb=float(tools.compare.rss_mb(many.pid)))


@contextmanager
def _restarted(
    tools: SharedTools, book: Book, workspace: Workspace, names: tuple[str, ...], each: int
) -> Iterator[brokers.Broker]:
    """A broker with so many partitions, which was stopped cleanly and started again."""
    data = workspace.fresh(MANY)
    broker = brokers.start_headrace(MANY, data)
    try:
        began = time.monotonic()
        wire.create_topics(broker.port, names, each)
        created = time.monotonic()
        for name in names:
            tools.raw(broker.port, "produce", name, 1, 1, 1, each, each, 1, 0.01)
        _check_written(broker, names, each)
        rest()
        stop_s = broker.stop()
        if not broker.stopped_cleanly:
            raise MeasurementError(f"Headrace with {each * len(names)} partitions did not stop cleanly")
        broker = brokers.start_headrace(MANY, data)
        book.add(
            NAME,
            MANY,
            create_s=created - began,
            stop_s=stop_s,
            start_s=broker.first_record_s,
            restart_s=stop_s + broker.first_record_s,
        )
        yield broker
    finally:
        broker.stop()
        workspace.remove(MANY)


def _check_written(broker: brokers.Broker, names: tuple[str, ...], each: int) -> None:
    """A restart over partitions that hold nothing would prove nothing."""
    logs = (broker.data / f"{name}-{index}" / f"{0:020}.log" for name in names for index in range(each))
    written = sum(log.exists() and log.stat().st_size > 0 for log in logs)
    if written != each * len(names):
        raise MeasurementError(f"only {written} of {each * len(names)} partitions hold a record on disk")
