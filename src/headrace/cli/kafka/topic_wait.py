"""Waiting for a topic that does not exist yet, as Kafka's own readers do, and saying so in one line.

Reading comes first in many tutorials, and the topic is made by whoever writes to it later. Java's consumer asks for the
topic in a way that lets the broker create it (auto.create.topics.enable) and goes on asking; librdkafka does neither.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

ANSWER_S_MAX = 10.0
_PAUSE_S = 0.25
_ASSIGNED_S_MAX = 5.0
_SAY_AFTER_S = 1.0  # a broker that creates the topic itself has done so by then


class TopicWait:
    """For one topic, or for those that match a pattern."""

    def __init__(self, consumer: "Consumer", *, topic: str | None, pattern: str | None = None) -> None:
        self._consumer = consumer
        self._topic = topic
        self._pattern = pattern
        self._began = time.monotonic()
        self._said = False
        self.was_missing = False  # so the topic is newer than its reader, and everything in it has come since

    def until_there(self, missing: bool, goes_on: Callable[[], bool]) -> int:
        """How many partitions the topic has; 0 if `goes_on` ended before there was one.

        `missing` says that the topic did not exist a moment ago. To be called before the consumer reads anything.
        """
        self._began = time.monotonic()
        self.was_missing = missing
        while goes_on():
            count = self._partition_count()
            if count:
                if self.was_missing and not self._said:
                    _say(f"Topic {self._topic} did not exist and has just been created (auto.create.topics.enable)")
                self._said = False
                return count
            if self.was_missing and not self._said and time.monotonic() - self._began >= _SAY_AFTER_S:
                self._say_missing()
            self._consumer.poll(_PAUSE_S)  # nothing is assigned: this serves the callbacks only
        return 0

    def heard(self, error: "KafkaError") -> bool:
        """Whether the error is only that the topic is not there. librdkafka looks for it again by itself."""
        if not is_missing(error):
            return False
        if not self._said:
            self._say_missing()
        return True

    def nothing_assigned(self) -> None:
        """Said after a while: with group.protocol=consumer no error tells that a pattern matches nothing."""
        if not self._said and time.monotonic() - self._began >= _ASSIGNED_S_MAX:
            self._say_missing()

    def _partition_count(self) -> int:
        from confluent_kafka import KafkaError, KafkaException

        topic = str(self._topic)
        try:
            found = self._consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic]
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                return 0  # whoever watches the brokers says so
            raise ToolError(f"{topic}: {error.str()}") from failure
        if found.error is None:
            return len(found.partitions)
        if found.error.code() == KafkaError.LEADER_NOT_AVAILABLE or is_missing(found.error):
            self.was_missing = True
            return 0
        raise ToolError(f"{topic}: {found.error.str()}")

    def _say_missing(self) -> None:
        self._said = True
        if self._topic is None:
            _say(
                f"Nothing to read in topics that match {self._pattern}; waiting for one, looked for every "
                "metadata.max.age.ms (5 minutes by default)"
            )
            return
        _say(
            f"Topic {self._topic} does not exist (UNKNOWN_TOPIC_OR_PARTITION); waiting for it. Create it with "
            f"kafka-topics.sh --create --topic {self._topic}"
        )


def is_missing(error: "KafkaError") -> bool:
    from confluent_kafka import KafkaError

    return error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
