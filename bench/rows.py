"""The rows of the results: which figure of which workload, in which unit, against which target of the issue."""

import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import compaction
import first_table
import flood
import keyed
import nexmark
import partitions
import pipeline
import stored
from book import Book
from turns import HEADRACE, KAFKA

AFTER_LOAD = "after_load"


@dataclass(frozen=True, slots=True)
class Target:
    limit: float
    at_least: bool
    unit: str = ""  # without one, the target is for the ratio and not for the value

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    label: str
    base: list[float]  # Kafka's, or those of the lighter case on Headrace; may be empty
    values: list[float]
    show: Callable[[float], str]
    target: Target | None
    base_name: str = KAFKA

    @property
    def ratio(self) -> float | None:
        """Of the medians, as compare has it; of two cases on Headrace, the median of the rounds' ratios.

        The latter is after a difference of a few percent, which a slow drift of the machine would hide.
        """
        if not self.base or not statistics.median(self.base):
            return None
        if self.base_name != KAFKA:
            return statistics.median(self.ratios)
        return statistics.median(self.values) / statistics.median(self.base)

    @property
    def ratios(self) -> list[float]:
        """Of each round by itself."""
        return [value / base for value, base in zip(self.values, self.base, strict=False) if base]

    @property
    def reached(self) -> bool | None:
        if self.target is None:
            return None
        judged = statistics.median(self.values) if self.target.unit else self.ratio
        return None if judged is None else self.target.met(judged)

    @property
    def undecided(self) -> bool:
        """Some rounds reached the target and some did not."""
        if self.target is None:
            return False
        each = self.values if self.target.unit else self.ratios
        return len({self.target.met(value) for value in each}) > 1


def _rate(unit: str) -> Callable[[float], str]:
    def show(value: float) -> str:
        for limit, letter in ((1e6, " M"), (1e3, " k")):
            if value >= limit:
                return f"{value / limit:.3g}{letter} {unit}"
        return f"{value:.3g} {unit}"

    return show


_RECORDS = _rate("rec/s")
_REQUESTS = _rate("req/s")


def _cpu(value: float) -> str:
    return f"{value:.3g} s"


def _millis(value: float) -> str:
    return f"{value:.1f} ms"


def _micros(value: float) -> str:
    return f"{value:,.0f} µs"


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _megabytes(value: float) -> str:
    return f"{value:,.0f} MB"


def _cores(value: float) -> str:
    return f"{value:.2f} cores"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


_PRODUCE_CPU, _FETCH_CPU = Target(0.5, False), Target(1.0, False)
_COMMITS, _TRANSACTIONS = "million commits", "thousand transactions"


@dataclass(frozen=True, slots=True)
class Load:
    """Two rows: how fast, and what of the broker's CPU it took."""

    workload: str
    label: str
    speed: Target
    cpu: Target | None
    figure: str = "rec_s"
    show: Callable[[float], str] = _RECORDS
    cpu_for: str = "million records"
    cpu_share: float = 1.0  # of the million that cpu_for has


