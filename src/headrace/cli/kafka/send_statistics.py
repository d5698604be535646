"""What `kafka-producer-perf-test.sh` counts and prints. Times are given to it; it never reads a clock."""

from collections.abc import Callable

_SAMPLES_MAX = 500_000
_MB = 1024.0 * 1024.0


class SendStatistics:
    def __init__(
        self, records: int, interval_ms: int, now_ms: int, say: Callable[[str], None], *, steady: bool
    ) -> None:
        self._begin_ms = self._window_ms = now_ms
        self._interval_ms = interval_ms
        self._say = say
        self._steady = steady
        self._sampling = max(1, records // min(records, _SAMPLES_MAX))
        self._latencies: list[int] = []
        self._count = self._bytes = self._total_ms = self._worst_ms = 0
        self._window = (0, 0, 0, 0)  # count, bytes, sum and maximum of latencies since the last line
        self.silent = False

    def record(self, latency_ms: int, size: int, now_ms: int) -> None:
        if self._count % self._sampling == 0:
            self._latencies.append(latency_ms)
        self._count += 1
        self._bytes += size
        self._total_ms += latency_ms
        self._worst_ms = max(self._worst_ms, latency_ms)
        count, total, waited, worst = self._window
        self._window = (count + 1, total + size, waited + latency_ms, max(worst, latency_ms))
        if now_ms - self._window_ms >= self._interval_ms:
            if self._steady and self._count == self._window[0]:
                self._say("In steady state.")
            if not self.silent:
                self._say(self._window_line(now_ms))
            self._window, self._window_ms = (0, 0, 0, 0), now_ms

    def _window_line(self, now_ms: int) -> str:
        count, size, waited, worst = self._window
        elapsed = max(1, now_ms - self._window_ms)
        return (
            f"{count} records sent, {1000.0 * count / elapsed:.1f} records/sec "
            f"({1000.0 * size / elapsed / _MB:.2f} MB/sec), {waited / count:.1f} ms avg latency, "
            f"{worst:.1f} ms max latency."
        )

    def total_line(self, now_ms: int) -> str:
        elapsed = max(1, now_ms - self._begin_ms)
        ordered = sorted(self._latencies)
        parts = []
        for share, name in ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th")):
            at = min(int(share * len(ordered)), len(ordered) - 1)
            parts.append(f"{ordered[at] if ordered else 0} ms {name}")
        return (
            f"{self._count}{' steady state' if self._steady else ''} records sent, "
            f"{1000.0 * self._count / elapsed:f} records/sec ({1000.0 * self._bytes / elapsed / _MB:.2f} MB/sec), "
            f"{self._total_ms / max(1, self._count):.2f} ms avg latency, {self._worst_ms:.2f} ms max latency, "
            f"{', '.join(parts)}."
        )
