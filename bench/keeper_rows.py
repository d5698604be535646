"""The rows of the keeper beside Apache ZooKeeper, against the targets of the issue, and the section that holds them."""

import statistics
from collections.abc import Callable, Iterator

import keeper
from book import Book
from keepers import HEADRACE, VERSION, ZOOKEEPER
from rows import Row, Target

RATE, TIME, CPU, MEMORY = Target(1.0, True), Target(1.0, False), Target(0.7, False), Target(0.1, False)


def rows(book: Book) -> list[Row]:
    """Those for which there is something to show."""
    every = [*_load_rows(book), *_memory_and_start_rows(book), *_node_rows(book), *_idle_rows(book)]
    return [row for row in every if row.values]


def _row(
    book: Book,
    workload: str,
    label: str,
    figure: str,
    show: Callable[[float], str],
    target: Target | None,
) -> Row:
    base, values = (book.values(workload, side, figure) for side in (ZOOKEEPER, HEADRACE))
    return Row(label=label, base=base, values=values, show=show, target=target, base_name=ZOOKEEPER)


def _load_rows(book: Book) -> Iterator[Row]:
    for name, load in keeper.LOADS.items():
        if load.what == "watches":
            yield _row(book, name, load.label, "settle_ms", _millis, TIME)
        else:
            yield _row(book, name, load.label, "per_s", _rate, RATE)
            yield _row(book, name, "· p50 of an answer", "p50_us", _micros, None)
        yield _row(book, name, "· server CPU per operation", "cpu_s_per_million", _cpu, CPU)


def _memory_and_start_rows(book: Book) -> Iterator[Row]:
    yield _row(book, keeper.START, "start to first answer", "first_answer_s", _seconds, Target(0.3, False, "s"))
    yield _row(book, keeper.START, "memory, idle", "idle_mb", _megabytes, MEMORY)
    yield _row(book, keeper.AFTER, "memory after all of these loads", "rss_mb", _megabytes, MEMORY)


def _node_rows(book: Book) -> Iterator[Row]:
    restart = f"{keeper.NODE_COUNT:,} nodes: stop, start, first answer"
    yield _row(book, keeper.NODES, restart, "restart_s", _seconds, Target(1.0, False, "s"))
    yield _row(book, keeper.NODES, "· of it, start to first answer", "start_s", _seconds, None)
    yield _row(book, keeper.NODES, "· memory, restarted", "restarted_mb", _megabytes, None)
    yield _row(book, keeper.NODES, "· creates by one session, 200 under way", "create_per_s", _rate, None)
    yield _row(book, keeper.NODES, "· memory, when they are made", "nodes_mb", _megabytes, None)


def _idle_rows(book: Book) -> Iterator[Row]:
    label = f"{keeper.IDLE_SESSIONS:,} idle sessions: server CPU"
    yield _row(book, keeper.IDLE, label, "cores", _cores, CPU)
    yield _row(book, keeper.IDLE, "· memory", "sessions_mb", _megabytes, MEMORY)


def section(book: Book, found: list[Row]) -> list[str]:
    """Paragraphs; none if nothing was measured."""
    if not found:
        return []
    syncs = book.values(keeper.DISK, HEADRACE, "sync_us")
    disk = f" A write of {keeper.SYNC_BYTES} bytes and its fdatasync alone took {syncs[0]:.0f} µs." if syncs else ""
    lines = ["| workload | ZooKeeper | Headrace | ratio | target | reached |", "|---|---|---|---|---|---|"]
    for row in found:
        base = row.show(statistics.median(row.base)) if row.base else "-"
        reached = {True: "yes", False: "**no**", None: ""}[row.reached]
        value = row.show(statistics.median(row.values))
        lines.append(f"| {row.label} | {base} | {value} | {_ratio(row)} | {row.target or ''} | {reached} |")
    return [
        "## The keeper beside Apache ZooKeeper",
        f"Apache ZooKeeper {VERSION} standalone with the JVM settings of its start script and without a logger, and "
        "`headrace keeper`, from the same zoo.cfg. Both write to the same disk and answer a change when fdatasync has "
        f"returned (`forceSync` is on).{disk} The client is `keeper_load.c`: nodes of 100 bytes, one request under "
        "way in each session where nothing else is said.",
        "\n".join(lines),
    ]


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return "-"
    each = row.ratios
    return f"{row.ratio:.2f}" + (f" ({min(each):.2f} to {max(each):.2f})" if len(each) > 1 else "")


def _rate(value: float) -> str:
    return f"{value:,.0f} /s"


def _micros(value: float) -> str:
    return f"{value:,.0f} µs"


def _millis(value: float) -> str:
    return f"{value:.1f} ms"


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _cpu(value: float) -> str:
    return f"{value:.3g} µs"


def _megabytes(value: float) -> str:
    return f"{value:,.0f} MB"


def _cores(value: float) -> str:
    return f"{value:.3f} cores"
