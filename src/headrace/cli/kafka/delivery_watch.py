"""Says early why records are not acknowledged: a broker refuses them, or a partition has no leader.

librdkafka silently sends a refused record again until its time is over, and tells about a refusal only in its log.
That is read here; where it says nothing, because there is no leader to send to, the broker is asked. A refusal that
passes by itself within a moment is not worth a line.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Producer

REFUSED_S = 0.5  # so long must a refusal have lasted
UNANSWERED_S = 1.0  # so long must nothing have been acknowledged before the broker is asked why
ASK_EVERY_S = 5.0
ASK_S_MAX = 2.0
_REFUSAL = re.compile(r"(\S+) \[(\d+)\]: MessageSet with .* encountered error: Broker: (.*) \(actions [^)]*Retry")
_REMEDIES = {"Disk error": "kafka-log-dirs.sh --describe shows which log directory failed"}


class DeliveryWatch:
    def __init__(self, topic: str, wait_s: float, say: Callable[[str], None]) -> None:
        self._topic = topic
        self._wait_s = wait_s
        self._say = say
        self._refusals: dict[int, tuple[str, float]] = {}  # partition: why, since when
        self._said: set[int] = set()
        self._acknowledged = self._acknowledged_before = 0
        self._quiet_since = time.monotonic()
        self._ask_at = 0.0

    def settings(self, given: dict[str, Any]) -> dict[str, Any]:
        """What the producer must be made with; nothing, if the user reads librdkafka's log."""
        return {} if "debug" in given else {"debug": "msg", "log_level": 7, "logger": self}

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """A line of librdkafka's log."""
        if facility == "MSGSET" and (found := _REFUSAL.search(text)):
            self._refusals.setdefault(int(found[2]), (found[3], time.monotonic()))

    def answered(self, partition: int, *, acknowledged: bool) -> None:
        """A record has been acknowledged, or given up for good, which is said elsewhere."""
        self._acknowledged += acknowledged
        if self._refusals:
            self._refusals.pop(partition, None)
        if self._said and acknowledged:
            self._said.discard(partition)

    def look(self, producer: "Producer", waiting: int) -> None:
        """To be called often while so many records wait for their acknowledgement."""
        now = time.monotonic()
        for partition, (why, since) in self._refusals.items():
            if partition not in self._said and now - since >= REFUSED_S:
                self._said.add(partition)
                remedy = next((f"; {text}" for start, text in _REMEDIES.items() if why.startswith(start)), "")
                self._tell(f"{self._topic}-{partition}: the broker refuses records: {why}", remedy)
        if not waiting or self._acknowledged != self._acknowledged_before:
            self._acknowledged_before, self._quiet_since = self._acknowledged, now
        elif now - self._quiet_since >= UNANSWERED_S and now >= self._ask_at:
            self._ask_at = now + ASK_EVERY_S
            self._ask(producer)

    def _ask(self, producer: "Producer") -> None:
        from confluent_kafka import KafkaException

        try:
            found = producer.list_topics(self._topic, timeout=ASK_S_MAX).topics[self._topic]
        except KafkaException:
            return  # whoever watches the brokers says so
        leaderless = sorted(number for number, each in found.partitions.items() if each.leader < 0)
        if new := [number for number in leaderless if number not in self._said]:
            self._said.update(new)
            named = ", ".join(f"{self._topic}-{number}" for number in new)
            self._tell(
                f"{named}: no leader, so records wait",
                "; kafka-topics.sh --describe --unavailable-partitions shows more",
            )

    def _tell(self, what: str, remedy: str) -> None:
        self._say(f"{what}; trying again for {self._wait_s:g} s{remedy}")
