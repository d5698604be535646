"""The console consumer's loop: reads, prints, commits what was printed, and ends for one of several reasons.

A position moves only behind a record that was printed, so a reader that is stopped loses nothing.
"""

import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    TopicPartition,
)

from headrace.cli.kafka import group_positions
from headrace.cli.kafka.broker_watch import BrokerWatch
from headrace.cli.kafka.consuming import close, take
from headrace.cli.kafka.group_positions import GroupPositions, is_end
from headrace.cli.kafka.message_formats import Format, PrintedRecord
from headrace.cli.kafka.tool import ToolError, stop_printing
from headrace.cli.kafka.topic_wait import TopicWait
from headrace.client.librdkafka import consumer_settings, make_client

NAME = "kafka-console-consumer.sh"
BATCH_MAX = 500
_POLL_S = 0.1
_STAMPS = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
_PLACES = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    topic: str | None
    topic_missing: bool = False  # it did not exist a moment ago
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
        self._wait = TopicWait(self._consumer, topic=plan.topic, pattern=plan.pattern)
        self._last = time.monotonic()  # when a record came, or it began

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        try:
            if self._begin():
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

    def _begin(self) -> bool:
        """False if it was stopped before the topic existed."""
        plan = self._plan
        if plan.topic is None:
            self._positions.subscribe(["^" + str(plan.pattern).lstrip("^")])
            return True
        count = self._wait.until_there(plan.topic_missing, self._goes_on)
        if not count:
            if self._stopped_by:
                return False
            raise ToolError(f"Topic {plan.topic} did not exist for {plan.timeout_ms} ms; nothing was read")
        self._last = time.monotonic()
        if self._wait.was_missing:
            self._positions.from_beginning.add(plan.topic)
        if plan.partition is None:
            self._positions.subscribe([plan.topic])
            return True
        if plan.partition >= count:  # it would be waited for without a word
            raise ToolError(f"The broker has no partition {plan.partition} of topic {plan.topic}: it has {count}")
        at = _PLACES[plan.start] if isinstance(plan.start, str) else plan.start
        at = OFFSET_BEGINNING if self._wait.was_missing and at == OFFSET_END else at
        self._consumer.assign([TopicPartition(plan.topic, plan.partition, at)])
        return True

    def _loop(self) -> None:
        plan = self._plan
        while self._goes_on():
            left = BATCH_MAX if plan.messages_max is None else min(BATCH_MAX, plan.messages_max - self._count)
            if left <= 0:
                self._positions.settle()
                return
            messages = take(self._consumer, left, _POLL_S)
            if self._print(messages):
                self._last = time.monotonic()
            elif plan.topic is None and not self._positions.assigned:
                self._wait.nothing_assigned()

    def _goes_on(self) -> bool:
        self._watch.check(f"what was printed was {self._count} messages")
        timeout_ms = self._plan.timeout_ms
        if timeout_ms is not None and timeout_ms >= 0 and time.monotonic() - self._last > timeout_ms / 1000:
            return False
        return not self._stopped_by

    def _print(self, messages: list[Any]) -> int:
        """Prints, and returns how many records there were."""
        before = self._count
        done: list[Any] = []
        for message in messages:
            try:
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
            if is_end(message):
                return
            if self._wait.heard(error):
                self._positions.from_beginning.add(message.topic())
                return
            raise ToolError(f"Error processing message, terminating consumer process: {error.str()}")
        self._watch.seen()
        try:
            sys.stdout.buffer.write(self._shape(_shown(message)))
        except ToolError as fault:
            if not self._plan.skip_errors:
                raise
            print(f"Error processing message, skipping this message: {fault}", file=sys.stderr)
        self._count += 1

    def _stop(self, number: int, frame: object) -> None:
        self._stopped_by = number


def _shown(message: Any) -> PrintedRecord:
    kind, stamp = message.timestamp()
    return PrintedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        _STAMPS.get(kind),
        stamp,
        message.key(),
        message.value(),
        message.headers() or [],
    )