_LOADS = (
    Load("raw_produce_16k", "raw client, produce, 16 KB batches", Target(1.5, True), _PRODUCE_CPU),
    Load("raw_produce_64k", "raw client, produce, 64 KB batches", Target(1.5, True), _PRODUCE_CPU),
    Load("raw_produce_64k_all", "the same, acks=all", Target(1.5, True), _PRODUCE_CPU),
    # A request of the small workloads holds one record, so a million records are a million requests as well.
    Load("raw_small", "1 record a request, 50 connections", Target(1.3, True), _PRODUCE_CPU, "req_s", _REQUESTS),
    Load("raw_small_pipelined", "the same, 5 in flight", Target(1.8, True), _PRODUCE_CPU, "req_s", _REQUESTS),
    Load("raw_fetch_64k", "raw client, fetch 64 KB", Target(1.0, True), _FETCH_CPU),
    Load("raw_fetch_1m", "raw client, fetch 1 MB", Target(1.0, True), _FETCH_CPU),
    Load("java_produce_16k", "Java producer, acks=1, 16 KB", Target(1.0, True), _PRODUCE_CPU),
    Load("java_produce_64k_all", "Java producer, acks=all, 64 KB", Target(1.0, True), _PRODUCE_CPU),
    Load("java_consume", "Java consumer, in a group", Target(1.0, True), _FETCH_CPU),
    Load("java_assigned", "Java consumer, assigned", Target(1.0, True), _FETCH_CPU),
    Load("rdkafka_produce", "librdkafka producer, acks=1", Target(1.0, True), _PRODUCE_CPU),
    Load("rdkafka_produce_all", "librdkafka producer, acks=all, idempotent", Target(1.0, True), _PRODUCE_CPU),
    Load("rdkafka_consume", "librdkafka consumer, assigned", Target(1.0, True), _FETCH_CPU),
    Load(
        "groups_classic",
        "50 members, 200 partitions, one more joins: until all have their share",
        Target(1.0, False),
        None,
        *("settle_ms", _millis, "thousand rebalances", 0.001),
    ),
    Load(
        "groups_consumer",
        "the same, KIP-848",
        Target(1.0, False),
        None,
        *("settle_ms", _millis, "thousand rebalances", 0.001),
    ),
    Load(
        "commits_10",
        "offset commits of 10 members, one partition each",
        Target(1.3, True),
        None,
        *("per_s", _rate("commits/s"), _COMMITS),
    ),
    Load("commits_100", "the same, 100 members", Target(1.3, True), None, "per_s", _rate("commits/s"), _COMMITS),
    Load(
        "transactions_rdkafka",
        "transactions of 100 records, one librdkafka producer",
        Target(1.0, True),
        None,
        *("per_s", _rate("tx/s"), _TRANSACTIONS, 0.001),
    ),
    Load(
        "transactions_raw",
        "the same, 10 raw producers, newest form",
        Target(1.0, True),
        None,
        *("per_s", _rate("tx/s"), _TRANSACTIONS, 0.001),
    ),
)


def rows(book: Book, *, stored_gb: float, partition_count: int) -> list[Row]:
    """Those for which there is something to show."""
    every = [
        *_load_rows(book),
        *_latency_rows(book),
        *_start_and_memory_rows(book),
        *_flood_rows(book),
        *_stored_rows(book, stored_gb),
        *_partition_rows(book, partition_count),
        *_compaction_rows(book),
        *_pipeline_rows(book),
        *_first_table_rows(book),
        *_nexmark_rows(book),
        *_keyed_rows(book),
    ]
    return [row for row in every if row.values]


def _row(
    book: Book, workload: str, label: str, figure: str, show: Callable[[float], str], target: Target | None
) -> Row:
    base, values = (book.values(workload, side, figure) for side in (KAFKA, HEADRACE))
    return Row(label=label, base=base, values=values, show=show, target=target)


def _load_rows(book: Book) -> Iterator[Row]:
    for load in _LOADS:
        yield _row(book, load.workload, load.label, load.figure, load.show, load.speed)
        base, values = (
            [cpu_s * load.cpu_share for cpu_s in book.values(load.workload, side, "cpu_s_per_million")]
            for side in (KAFKA, HEADRACE)
        )
        yield Row(label=f"· broker CPU per {load.cpu_for}", base=base, values=values, show=_cpu, target=load.cpu)
        # Near nothing: the client is the bottleneck, and the row's rate is the client's.
        yield _row(book, load.workload, "· of the time, the client's thread waited", "client_idle", _percent, None)


def _latency_rows(book: Book) -> Iterator[Row]:
    for workload, acks in (("raw_latency", "1"), ("raw_latency_all", "all")):
        for figure, point in (("p50_us", "p50"), ("p99_us", "p99"), ("p999_us", "p99.9")):
            target = None if point == "p99.9" else Target(0.5, False)
            yield _row(book, workload, f"end to end, acks={acks}, {point}", figure, _micros, target)


