"""Queries of NEXMark as pipelines (examples/nexmark) against the same queries by hand in plain PySpark, on one broker.

A query is measured with all nodes that it needs, and by hand with the same steps; all queries of a side run one after
the other in one session, twice, and the second time counts. Rates and CPU seconds count from the end of the third batch
of a query's first node to its last commit: starting Spark, and compiling what it needs, is measured elsewhere
(`first_table`). They are kept only when the tables of both sides hold the same rows.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import brokers
import duckdb
from book import Book
from deltalake import DeltaTable
from first_table import BY_HAND
from nexmark_by_hand import PLACES, SHARES
from processes import MeasurementError, call, cpu_s, watched
from turns import HEADRACE
from workspace import Workspace, rest

from headrace.tables.hidden import HIDDEN_COLUMNS
from headrace.tables.layout import PipelineLayout

STAGE = "nexmark"
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "nexmark"
QUERIES = tuple(f"q{number}" for number in range(23))
NAMES = tuple(f"{STAGE}_{query}" for query in QUERIES)
BATCHES, WARM_BATCHES = 10, 3
_RUN_S_MAX = 1_200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The nodes of the example that a query needs, in their order, and the topics that they read."""

    names: tuple[str, ...]
    topics: tuple[str, ...]

    @property
    def first(self) -> str:
        return self.names[0]


@dataclass(slots=True, kw_only=True)
class Watched:
    """One query of a side: where it runs, and the CPU seconds of the side at the beginning and end of what counts."""

    query: str
    home: Path
    warm: Path  # Spark makes this file when the last batch is done that does not count
    began_cpu_s: float | None = None
    ended_cpu_s: float | None = None

    @property
    def table(self) -> Path:
        return self.home / "tables" / self.query

    def look(self, pid: int) -> None:
        if self.began_cpu_s is None and self.warm.exists():
            self.began_cpu_s = cpu_s(pid)
        if self.ended_cpu_s is None and (self.home / "done").exists():
            self.ended_cpu_s = cpu_s(pid)

    def figures(self, records: float) -> dict[str, float] | None:
        if self.began_cpu_s is None or self.ended_cpu_s is None:
            return None
        ended_at = max(path.stat().st_mtime for path in (self.table / "_delta_log").glob("*.json"))
        return {
            "rec_s": records / (ended_at - self.warm.stat().st_mtime),
            "cpu_s_per_million": (self.ended_cpu_s - self.began_cpu_s) * 1e6 / records,
        }


def run(book: Book, workspace: Workspace, wanted: set[str], *, rounds: int, events: int) -> None:
    with brokers.headrace(workspace) as broker:
        sent = workspace.fresh("nexmark")
        sent.mkdir(parents=True)
        send = [sys.executable, str(EXAMPLE / "events.py"), "--bootstrap", broker.address, "--tables", str(sent)]
        call([*send, "--events", str(events)], seconds_max=_RUN_S_MAX)
        for number in range(rounds):
            _round(book, workspace, broker, wanted, events, hand_first=number % 2 == 0)


