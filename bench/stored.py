"""Whether produce and fetch cost more when a topic holds much: 5 GB in one against a new one, on Headrace.

Rounds are short and many, since what is looked for is smaller than this machine's noise. The raw client reads
from the start of a topic; both topics are in the page cache, which therefore has to hold some 14 GB.
"""

import os

import brokers
from book import Book
from shared_tools import SharedTools
from turns import Side, Workload, turn_about
from workspace import Workspace, remove_topics, rest, stored_bytes

NAME = "stored"
FULL, EMPTY = "full", "empty"
STORED_BYTES = 5_000_000_000
_TOPIC = "stored"


def run(tools: SharedTools, book: Book, workspace: Workspace, *, rounds: int, seconds: float, stored: int) -> None:
    with brokers.headrace(workspace) as broker:
        print(f"  filling a topic with {stored / 1e9:g} GB", flush=True)
        while stored_bytes(broker.data, _TOPIC) < stored:
            workspace.check_space()
            tools.fill(broker.port, _TOPIC, min(4_000_000, stored // 108))
        os.sync()

        def sides(number: int) -> tuple[Side, Side]:
            workspace.check_space()
            return Side(EMPTY, broker, f"empty-{number}"), Side(FULL, broker, _TOPIC)

        def between() -> None:
            remove_topics(broker.port, broker.data, keep=(_TOPIC,))
            rest()

        turn_about(tools, book, loads(tools, NAME, seconds), sides, rounds=rounds, between=between)


def loads(tools: SharedTools, prefix: str, seconds: float) -> list[Workload]:
    """The two loads that show the cost of a look-up best: many requests, each small, still bulk."""

    def exist(side: Side) -> None:
        tools.raw(side.broker.port, "produce", side.topic, 4, 5, 146, 6, 6, 1, 0.05)

    def produce(side: Side) -> dict[str, float]:
        return tools.raw(side.broker.port, "produce", side.topic, 4, 5, 146, 6, 6, 1, seconds)

    def fetch(side: Side) -> dict[str, float]:
        return tools.raw(side.broker.port, "fetch", side.topic, 4, 6, 1 << 16, seconds)

    return [
        Workload(name=f"{prefix}_produce_16k", prepare=exist, run=produce),
        Workload(name=f"{prefix}_fetch_64k", run=fetch),
    ]
