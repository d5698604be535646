"""bench/RESULTS.md: what was run, where, and how it came out. Holds no host name and no path."""

import os
import platform
import re
import statistics
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import keeper_rows
from book import Book
from rows import Row
from shared_tools import REPOSITORY, SharedTools
from turns import KAFKA

_PATH = re.compile(r"/[\w.+-]+(/[\w.+-]+)+")  # a reason may hold one, the results must not


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    command: str
    rounds: int
    seconds: float
    records: int
    warm_s: float
    fresh: bool  # no page was used before
    load_before: float  # one-minute load average before anything was started
    took_s: float


def text(tools: SharedTools, book: Book, rows: list[Row], keeper_found: list[Row], how: How) -> str:
    judged = [row for row in [*rows, *keeper_found] if row.reached is not None]
    met = sum(row.reached is True for row in judged)
    parts = [
        "# Headrace beside Apache Kafka",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC. **{met} of {len(judged)} targets reached.**",
        _machine(tools),
        _run(how),
        *([_table(rows)] if rows else []),
        *keeper_rows.section(book, keeper_found),
        *_not_measured(book),
        "## Noise",
        _noise(book, [*rows, *keeper_found], how),
    ]
    return "\n\n".join(parts) + "\n"


def _machine(tools: SharedTools) -> str:
    kafka = next(tools.jars.glob("kafka-clients-*.jar"), Path("kafka-clients-unknown.jar")).stem
    model = _first(r"model name\s*:\s*(.+)", "/proc/cpuinfo")
    memory_kb = _first(r"MemTotal:\s+(\d+)", "/proc/meminfo")
    return (
        "## Machine\n\n"
        f"{os.cpu_count()} cores ({model}), {int(memory_kb or 0) / 1e6:.0f} GB memory, "
        f"Linux {platform.release()}, Python {platform.python_version()}, Java {_java()}. "
        f"Headrace {version('headrace')} at {_commit()}; Apache Kafka {kafka.rpartition('-')[2]}, 1 GB heap; "
        f"confluent-kafka {version('confluent-kafka')}."
    )


def _run(how: How) -> str:
    return (
        "## How it was run\n\n"
        f"`{how.command}` ({how.took_s / 60:.0f} min): rounds that count: {how.rounds} (stored data "
        f"{3 * how.rounds}, many partitions {2 * how.rounds}), one more thrown away, turn and turn about; "
        f"raw workloads {how.seconds:g} s each, "
        f"{how.records:,} records for a client's producer; 100-byte records, 6 partitions; Kafka warmed for "
        f"{how.warm_s:g} s; {_pages(how)}. "
        "Headrace runs as `headrace up` with default settings but num.partitions and, as Kafka here, no "
        "delay before a group's first rebalance. Clients run on the same "
        "cores as the brokers. Figures are medians; a ratio is "
        "Headrace/Kafka, in parentheses the lowest and highest of the single rounds. Where only Headrace was "
        "measured, the ratio is to the lighter case, or to the job by hand on the same broker, in square brackets, "
        "and the median of the rounds' ratios. "
        "Starting Kafka does not count the formatting of its directory."
    )


def _pages(how: How) -> str:
    if how.fresh:
        return "no memory touched before, and what was written stays: every produced page is new to the kernel"
    return "free memory touched once before; data removed between workloads"


def _table(rows: list[Row]) -> str:
    lines = [
        "| workload | Kafka | Headrace | ratio | target | reached |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        base = row.show(statistics.median(row.base)) if row.base else "-"
        value = row.show(statistics.median(row.values))
        if row.base_name != KAFKA:
            base, value = "-", f"{value} [{row.base_name}: {base}]"
        reached = {True: "yes", False: "**no**", None: ""}[row.reached]
        lines.append(f"| {row.label} | {base} | {value} | {_ratio(row)} | {row.target or ''} | {reached} |")
    return "\n".join(lines)


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return "-"
    each = row.ratios
    span = f" ({min(each):.2f} to {max(each):.2f})" if len(each) > 1 else ""
    return f"{row.ratio:.2f}{span}"


def _not_measured(book: Book) -> list[str]:
    if not book.failures:
        return []
    return [
        "## Not measured",
        "\n".join(f"- {name}: {_PATH.sub('…', reason)}" for name, reason in book.failures.items()),
    ]


def _noise(book: Book, rows: list[Row], how: How) -> str:
    cores = os.cpu_count()
    said = [
        f"Before the run the load average was {how.load_before:.2f} on {cores} cores, which brokers and clients "
        "share with each other and perhaps with other machines. Believe ratios of CPU per million records "
        "first, ratios of rates second, absolute figures never."
    ]
    spreads = book.spreads()
    if spreads:
        worst = max(spreads, key=lambda name: spreads[name])
        said.append(
            f"The rate of one workload on one broker differed between rounds by "
            f"{statistics.median(spreads.values()):.0%} of its median (the median workload) and by up to "
            f"{spreads[worst]:.0%} ({worst})."
        )
    undecided = [row for row in rows if row.undecided]
    if undecided:
        said.append(
            f"Rows in which some rounds reached the target and others did not: {len(undecided)}; there, the "
            "verdict of the medians could fall the other way in another run."
        )
    if how.rounds < 3:
        said.append("With fewer than three rounds these figures show that the benchmark works, and little else.")
    return " ".join(said)


def _java() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', done.stderr)
    return found[1] if found else "unknown"


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = " with uncommitted changes" if git("status", "--porcelain", "--", "src") else ""
    return f"commit {git('rev-parse', '--short', 'HEAD') or 'unknown'}{changed}"


def _first(pattern: str, path: str) -> str:
    found = re.search(pattern, Path(path).read_text())
    return found[1].strip() if found else ""
