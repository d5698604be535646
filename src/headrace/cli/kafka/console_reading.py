"""The console consumer's loop: reads, prints, commits what was printed, and ends for one of several reasons.

A position moves only behind a record that was printed, so a reader that is stopped loses nothing.
"""

import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from headrace.cli.kafka import group_positions
from headrace.cli.kafka.broker_watch import BrokerWatch
from headrace.cli.kafka.client_settings import consumer_settings, make_client
from headrace.cli.kafka.consuming import close, take
from headrace.cli.kafka.group_positions import GroupPositions, is_end
from headrace.cli.kafka.message_formats import Format, Shown
from headrace.cli.kafka.tool import ToolError, stop_printing

NAME = "kafka-console-consumer.sh"
BATCH_MAX = 500
_POLL_S = 0.1
_METADATA_S_MAX = 10.0
_STAMPS = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
_PLACES = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    topic: str | None
    pattern: str | None = None
    partition: int | None = None
    start: str | int = "latest"
    messages_max: int | None = None
    timeout_ms: int | None = None
    skip_errors: bool = False
    systest_events: bool = False


class ConsoleReading:
    def __init__(self, plan: Plan, shape: Format, properties: dict[str, str]) -> None:
        self._plan = plan
        self._shape = shape
        self._stopped_by = 0
        self._count = 0
        self._watch = BrokerWatch(properties)
        settings = consumer_settings(properties) | group_positions.SETTINGS | {"error_cb": self._watch.on_error}
        self._consumer: Consumer = make_client(NAME, Consumer, settings)
        self._positions = GroupPositions(self._consumer, settings)

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        try:
            self._begin()
            self._loop()
        except BrokenPipeError:
            print("Unable to write to standard out, closing consumer.", file=sys.stderr)
            stop_printing()
        finally:
            close(self._consumer)
            print(f"Processed a total of {self._count} messages", file=sys.stderr)
        if self._plan.systest_events:
            print("shutdown_complete", flush=True)
        return 128 + self._stopped_by if self._stopped_by else 0

    def _begin(self) -> None:
        plan = self._plan
        if plan.partition is not None and plan.topic is not None:
            self._check_partition(plan.topic, plan.partition)
            at = _PLACES[plan.start] if isinstance(plan.start, str) else plan.start
            self._consumer.assign([TopicPartition(plan.topic, plan.partition, at)])
        else:
            self._positions.subscribe([plan.topic if plan.topic is not None else "^" + str(plan.pattern).lstrip("^")])

    def _check_partition(self, topic: str, partition: int) -> None:
        """A partition that is not there would be waited for without a word."""
        try:
            found = self._consumer.list_topics(topic, timeout=_METADATA_S_MAX).topics[topic]
        except KafkaException as error:
            self._consumer.poll(0)  # lets the watch hear why
            self._watch.check("nothing was printed")
            raise ToolError(f"{topic}: {error.args[0].str()}") from error
        if found.error is None and partition in found.partitions:
            return
        has = f"it has {len(found.partitions)}" if found.partitions else "there is no such topic"
        raise ToolError(f"The broker has no partition {partition} of topic {topic}: {has}")

    def _loop(self) -> None:
        plan = self._plan
        last = time.monotonic()
        while not self._stopped_by:
            left = BATCH_MAX if plan.messages_max is None else min(BATCH_MAX, plan.messages_max - self._count)
            if left <= 0:
                self._positions.settle()
                return
            messages = take(self._consumer, left, _POLL_S)
            now = time.monotonic()
            if self._print(messages):
                last = now
            elif plan.timeout_ms is not None and plan.timeout_ms >= 0 and now - last > plan.timeout_ms / 1000:
                return
            self._watch.check(f"what was printed was {self._count} messages")

    def _print(self, messages: list[Any]) -> int:
        """Prints, and returns how many records there were."""
        before = self._count
        done: list[Any] = []
        for message in messages:
            try:
                if not is_end(message):
                    self._print_one(message)
            except ToolError:
                self._printed(done)
                raise
            done.append(message)
        self._printed(done)
        return self._count - before

    def _printed(self, messages: list[Any]) -> None:
        sys.stdout.buffer.flush()  # nothing counts as printed if nobody reads any more
        self._positions.shown(messages)

    def _print_one(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            self._explain(error)
        self._watch.seen()
        try:
            sys.stdout.buffer.write(self._shape(_shown(message)))
        except ToolError as fault:
            if not self._plan.skip_errors:
                raise
            print(f"Error processing message, skipping this message: {fault}", file=sys.stderr)
        self._count += 1

    def _explain(self, error: KafkaError) -> NoReturn:
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
            what = self._plan.topic or self._plan.pattern
            where = "" if self._plan.partition is None else f", partition {self._plan.partition}"
            raise ToolError(f"The broker has no topic {what}{where}; create it with kafka-topics.sh --create")
        raise ToolError(f"Error processing message, terminating consumer process: {error.str()}")

    def _stop(self, number: int, frame: object) -> None:
        self._stopped_by = number


def _shown(message: Any) -> Shown:
    kind, stamp = message.timestamp()
    return Shown(
        message.topic(),
        message.partition(),
        message.offset(),
        _STAMPS.get(kind),
        stamp,
        message.key(),
        message.value(),
        message.headers() or [],
    )
