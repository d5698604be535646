"""The rows of `compare`, by calling it where it is.

It is called again for every round and few workloads at a time (each call throws its own first round away), so
that what one call wrote is gone before the next one begins. Its java_consume is in `clients.py`: compare takes the
last line that Kafka's tool prints for the figures, which it is not when the jars lack a logger and say so.
"""

import json
import os
import sys
from pathlib import Path

from book import Book
from brokers import Broker
from processes import MeasurementError, call
from shared_tools import SharedTools
from workspace import Workspace, remove_topics, rest

# A fetch reads what a produce of the same call has written, so they go together.
GROUPS = (
    ("raw_produce_16k",),
    ("raw_produce_64k", "raw_fetch_64k", "raw_fetch_1m"),
    ("raw_produce_64k_all",),
    ("raw_small", "raw_small_pipelined"),
    ("raw_latency", "raw_latency_all"),
    ("java_produce_16k",),
    ("java_produce_64k_all",),
)
NAMES = tuple(name for group in GROUPS for name in group)
CALL_S_MAX = 1200.0
FRESH_FREE_BYTES_MIN = 30_000_000_000


def run(
    tools: SharedTools,
    book: Book,
    workspace: Workspace,
    brokers: tuple[Broker, Broker],
    wanted: set[str],
    *,
    rounds: int,
    seconds: float,
    records: int,
    fresh: bool = False,
) -> None:
    """`fresh`: what was written stays, so that the next workload gets pages that nobody has used."""
    for number in range(rounds):
        for group in GROUPS:
            names = [name for name in group if name in wanted]
            if not names:
                continue
            if names[0].startswith("raw_fetch"):
                names.insert(0, group[0])
            if any(name in book.failures for name in names):
                continue
            workspace.check_space()
            ordered = brokers if number % 2 == 0 else brokers[::-1]
            try:
                found = _call(tools, workspace.path / "compare.jsonl", ordered, names, seconds, records)
            except MeasurementError as error:
                for name in names:
                    book.fail(name, error)
                found = []
            for result in found:
                figures = {name: value for name, value in result.items() if isinstance(value, int | float)}
                book.add(str(result["workload"]), str(result["broker"]), **figures)
            if not fresh or workspace.free_bytes() < FRESH_FREE_BYTES_MIN:
                for broker in brokers:
                    remove_topics(broker.port, broker.data)
            rest()


def _call(
    tools: SharedTools,
    json_path: Path,
    brokers: tuple[Broker, Broker],
    names: list[str],
    seconds: float,
    records: int,
) -> list[dict[str, object]]:
    json_path.unlink(missing_ok=True)
    addresses = [f"{broker.name}=127.0.0.1:{broker.port}:{broker.pid}" for broker in brokers]
    options = ["--rounds", "1", "--seconds", str(seconds), "--records", str(records)]
    options += ["--only", ",".join(names), "--json", str(json_path)]
    call([sys.executable, os.fspath(tools.compare_path), *addresses, *options], seconds_max=CALL_S_MAX)
    return [json.loads(line) for line in json_path.read_text().splitlines()]
