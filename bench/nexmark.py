"""Queries of NEXMark as pipelines (examples/nexmark) against the same queries by hand in plain PySpark, on one broker.

Rates are read from the checkpoints: records per batch, and the time between batches after the first few. They are
kept only when the tables of both sides hold the same rows.
"""

import ast
import sys
from pathlib import Path

import brokers
import duckdb
from book import Book
from deltalake import DeltaTable
from first_table import BY_HAND
from processes import MeasurementError, call
from turns import HEADRACE
from workspace import Workspace, rest

from headrace.tables.hidden import HIDDEN_COLUMNS
from headrace.tables.layout import PipelineLayout

NAME = "nexmark"
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "nexmark"
# One of each kind that reads bids alone and is one query, so that a hand-written job has the same one to run: columns
# calculated, a partitioned table, sessions, an aggregate merged by key, the last row of a key, parts of strings.
QUERIES = ("q1", "q10", "q11", "q17", "q18", "q22")
PLACES = ("partition", "offset")  # kept by the job by hand, to tell which of two rows is the last
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
                rates, held = {}, {}
                for side in (HEADRACE, BY_HAND) if number % 2 else (BY_HAND, HEADRACE):
                    directory = workspace.fresh("job")
                    directory.mkdir(parents=True)
                    command, table, checkpoint = job(side, query, broker.address, directory, bids_per_batch)
                    call(command, seconds_max=_RUN_S_MAX)
                    rates[side], held[side] = rate(checkpoint, bids_per_batch), facts(table)
                    workspace.remove("job")
                    rest()
                if held[HEADRACE] != held[BY_HAND]:
                    raise MeasurementError(f"{query}: the tables differ: {held}")
                for side, each in rates.items():
                    book.add(f"{NAME}_{query}", side, rec_s=each)


def job(side: str, query: str, address: str, directory: Path, bids_per_batch: int) -> tuple[list[str], Path, Path]:
    """The command, the table that it writes, and its checkpoint."""
    if side == BY_HAND:
        script = str(Path(__file__).with_name("nexmark_by_hand.py"))
        words = [sys.executable, script, query, address, str(directory), str(bids_per_batch)]
        return words, directory / "table", directory / "checkpoint"
    file = directory / "nexmark.py"
    bounded = f"schema=BID, max_offsets_per_trigger={bids_per_batch})"
    file.write_text(only((EXAMPLE / "nexmark.py").read_text(), query).replace("schema=BID)", bounded))
    words = [str(Path(sys.executable).with_name("headrace")), "pipeline", "run", str(file), "--once"]
    tables = directory / "tables"
    checkpoint = Path(PipelineLayout.of(tables, "nexmark").checkpoint_dir(1, query))
    return [*words, "--bootstrap", address, "--tables", str(tables)], tables / query, checkpoint


def only(source: str, query: str) -> str:
    """The file of the example with one of its queries."""
    tree = ast.parse(source)
    others = ("side_input", "persons", "auctions")
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.FunctionDef) and node.decorator_list and node.name != query)
        and not (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in others
        )
    ]
    return ast.unparse(tree)


def facts(table: Path) -> tuple[int, int]:
    """Rows, and a sum over all that they hold; columns that only one side keeps are left out."""
    found = DeltaTable(table).to_pyarrow_table()
    names = [name for name in found.column_names if name not in (*HIDDEN_COLUMNS, *PLACES)]
    columns = ", ".join(f'"{name}"' for name in sorted(names))
    with duckdb.connect() as db:
        db.register("found", found)
        rows, held = db.sql(f"select count(*), sum(hash({columns})) from found").fetchall()[0]
    return int(rows), int(held or 0)


def rate(checkpoint: Path, bids_per_batch: int) -> float:
    """Bids a second from the first warm batch to the last whole one; Spark writes a file when a batch is done."""
    done = {int(path.name): path.stat().st_mtime for path in (checkpoint / "commits").iterdir() if path.name.isdigit()}
    if not {WARM_BATCHES - 1, BATCHES - 1} <= done.keys():
        raise MeasurementError(f"{checkpoint.name}: {len(done)} batches, {BATCHES} are needed")
    return bids_per_batch * (BATCHES - WARM_BATCHES) / (done[BATCHES - 1] - done[WARM_BATCHES - 1])
