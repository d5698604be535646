"""How a broker takes part in a cluster: Kafka's settings with Kafka's defaults, beside those of any broker."""

from dataclasses import dataclass, field

from headrace.replication.fetcher import FetchSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    connect: str  # zookeeper.connect
    session_timeout_ms: int = 18_000  # zookeeper.session.timeout.ms
    lag_ms_max: int = 30_000  # replica.lag.time.max.ms
    internal_factor: int = 3  # offsets.topic.replication.factor
    fetch: FetchSettings = field(default_factory=FetchSettings)
