"""How long answers take: what `srvr`, `mntr` and `cons` show."""


class Latency:
    """From a request to its answer, in milliseconds."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.min = 0
        self.max = 0
        self.last = 0

    def add(self, ms: int) -> None:
        self.min = min(self.min, ms) if self.count else ms
        self.max = max(self.max, ms)
        self.last = ms
        self.count += 1
        self.total += ms

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0
