"""From nothing to the first acknowledged record, and the memory of a broker that then does nothing."""

import time

import brokers
from book import Book
from processes import MeasurementError
from shared_tools import SharedTools
from turns import HEADRACE, KAFKA
from workspace import Workspace, rest

NAME = "start"
IDLE_S = 3.0


def run(tools: SharedTools, book: Book, workspace: Workspace, *, rounds: int) -> None:
    ways = {
        KAFKA: lambda: brokers.apache_kafka(tools, workspace),
        HEADRACE: lambda: brokers.headrace(workspace),
    }
    for number in range(rounds + 1):
        for side in (KAFKA, HEADRACE) if number % 2 else (HEADRACE, KAFKA):
            try:
                with ways[side]() as broker:
                    if number:  # the first start reads programs from the disk that the next ones find in memory
                        _note(tools, book, side, broker)
            except MeasurementError as error:
                book.fail(NAME, error)
            rest()


def _note(tools: SharedTools, book: Book, side: str, broker: brokers.Broker) -> None:
    time.sleep(IDLE_S)
    figures = {"first_record_s": broker.first_record_s, "idle_mb": float(tools.compare.rss_mb(broker.pid))}
    if broker.format_s is not None:
        figures["format_s"] = broker.format_s
    book.add(NAME, side, **figures)
