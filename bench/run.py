"""`make bench`: Headrace and a real Apache Kafka, turn and turn about; writes bench/RESULTS.md.

Everything it starts it ends, by process id, also on Ctrl-C. It never judges a build: targets that were missed
are in the results, and the exit code says only whether everything could be measured.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import brokers
import clients
import compaction
import compare_rows
import coordinated
import first_table
import flood
import keeper
import keeper_rows
import keyed
import nexmark
import partitions
import pipeline
import report
import shared_tools
import starting
import stored
from book import Book
from processes import MeasurementError, peak_mb
from rows import AFTER_LOAD, rows
from turns import HEADRACE, KAFKA
from workspace import Workspace, remove_topics, rest, touch_memory

HERE = Path(__file__).resolve().parent
NAMES = (
    starting.NAME,
    *compare_rows.NAMES,
    *clients.NAMES,
    *coordinated.NAMES,
    *flood.NAMES,
    stored.NAME,
    partitions.NAME,
    compaction.NAME,
    pipeline.NAME,
    *first_table.NAMES,
    *nexmark.NAMES,
    keyed.NAME,
    *keeper.NAMES,
)
COMPARED = {*compare_rows.NAMES, *clients.NAMES, *coordinated.NAMES, *flood.NAMES}
UNTOUCHED = {*first_table.NAMES, *nexmark.NAMES, keyed.NAME, *keeper.NAMES}  # a page's first use is none of their times
FLOOD_WARM_S_MAX = 15.0  # what only waits, and counts no throughput, needs no minute of it
QUICK = {
    "rounds": 1,
    "seconds": 1.0,
    "records": 100_000,
    "warm": 3.0,
    "stored_gb": 0.1,
    "partitions": 500,
    "pipeline_rows": 300_000,
    "shop_events": 9_000,
    "nexmark_events": 50_000,
}
FULL = {
    "rounds": 3,
    "seconds": 3.0,
    "records": 3_000_000,
    "warm": 60.0,
    "stored_gb": 5.0,
    "partitions": 10_000,
    "pipeline_rows": 6_000_000,
    "shop_events": 90_000,
    "nexmark_events": 1_000_000,
}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, help="rounds that count, of each workload  [3]")
    parser.add_argument("--seconds", type=float, help="length of a raw workload  [3]")
    parser.add_argument("--records", type=int, help="records of a client's producer  [3,000,000]")
    parser.add_argument("--nexmark-events", type=int, help="events of NEXMark  [1,000,000]")
    parser.add_argument("--warm", type=float, help="seconds of load that warm Kafka's JVM  [60]")
    parser.add_argument("--only", default="", help=f"names or their beginnings, with commas: {', '.join(NAMES)}")
    parser.add_argument("--fresh", action="store_true", help="every produced page new to the kernel; raw and Java rows")
    parser.add_argument("--quick", action="store_true", help="whether all of it works, in minutes; no figures")
    parser.add_argument("--out", type=Path, default=HERE / "RESULTS.md", help="where the results go")
    chosen = parser.parse_args()
    for name, value in (QUICK if chosen.quick else FULL).items():
        if getattr(chosen, name, None) is None:
            setattr(chosen, name, value)
    wanted = tuple(word.strip() for word in chosen.only.split(",") if word.strip())
    for word in wanted:
        if not any(name.startswith(word) for name in NAMES):
            parser.error(f"--only {word}: no workload begins so; there are {', '.join(NAMES)}")
    beginnings = tuple(word for word in wanted if word not in NAMES)  # nexmark_q2 is not nexmark_q20
    chosen.wanted = {name for name in NAMES if not wanted or name in wanted or name.startswith(beginnings)}
    return chosen


def main() -> int:
    chosen = options()
    _unwind_on_signals()
    load_before, began = os.getloadavg()[0], time.monotonic()
    tools = shared_tools.find()
    if chosen.wanted - set(keeper.NAMES):
        shared_tools.fetch_jars(tools)
    workspace = Workspace(HERE / ".work")
    with workspace.held():
        book = Book(workspace.path / "measurements.jsonl")
        if not chosen.fresh and chosen.wanted - UNTOUCHED:
            print(f"touched {touch_memory():.0f} GB of memory", flush=True)
        _run_stages(tools, book, workspace, chosen)
    how = report.How(
        command=" ".join(["bench/run.py", *(word for word in sys.argv[1:] if "/" not in word)]),
        rounds=chosen.rounds,
        seconds=chosen.seconds,
        records=chosen.records,
        warm_s=chosen.warm,
        fresh=chosen.fresh,
        load_before=load_before,
        took_s=time.monotonic() - began,
    )
    found = rows(book, stored_gb=chosen.stored_gb, partition_count=chosen.partitions)
    found_of_keeper = keeper_rows.rows(book)
    chosen.out.write_text(report.text(tools, book, found, found_of_keeper, how))
    missed = [row for row in [*found, *found_of_keeper] if row.reached is False]
    print(f"bench: {len(missed)} targets missed, {len(book.failures)} workloads not measured")
    return 1 if book.failures else 0


def _run_stages(tools: shared_tools.SharedTools, book: Book, workspace: Workspace, chosen: argparse.Namespace) -> None:
    short_s = min(chosen.seconds, 1.0)
    stages: dict[str, Callable[[], None]] = {}
    if starting.NAME in chosen.wanted:
        stages[starting.NAME] = lambda: starting.run(tools, book, workspace, rounds=chosen.rounds)
    if chosen.wanted & COMPARED:
        stages["comparison"] = lambda: _compare(tools, book, workspace, chosen)
    if stored.NAME in chosen.wanted:
        stages[stored.NAME] = lambda: stored.run(
            tools,
            book,
            workspace,
            rounds=3 * chosen.rounds,
            seconds=short_s,
            stored=int(chosen.stored_gb * 1e9),
        )
    if partitions.NAME in chosen.wanted:
        stages[partitions.NAME] = lambda: partitions.run(
            tools, book, workspace, rounds=2 * chosen.rounds, seconds=short_s, partitions=chosen.partitions
        )
    if compaction.NAME in chosen.wanted:
        stages[compaction.NAME] = lambda: compaction.run(
            tools, book, workspace, rounds=2 * chosen.rounds, seconds=chosen.seconds
        )
    if pipeline.NAME in chosen.wanted:
        stages[pipeline.NAME] = lambda: pipeline.run(
            tools, book, workspace, rounds=chosen.rounds, rows=chosen.pipeline_rows
        )
    if chosen.wanted & set(first_table.NAMES):
        stages[first_table.STAGE] = lambda: first_table.run(
            book, workspace, chosen.wanted, rounds=chosen.rounds, shop_events=chosen.shop_events
        )
    if chosen.wanted & set(nexmark.NAMES):
        stages[nexmark.STAGE] = lambda: nexmark.run(
            book, workspace, chosen.wanted, rounds=chosen.rounds, events=chosen.nexmark_events
        )
    if keyed.NAME in chosen.wanted:
        stages[keyed.NAME] = lambda: keyed.run(book, workspace, rounds=chosen.rounds)
    if chosen.wanted & set(keeper.NAMES):
        stages[keeper.PREFIX] = lambda: keeper.run(
            book, workspace, chosen.wanted, rounds=chosen.rounds, seconds=chosen.seconds, warm_s=chosen.warm
        )
    for name, stage in stages.items():
        print(f"{name}", flush=True)
        workspace.check_space()
        try:
            stage()
        except (MeasurementError, OSError) as error:
            book.fail(name, error)
        rest()


def _compare(tools: shared_tools.SharedTools, book: Book, workspace: Workspace, chosen: argparse.Namespace) -> None:
    with brokers.apache_kafka(tools, workspace) as kafka, brokers.headrace(workspace) as headrace:
        both = (kafka, headrace)
        floods_only = not chosen.wanted & (COMPARED - set(flood.NAMES))
        _warm(tools, workspace, kafka, min(chosen.warm, FLOOD_WARM_S_MAX) if floods_only else chosen.warm)
        compare_rows.run(
            tools,
            book,
            workspace,
            both,
            chosen.wanted,
            rounds=chosen.rounds,
            seconds=chosen.seconds,
            records=chosen.records,
            fresh=chosen.fresh,
        )
        clients.run(tools, book, workspace, both, chosen.wanted, rounds=chosen.rounds, records=chosen.records)
        coordinated.run(
            tools,
            book,
            workspace,
            both,
            chosen.wanted,
            rounds=chosen.rounds,
            seconds=chosen.seconds,
            warm_s=chosen.warm,
        )
        flood.run(book, workspace, both, chosen.wanted, rounds=chosen.rounds, seconds=min(chosen.seconds, 2.0))
        for side, broker in ((KAFKA, kafka), (HEADRACE, headrace)):
            now = float(tools.compare.rss_mb(broker.pid))
            highest = max(now, book.highest(side, "rss_mb"))
            book.add(AFTER_LOAD, side, rss_mb=highest, peak_mb=peak_mb(broker.pid))


def _warm(tools: shared_tools.SharedTools, workspace: Workspace, kafka: brokers.Broker, seconds: float) -> None:
    """Every kind of raw load for a while, so that the JVM has compiled what matters."""
    print(f"  warming Kafka for {seconds:g} s", flush=True)
    deadline, each = time.monotonic() + seconds, min(2.0, seconds / 4)
    while time.monotonic() < deadline:
        workspace.check_space()
        tools.raw(kafka.port, "produce", "warm", 4, 5, 146, 6, 6, 1, each)
        tools.raw(kafka.port, "fetch", "warm", 4, 6, 1 << 16, each)
        tools.raw(kafka.port, "fetch", "warm", 4, 6, 1 << 20, each)
        tools.raw(kafka.port, "produce", "warm", 50, 5, 1, 1, 6, 1, each)
        remove_topics(kafka.port, kafka.data)
    rest()


def _unwind_on_signals() -> None:
    """The first signal unwinds everything that is open; later ones must not cut that short."""

    def stop(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        signal.signal(number, stop)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench: interrupted; everything that it had started is ended")
