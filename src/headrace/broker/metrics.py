"""What the broker counts, and how Prometheus sees it.

`Metrics` is plain integers that the loop's hot code bumps directly; nobody else writes them.
`prometheus_families` turns a snapshot into Prometheus' families, on the thread of the metrics port.
prometheus_client is imported only there, so that a broker without that port never loads it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.net.traffic import Traffic

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

API_KEYS_MAX: Final = 128
LATENCY_BOUNDS_S = (  # not Final: a default argument reads it before mypyc has set it
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)


class HistogramSnapshot(NamedTuple):
    bounds: Sequence[float]
    counts: Sequence[int]  # one more than bounds: the last is above all of them
    total: float


class Histogram:
    """Counts by fixed bounds; one bisect an observation."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def snapshot(self) -> HistogramSnapshot:
        return HistogramSnapshot(self.bounds, tuple(self.counts), self.total)


class Metrics(Traffic):
    """The loop's counters. Bump them in place: `metrics.bytes_in += n`, `metrics.requests[api_key] += 1`."""

    __slots__ = (
        "api_names",
        "batches_appended",
        "bytes_appended",
        "connections_accepted",
        "connections_closed_by_garbage",
        "connections_closed_idle",
        "connections_open",
        "connections_refused",
        "errors",
        "fetch_latency",
        "produce_latency",
        "requests",
    )

    def __init__(self, api_names: Mapping[int, str] | None = None) -> None:
        super().__init__()
        self.api_names = api_names or {}
        self.requests = [0] * API_KEYS_MAX
        self.errors: dict[int, int] = {}  # by Kafka error code
        self.batches_appended = 0
        self.bytes_appended = 0
        self.connections_open = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.connections_closed_by_garbage = 0
        self.connections_closed_idle = 0
        self.produce_latency = Histogram()
        self.fetch_latency = Histogram()

    def error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    def snapshot(self) -> dict[str, object]:
        """A copy that another thread may read. Made on the loop."""
        names = self.api_names
        return {
            "requests": {(names.get(key, str(key)),): n for key, n in enumerate(self.requests) if n},
            "errors": {(str(code),): n for code, n in self.errors.items()},
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "batches_appended": self.batches_appended,
            "bytes_appended": self.bytes_appended,
            "connections_open": self.connections_open,
            "connections_accepted": self.connections_accepted,
            "connections_refused": self.connections_refused,
            "connections_closed_by_garbage": self.connections_closed_by_garbage,
            "connections_closed_idle": self.connections_closed_idle,
            "produce_latency": self.produce_latency.snapshot(),
            "fetch_latency": self.fetch_latency.snapshot(),
        }


class Family(NamedTuple):
    name: str  # without headrace_; a counter's _total is added by Prometheus' own rules
    kind: str  # counter, gauge or histogram
    help: str
    labels: tuple[str, ...] = ()