def _flood_rows(book: Book) -> Iterator[Row]:
    """A bystander's p99 may be Kafka's, or 20 ms where Kafka is quicker than that."""
    labels = {name: f"while one connection floods with {what}" for name, (what, _) in flood.KINDS.items()}
    labels[flood.PENDING] = f"while {flood.PENDING_MEMBERS:,} pending members come and expire"
    labels[flood.JOINED] = f"while {flood.JOINS:,} members join one KIP-848 group"
    for name, label in labels.items():
        kafka = book.values(name, KAFKA, "p99_ms")
        limit = 20.0 if name == flood.PENDING else max([20.0, *map(statistics.median, [kafka] if kafka else [])])
        for point, target in (("p99", Target(round(limit, 1), False, "ms")), ("p50", None), ("max", None)):
            text = f"{label}: produce and fetch, {point}" if point == "p99" else f"· {point}"
            yield _row(book, name, text, f"{point}_ms", _millis, target)
        if name in flood.KINDS:
            yield _row(book, name, "· requests of the flood answered", "per_s", _REQUESTS, None)
        else:
            target = Target(1.0, False) if name == flood.JOINED else None
            yield _row(book, name, "· until all of them are answered", "took_s", _seconds, target)


def _start_and_memory_rows(book: Book) -> Iterator[Row]:
    first, idle = Target(0.5, False, "s"), Target(40, False, "MB")
    yield _row(book, "start", "start to first acknowledged record", "first_record_s", _seconds, first)
    yield _row(book, "start", "memory, idle", "idle_mb", _megabytes, idle)
    loaded = Target(100, False, "MB")
    yield _row(book, AFTER_LOAD, "memory after load (highest of all workloads)", "rss_mb", _megabytes, loaded)
    yield _row(book, AFTER_LOAD, "· at any moment", "peak_mb", _megabytes, None)


def _stored_rows(book: Book, stored_gb: float) -> Iterator[Row]:
    for load, name in (("produce_16k", "produce, 16 KB batches"), ("fetch_64k", "fetch 64 KB")):
        label = f"{stored_gb:g} GB in the topic, raw {name}"
        yield from _pair(book, f"{stored.NAME}_{load}", label, stored.EMPTY, stored.FULL)


def _partition_rows(book: Book, count: int) -> Iterator[Row]:
    for load, name in (("produce_16k", "produce, 16 KB batches"), ("fetch_64k", "fetch 64 KB")):
        label = f"beside {count:,} partitions, raw {name}"
        yield from _pair(book, f"{partitions.NAME}_{load}", label, partitions.FEW, partitions.MANY)
    for label, figure, show, target in (
        ("clean restart: stop, start, first acknowledged record", "restart_s", _seconds, Target(3, False, "s")),
        ("· of it, start to first acknowledged record", "start_s", _seconds, None),
        ("to create them", "create_s", _seconds, None),
        ("memory, idle", "idle_mb", _megabytes, Target(400, False, "MB")),
        ("memory after load", "loaded_mb", _megabytes, Target(400, False, "MB")),
        ("open files", "open_files", _count, None),
    ):
        values = book.values(partitions.NAME, partitions.MANY, figure)
        text = label if label.startswith("·") else f"{count:,} partitions: {label}"
        yield Row(label=text, base=[], values=values, show=show, target=target)


def _compaction_rows(book: Book) -> Iterator[Row]:
    for load, name in compaction.LOADS.items():
        for point, target in (("p99", Target(2.0, False)), ("p50", None)):
            base, values = (
                book.values(compaction.NAME, side, f"{load}_{point}_us") for side in (compaction.IDLE, compaction.BUSY)
            )
            label = f"while a log is compacted, {name}, {point}"
            yield Row(label=label, base=base, values=values, show=_micros, target=target, base_name="idle")


