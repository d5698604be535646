"""Queries of NEXMark as pipelines (examples/nexmark) against the same queries by hand in plain PySpark, on one broker.

Rates are read from the tables' own logs: records per batch, and the time between commits after the first few.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import brokers
from book import Book
from first_table import BY_HAND
from processes import MeasurementError, call
from turns import HEADRACE
from workspace import Workspace, rest

NAME = "nexmark"
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "nexmark"
# Those that read bids alone and are one query each, so that a hand-written job has the same one to run.
QUERIES = ("q0", "q1", "q2", "q10", "q11", "q14", "q17", "q18", "q21", "q22")
BIDS_SHARE = 46 / 50
BATCHES, WARM_BATCHES = 10, 3
_RUN_S_MAX = 1_200.0


def run(book: Book, workspace: Workspace, *, rounds: int, events: int) -> None:
    with brokers.headrace(workspace) as broker:
        tables = workspace.fresh("nexmark")
        tables.mkdir(parents=True)
        send = [sys.executable, str(EXAMPLE / "events.py"), "--bootstrap", broker.address, "--tables", str(tables)]
        call([*send, "--events", str(events)], seconds_max=_RUN_S_MAX)
        bids_per_batch = max(1, int(events * BIDS_SHARE / BATCHES))
        for number in range(rounds):
            for query in QUERIES:
                for side in (HEADRACE, BY_HAND) if number % 2 else (BY_HAND, HEADRACE):
                    directory = workspace.fresh("job")
                    directory.mkdir(parents=True)
                    command, table = job(side, query, broker.address, directory, bids_per_batch)
                    call(command, seconds_max=_RUN_S_MAX)
                    book.add(f"{NAME}_{query}", side, rec_s=rate(table, bids_per_batch))
                    workspace.remove("job")
                    rest()


def job(side: str, query: str, address: str, directory: Path, bids_per_batch: int) -> tuple[list[str], Path]:
    """The command, and the table that it writes."""
    if side == BY_HAND:
        script = str(Path(__file__).with_name("nexmark_by_hand.py"))
        return [sys.executable, script, query, address, str(directory), str(bids_per_batch)], directory / "table"
    file = directory / "nexmark.py"
    bounded = f"schema=BID, max_offsets_per_trigger={bids_per_batch})"
    file.write_text(only((EXAMPLE / "nexmark.py").read_text(), query).replace("schema=BID)", bounded))
    words = [str(Path(sys.executable).with_name("headrace")), "pipeline", "run", str(file), "--once"]
    return [*words, "--bootstrap", address, "--tables", str(directory / "tables")], directory / "tables" / query


def only(source: str, query: str) -> str:
    """The file of the example with one of its queries."""
    tree = ast.parse(source)
    others = ("side_input",)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.FunctionDef) and node.decorator_list and node.name != query)
        and not (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in others
        )
    ]
    return ast.unparse(tree)


def rate(table: Path, bids_per_batch: int) -> float:
    times = list(_times(table))
    if len(times) <= WARM_BATCHES + 1:
        raise MeasurementError(f"{table.name}: {len(times)} commits, more than {WARM_BATCHES + 1} are needed")
    return bids_per_batch * (len(times) - 1 - WARM_BATCHES) / (times[-1] - times[WARM_BATCHES])


def _times(table: Path) -> Iterator[float]:
    """Of each commit that wrote rows of a batch."""
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            info = json.loads(line).get("commitInfo")
            if info is not None and info.get("operation") in ("WRITE", "MERGE", "STREAMING UPDATE"):
                yield info["timestamp"] / 1e3
