"""How far each node is behind, in rows: records of its topics, or rows of the tables it reads.

Asked of the broker at most once a second for all nodes together; a broker that does not answer leaves the last figure.
"""

import time
from collections.abc import Sequence
from contextlib import suppress

from headrace.streaming.kafka import Kafka
from headrace.streaming.node_run import NodeRun

LOOK_S_MIN = 1.0


class Lag:
    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._looked_at = 0.0
        self.caught_up = False

    def look(self, nodes: Sequence[NodeRun], *, now_or_never: bool = False) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_S_MIN and not now_or_never:
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
                node.progress.lag, node.progress.reads_topics = sum(behind), True
            elif (rows := node.rows_behind) is not None:
                node.progress.lag = rows
        going = [node for node in nodes if not node.failed]
        # A commit without rows is still to be read: what it removes or changes may count.
        self.caught_up = bool(going) and all(node.progress.lag == 0 and not node.versions_behind for node in going)