def _round(
    book: Book, workspace: Workspace, broker: brokers.Broker, wanted: set[str], events: int, *, hand_first: bool
) -> None:
    queries = [query for query in QUERIES if f"{STAGE}_{query}" in wanted]
    per_batch = -(-events // BATCHES)
    sides: dict[str, list[Watched]] = {}
    for side in (BY_HAND, HEADRACE) if hand_first else (HEADRACE, BY_HAND):
        directory = workspace.fresh(f"nexmark-{side.replace(' ', '-')}")
        # The first time warms the session, and counts for nothing: else whoever has more code would be compiled longer.
        sides[side] = _side(side, [*queries, *queries], broker.address, directory, per_batch)[len(queries) :]
        rest()
    for number, query in enumerate(queries):
        topics = needed(_example(), query).topics
        records = sum(SHARES[topic] for topic in topics) * (events - WARM_BATCHES * per_batch)
        found = {side: runs[number].figures(records) for side, runs in sides.items()}
        missing = [side for side, figures in found.items() if figures is None]
        held = {side: facts(runs[number].table) for side, runs in sides.items()} if not missing else {}
        if missing:
            book.fail(f"{STAGE}_{query}", f"not run to its end: {', '.join(missing)}")
        elif held[HEADRACE] != held[BY_HAND]:
            book.fail(f"{STAGE}_{query}", f"the tables differ: {held}")
        for side, figures in found.items() if not missing and held[HEADRACE] == held[BY_HAND] else ():
            book.add(f"{STAGE}_{query}", side, **(figures or {}))
    for side in sides:
        workspace.remove(f"nexmark-{side.replace(' ', '-')}")


def _side(side: str, queries: list[str], address: str, directory: Path, per_batch: int) -> list[Watched]:
    """Runs the queries one after the other in one session. One that fails takes those after it with it."""
    made = []
    for number, query in enumerate(queries):
        home, nodes = directory / f"{number}-{query}", needed(_example(), query)
        (home / "tables").mkdir(parents=True)
        (home / "tables" / "nexmark_side_input").symlink_to(directory.parent / "nexmark" / "nexmark_side_input")
        checkpoint = home / "checkpoints" / nodes.first
        if side == HEADRACE:
            (home / "nexmark.py").write_text(only(_example(), nodes, per_batch))
            checkpoint = Path(PipelineLayout.of(home / "tables", "nexmark").checkpoint_dir(1, nodes.first))
        made.append(Watched(query=query, home=home, warm=checkpoint / "commits" / str(WARM_BATCHES - 1)))
    script, more = ("nexmark_pipelines.py", []) if side == HEADRACE else ("nexmark_by_hand.py", [str(per_batch)])
    words = [sys.executable, str(Path(__file__).with_name(script)), ",".join(queries), address, str(directory), *more]

    def look(process: "subprocess.Popen[str]") -> None:
        for each in made:
            each.look(process.pid)

    try:
        watched(words, look, log=directory / "job.log", seconds_max=_RUN_S_MAX * len(queries))
    except MeasurementError as error:
        print(f"  {side}: {error}", flush=True)
    return made


def _example() -> str:
    return (EXAMPLE / "nexmark.py").read_text()


def needed(source: str, query: str) -> Nodes:
    functions = {each.name: each for each in _declared(ast.parse(source))}
    names: list[str] = []
    topics: list[str] = []

    def add(name: str) -> None:
        for argument in functions[name].args.args:
            if argument.arg in functions:
                add(argument.arg)
            elif argument.arg in SHARES and argument.arg not in topics:
                topics.append(argument.arg)
        if name not in names:
            names.append(name)

    add(query)
    return Nodes(names=tuple(names), topics=tuple(topics))


def only(source: str, nodes: Nodes, per_batch: int) -> str:
    """The file of the example with these nodes alone, and with bounded batches."""
    tree = ast.parse(source)
    others = {each.name for each in _declared(tree)} - set(nodes.names)
    unread = {*SHARES} - set(nodes.topics)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.FunctionDef) and node.name in others)
        and not (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in unread)
    ]
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and (name := _assigned(node)) in SHARES:
            bound = ast.Constant(max(1, round(SHARES[name] * per_batch)))
            node.value.keywords.append(ast.keyword("max_offsets_per_trigger", bound))
    return ast.unparse(tree)


def _declared(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.decorator_list)


def _assigned(node: ast.Assign) -> str:
    target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def facts(table: Path) -> tuple[int, int]:
    """Rows, and a sum over all that they hold; columns that only one side keeps are left out."""
    found = DeltaTable(table).to_pyarrow_table()
    names = [name for name in found.column_names if name not in (*HIDDEN_COLUMNS, *PLACES)]
    columns = ", ".join(f'"{name}"' for name in sorted(names))
    with duckdb.connect() as db:
        db.register("found", found)
        rows, held = db.sql(f"select count(*), sum(hash({columns})) from found").fetchall()[0]
    return int(rows), int(held or 0)