# Names in a snapshot, and what they are called outside. A name that is not here is shown as a gauge.
FAMILIES: Final = {
    "requests": Family("requests", "counter", "Requests answered, by API.", ("api",)),
    "errors": Family("request_errors", "counter", "Errors answered, by Kafka error code.", ("code",)),
    "bytes_in": Family("received_bytes", "counter", "Bytes read from clients."),
    "bytes_out": Family("sent_bytes", "counter", "Bytes written to clients."),
    "batches_appended": Family("appended_batches", "counter", "Record batches appended to logs."),
    "bytes_appended": Family("appended_bytes", "counter", "Bytes of record batches appended to logs."),
    "connections_open": Family("connections", "gauge", "Connections open now."),
    "connections_accepted": Family("connections_accepted", "counter", "Connections accepted."),
    "connections_refused": Family(
        "connections_refused", "counter", "Connections refused at max.connections or max.connections.per.ip."
    ),
    "connections_closed_by_garbage": Family(
        "connections_garbage", "counter", "Connections closed because what came was not Kafka's protocol."
    ),
    "connections_closed_idle": Family(
        "connections_idle", "counter", "Connections closed after connections.max.idle.ms of silence."
    ),
    "connections_by_software": Family(
        "connections_by_software", "gauge", "Connections open now, by the name of the client's software.", ("software",)
    ),
    "connections_not_read": Family(
        "connections_not_read", "gauge", "Connections not read from, since clients take too much memory."
    ),
    "client_memory_bytes": Family(
        "client_memory_bytes", "gauge", "Memory counted against queued.max.request.bytes.", ("part",)
    ),
    "produce_latency": Family(
        "produce_latency_seconds", "histogram", "Time from a Produce request's arrival to its answer."
    ),
    "fetch_latency": Family(
        "fetch_latency_seconds",
        "histogram",
        "Time from a Fetch request's arrival to its answer, waits included.",
    ),
    "topics": Family("topics", "gauge", "Topics."),
    "partitions": Family("partitions", "gauge", "Partitions."),
    "partitions_offline": Family("partitions_offline", "gauge", "Partitions whose log directory failed."),
    "log_bytes": Family("log_bytes", "gauge", "Bytes of log segments, by topic.", ("topic",)),
    "log_directory_online": Family(
        "log_directory_online", "gauge", "1 while a log directory works, 0 after it failed.", ("directory",)
    ),
    "log_directory_usable_bytes": Family(
        "log_directory_usable_bytes", "gauge", "Free bytes on a log directory's disk.", ("directory",)
    ),
    "poison_batches": Family(
        "poison_batches", "gauge", "Stored batches with records that make no sense, found at the last start and kept."
    ),
    "damaged_batches": Family(
        "damaged_batches", "gauge", "Damaged stretches of segment files that cannot be read, by partition.", ("log",)
    ),
    "lost_records": Family(
        "lost_records", "gauge", "Offsets that this start or a recovery found to be gone, by partition.", ("log",)
    ),
    "scrubbed_bytes": Family("scrubbed_bytes", "counter", "Bytes of segments that the scrub has checked."),
    "scrub_passes": Family("scrub_passes", "counter", "Times that the scrub has checked everything stored."),
    "internal_records_skipped": Family(
        "internal_records_skipped", "counter", "Records of internal topics that could not be read.", ("topic",)
    ),
    "coordinator_partitions_lost": Family(
        "coordinator_partitions_lost",
        "gauge",
        "Partitions of internal topics that could not be read; their groups or transactional ids are not served.",
        ("topic",),
    ),
    "open_files": Family("open_files", "gauge", "Segment files open now."),
    "fetch_sessions": Family("fetch_sessions", "gauge", "Incremental fetch sessions kept."),
    "requests_waiting": Family("requests_waiting", "gauge", "Requests that wait for data or a flush."),
    "flushes": Family("flushes", "counter", "Calls of fsync on log segments."),
    "segments_deleted": Family("segments_deleted", "counter", "Segments removed by retention."),
    "uptime_seconds": Family("uptime_seconds", "gauge", "Seconds since the broker was opened."),
}


def prometheus_families(snapshot: Mapping[str, object]) -> Iterator[Metric]:
    """A snapshot as Prometheus' metric families."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for key, value in snapshot.items():
        family = FAMILIES.get(key) or Family(key, "gauge", f"{key.replace('_', ' ').capitalize()}.")
        name = f"headrace_{family.name}"
        if isinstance(value, HistogramSnapshot):
            histogram = HistogramMetricFamily(name, family.help)
            histogram.add_metric((), list(_buckets(value)), value.total)
            yield histogram
            continue
        samples: Mapping[tuple[str, ...], float]
        if isinstance(value, Mapping):
            samples = value
        elif isinstance(value, int | float):
            samples = {(): value}
        else:
            continue
        labels = family.labels or tuple(f"label{n}" for n in range(max(map(len, samples), default=0)))
        make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        metric = make(name, family.help, labels=labels)
        for label_values, number in samples.items():
            metric.add_metric([str(each) for each in label_values], number)
        yield metric


def _buckets(histogram: HistogramSnapshot) -> Iterator[tuple[str, int]]:
    """Prometheus' buckets are cumulative; ours are not, because that costs one addition an observation."""
    seen = 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        seen += count
        yield repr(bound), seen
    yield "+Inf", seen + histogram.counts[-1]