def _pipeline_rows(book: Book) -> Iterator[Row]:
    """Kafka's side is the same job by hand; the second row has the floor that does not depend on it."""
    show, label = _rate("rows/s"), "pipeline: topic of 100-byte JSON to Delta, against a job by hand"
    yield _row(book, pipeline.NAME, label, "rec_s", show, Target(1.0, True))
    values = book.values(pipeline.NAME, HEADRACE, "rec_s")
    yield Row(label="· by itself", base=[], values=values, show=show, target=Target(150_000, True, "rows/s"))
    for figure, target in (("p50_ms", Target(1.0, False)), ("p95_ms", None)):
        label = f"pipeline: from event to commit, {pipeline.STEADY_ROWS_S:,} rows/s, {figure[:3]}"
        yield _row(book, pipeline.LATENCY, label, figure, _millis, target)
    values = book.values(pipeline.QUERY, HEADRACE, "seconds")
    label = "headrace table query of what the pipeline wrote"
    yield Row(label=label, base=[], values=values, show=_seconds, target=Target(1.0, False, "s"))


def _first_table_rows(book: Book) -> Iterator[Row]:
    """Against the same job in plain PySpark; twenty nodes by themselves."""
    for workload, label in (
        (first_table.SHOP, "first table: the shop example, cold, to its end"),
        (first_table.ONE, f"first table: one node, {first_table.VISITS:,} events, cold, to its end"),
        (first_table.AGAIN, f"· started again, {first_table.VISITS:,} new events"),
    ):
        for figure, text, target in (("seconds", label, Target(0.7, False)), ("cpu_s", "· CPU of the job", None)):
            base, values = (book.values(workload, side, figure) for side in (first_table.BY_HAND, HEADRACE))
            yield Row(label=text, base=base, values=values, show=_seconds, target=target, base_name=first_table.BY_HAND)
    for figure, label, show, target in (
        ("seconds", f"20 nodes over one topic, {first_table.VISITS:,} events, cold, to their end", _seconds, None),
        ("cpu_s", "· CPU of the job", _seconds, None),
        ("batch_ms", "· streaming: time per batch, median of the nodes", _millis, None),
        ("rss_mb", "· streaming: memory of Python and the JVM", _megabytes, None),
        ("idle_cores", "· streaming: CPU while idle", _cores, Target(0.5, False, "cores")),
    ):
        values = book.values(first_table.TWENTY, HEADRACE, figure)
        yield Row(label=label, base=[], values=values, show=show, target=target)


def _nexmark_rows(book: Book) -> Iterator[Row]:
    figures = (
        ("rec_s", "NEXMark {}, against the same query by hand", _rate("rec/s"), Target(1.0, True)),
        ("cpu_s_per_million", "· CPU of the job per million records", _cpu, None),
    )
    for query, name in zip(nexmark.QUERIES, nexmark.NAMES, strict=True):
        for figure, label, show, target in figures:
            base, values = (book.values(name, side, figure) for side in (first_table.BY_HAND, HEADRACE))
            yield Row(label=label.format(query), base=base, values=values, show=show, target=target,
                      base_name=first_table.BY_HAND)  # fmt: skip


def _keyed_rows(book: Book) -> Iterator[Row]:
    """Against the smallest of the tables."""
    few, *more = keyed.KEYS
    figures = {
        "seconds": f"time per batch of {keyed.CHANGES_PER_BATCH:,} changes",
        "cpu_s": f"· CPU of the job, {keyed.BATCHES} batches and its start",
        "query_s": "· a sum over all rows, by headrace table query",
    }
    for kind, name in (("plain", ""), ("vectors", ", with deletion vectors")):
        for many, (figure, text) in itertools.product(more, figures.items()):
            base, values = (book.values(keyed.workload(kind, keys), HEADRACE, figure) for keys in (few, many))
            label = text if text.startswith("·") else f"keyed table of {many:,} rows{name}: {text}"
            yield Row(label=label, base=base, values=values, show=_seconds, target=None, base_name=f"{few:,} rows")


def _pair(book: Book, workload: str, label: str, lighter: str, heavier: str) -> Iterator[Row]:
    for figure, text, show, target in (
        ("rec_s", label, _RECORDS, Target(0.95, True)),
        ("cpu_s_per_million", "· broker CPU per million records", _cpu, None),
    ):
        base, values = (book.values(workload, side, figure) for side in (lighter, heavier))
        name = "empty" if lighter == stored.EMPTY else "without"
        yield Row(label=text, base=base, values=values, show=show, target=target, base_name=name)
