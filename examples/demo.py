"""`make demo`: a shop's events from the log to Delta tables on Spark, then replayed through changed code and cut over.

Every step is a command that you can type yourself; it is printed before it runs. The demo needs nothing but what
`make install` put in place (Spark's jars are fetched once), ends by itself, and leaves nothing running.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SHOP = Path(__file__).resolve().parent / "shop"
sys.path.insert(0, str(SHOP))

from events import send  # noqa: E402

from headrace.streaming.progress import read_progress  # noqa: E402
from headrace.tables.catalog import PipelineCatalog, pipelines  # noqa: E402

HEADRACE = [str(Path(sys.executable).parent / "headrace")]
EVENTS = 90_000
STEP_S_MAX = 240.0
QUARANTINE = (
    "select split_part(reason, ': ', 1) as reason, count(*) as rows "
    'from "_quarantine/clean_orders" group by 1 order by 1'
)
REVENUE = "select customer, round(sum(amount), 2) as revenue from revenue group by customer order by 2 desc limit 3"


def say(text: str) -> None:
    print(f"\n── {text}", flush=True)


def command(*words: str) -> list[str]:
    print(f"\n$ headrace {shlex.join(words)}", flush=True)
    return [*HEADRACE, *words]


def run(*words: str) -> None:
    """One command in the foreground; its own words say what went wrong."""
    if subprocess.run(command(*words), timeout=STEP_S_MAX).returncode:
        raise SystemExit("demo: that command failed; its line above says why")


@contextlib.contextmanager
def process(*words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One command in the background, its output in a file; ended by SIGTERM, as Ctrl-C would."""
    with open(log, "wb") as output:
        started = subprocess.Popen(command(*words), stdout=output, stderr=subprocess.STDOUT)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(timeout=60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def wait_for(what: str, found: "re.Pattern[str]", log: Path, started: "subprocess.Popen[bytes]") -> "re.Match[str]":
    deadline = time.monotonic() + STEP_S_MAX
    while time.monotonic() < deadline:
        match = found.search(log.read_text(errors="replace"))
        if match:
            return match
        if started.poll() is not None:
            raise SystemExit(f"demo: {what} ended too early:\n{log.read_text(errors='replace')}")
        time.sleep(0.05)
    raise SystemExit(f"demo: {what} took longer than {STEP_S_MAX:g} s:\n{log.read_text(errors='replace')}")


def wait_until_caught_up(tables: str, version: int) -> None:
    """Shows how many events are still to come until there is none: what `headrace pipeline status` shows, read in this
    process, since one of its own each second would take a good part of two cores from Spark."""
    deadline, shown = time.monotonic() + STEP_S_MAX, ""
    while time.monotonic() < deadline:
        lags, caught_up = _lags(tables, version)
        line = "   behind: " + ", ".join(f"{name} {lag:,}" for name, lag in lags.items())
        if lags and line != shown:
            print(line, flush=True)
            shown = line
        if caught_up:
            return
        time.sleep(0.2)
    raise SystemExit(f"demo: the pipeline has not caught up within {STEP_S_MAX:g} s")


def _lags(tables: str, version: int) -> tuple[dict[str, int], bool]:
    """How far each node is behind what it reads, and whether all have caught up."""
    if "shop" not in pipelines(tables):
        return {}, False
    progress = read_progress(PipelineCatalog.open(tables, "shop").layout.run_file(version))
    if progress is None:
        return {}, False
    return {node.name: node.lag for node in progress.nodes.values() if node.lag is not None}, progress.caught_up


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as work:
        os.environ["HEADRACE_TABLES"] = tables = str(Path(work) / "tables")
        show(Path(work), tables)
    print(f"\n── done in {time.monotonic() - began:.0f} s; everything is stopped, and its files are gone")


def show(work: Path, tables: str) -> None:
    say("a broker: one process, no JVM")
    started = time.monotonic()
    data, log = str(work / "log"), work / "broker.txt"
    with process("up", "--port", "0", "--data", data, log=log) as broker:
        address = wait_for("the broker", re.compile(r"listens on (\S+)"), log, broker)[1]
        print(f"   listens on {address} after {time.monotonic() - started:.2f} s")
        os.environ["HEADRACE_BOOTSTRAP"] = address

        say(f"a shop: {EVENTS:,} orders, payments and clicks, some late, some malformed")
        started = time.monotonic()
        send(address, EVENTS)
        print(f"   in the log after {time.monotonic() - started:.1f} s")

        say("the pipeline, live: each function of shop.py is a table, or a topic")
        file = str(SHOP / "shop.py")
        with process("pipeline", "run", file, log=work / "run.txt") as live:
            wait_until_caught_up(tables, 1)
            if live.poll() is not None:
                raise SystemExit(f"demo: the pipeline ended:\n{(work / 'run.txt').read_text()}")
            say("the tables, without a JVM")
            run("table", "list")
            run("table", "query", REVENUE)
            say("nothing is dropped silently: records that could not be parsed and rows that failed an expectation")
            run("table", "query", QUARANTINE)

            say("the code changes: revenue without tax. The log is replayed through it, beside the live version")
            run("pipeline", "replay", str(SHOP / "shop_changed.py"), "--once")
            run("pipeline", "compare", "shop", "--table", "revenue", "--samples", "1", "--fail-on", "none")
            say("one step makes the new version live, for all tables at once; the old run ends by itself")
            run("pipeline", "cutover", "shop", "--yes")
            run("table", "query", REVENUE)
            live.wait(timeout=STEP_S_MAX)

        say("changed your mind? The version before is live again at once, with its tables as they were")
        run("pipeline", "rollback", "shop")
        run("table", "query", REVENUE)
        run("table", "history", "revenue", "--limit", "2")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("demo: interrupted; everything that it had started is ended")
