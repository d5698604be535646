"""How far each node is behind: records behind the end of its topics, versions behind the tables it reads.

Asked of the broker at most once a second for all nodes together; a broker that does not answer leaves the last figure.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from headrace.streaming.graph import Graph
from headrace.streaming.kafka import Kafka
from headrace.streaming.node_run import NodeRun

LOOK_S_MIN = 1.0


class Lag:
    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._looked_at = 0.0
        self.caught_up = False

    def look(self, nodes: Sequence[NodeRun], graph: Graph) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_S_MIN:
            return
        self._looked_at = now
        places = {
            (topic, int(partition))
            for node in nodes
            for topic, partitions in node.progress.offsets.items()
            for partition in partitions
        }
        ends = {}
        with suppress(Exception):
            ends = self._kafka.ends(sorted(places))
        for node in nodes:
            behind = [
                max(0, ends[topic, int(partition)] - offset)
                for topic, partitions in node.progress.offsets.items()
                for partition, offset in partitions.items()
                if (topic, int(partition)) in ends
            ]
            if behind:
                node.progress.lag = sum(behind)
        running = [node for node in nodes if not node.failed]
        self.caught_up = bool(running) and all(
            node.progress.lag == 0 or (not graph.topics(node.node.name) and node.progress.batches > 0)
            for node in running
        )


def table_version(path: str) -> int | None:
    """The last version of a Delta table, by the names of its commits."""
    try:
        names = os.listdir(os.path.join(path, "_delta_log"))
    except OSError:
        return None
    versions = [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()]
    return max(versions, default=None)
