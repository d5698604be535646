"""What a broker counts, for /metrics and /health: taken on its loop, in one go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.coordination import Coordination
    from headrace.broker.node import Node


def counters(node: Node, coordination: Coordination | None) -> Mapping[str, object]:
    """`coordination` is None where nobody has needed coordinators yet: to count is no reason to make them."""
    store = node.store
    found: dict[str, object] = {
        **node.metrics.snapshot(),
        "batches_appended": node.writer.batches_written,
        "bytes_appended": node.writer.bytes_written,
        "log_directory_online": {(each.path,): int(each.online) for each in store.directories},
        "recovered_bytes": store.recovered_bytes,
        "cut_bytes": store.cut_bytes,
        "poison_batches": store.poison_batches,
        **store.damage(),
        "scrubbed_bytes": node.scrub.bytes,
        "scrub_passes": node.scrub.passes,
        "partitions": len(store.logs),
        "topics": len(list(node.topics.all())),
        "open_files": len(node.files),
    }
    if coordination is not None:
        found.update(coordination.damage())
    found.update(node.server.gauges())
    found["waiting_fetches"] = node.purgatory.count
    found["fetch_sessions"] = len(node.fetch_sessions)
    return found
