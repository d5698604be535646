"""What the benchmarks have in common: a topic of their own, counting while they run, and the report."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.progress import Progress
from headrace.cli.tabling import bytes_text, print_json

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach

LIVE_S = 1.0
NAME = "headrace-bench-"


@contextmanager
def bench_topic(reach: "Reach", topic: str | None, partitions: int) -> Iterator[str]:
    """The user's topic, which is left alone, or one that is made and deleted."""
    from headrace.cli.names import check_topics
    from headrace.client.topic_admin import create_topic, delete_topics

    with reach.cluster() as cluster:
        if topic is not None:
            check_topics(cluster, [topic])
            name = topic
        else:
            name = f"{NAME}{random.randrange(1 << 32):08x}"
            create_topic(cluster, name, partitions=partitions)
    try:
        yield name
    finally:
        if topic is None:
            with suppress(Exception), reach.cluster() as cluster:  # the broker may be gone: then that is the news
                delete_topics(cluster, [name])


class RateMeter:
    """Counts; shows the rate of the last second while it goes on."""

    def __init__(self, total: int, size_bytes: int | None = None, *, quiet: bool = False) -> None:
        self.records = 0
        self.bytes = 0
        self.rates: list[float] = []  # of each whole second
        self._total = total
        self._began = self._mark = time.monotonic()
        self._at_mark = self._bytes_at_mark = 0
        self._progress = Progress(total, shown=False if quiet else None)

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.bytes += size_bytes
        now = time.monotonic()
        passed = now - self._mark
        if passed < LIVE_S / 4:
            return
        rate, flow = (self.records - self._at_mark) / passed, (self.bytes - self._bytes_at_mark) / passed
        self._progress.update(self.records, f"{rate:,.0f} records/s  {bytes_text(int(flow))}/s")
        if passed >= LIVE_S:
            self.rates.append(rate)
            self._mark, self._at_mark, self._bytes_at_mark = now, self.records, self.bytes

    def end(self) -> dict[str, Any]:
        self._progress.clear()
        seconds = max(1e-9, time.monotonic() - self._began)
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(seconds, 3),
            "records_per_second": round(self.records / seconds, 1),
            "bytes_per_second": round(self.bytes / seconds, 1),
        }

    def clear(self) -> None:
        self._progress.clear()


def report(kind: str, topic: str, found: dict[str, Any], as_json: bool) -> None:
    """`latency_ms` and `rate` are percentiles, if they are there."""
    if as_json:
        print_json({"bench": kind, "topic": topic, **found})
        return
    from headrace.cli.bench.percentiles import text

    if "records_per_second" in found:
        click.echo(
            f"{found['records']:,} records, {bytes_text(found['bytes'])} in {found['seconds']:.1f} s: "
            f"{found['records_per_second']:,.0f} records/s, {bytes_text(int(found['bytes_per_second']))}/s"
        )
    if found.get("latency_ms"):
        click.echo(f"latency  {text(found['latency_ms'], 'ms')}")
    if "first_record_ms" in found:
        click.echo(f"first record after {found['first_record_ms']:,.0f} ms")
    if found.get("rate_percentiles"):
        lowest = "  ".join(f"{name} {value:,.0f}" for name, value in found["rate_percentiles"].items())
        click.echo(f"records/s by the second  {lowest}")
