"""The console producer's loop: reads lines, sends them, and says what became of those that were not acknowledged.

The first SIGINT or SIGTERM ends the reading; what was read is still sent. Another one gives up what is not
acknowledged by then, and says how much that is.
"""

import functools
import sys
import time
from typing import Any

from confluent_kafka import Producer

from headrace.cli.kafka import tool
from headrace.cli.kafka.broker_watch import BrokerWatch
from headrace.cli.kafka.delivery_watch import DeliveryWatch
from headrace.cli.kafka.input_lines import input_lines
from headrace.cli.kafka.line_reader import Line, LineReader
from headrace.cli.kafka.producing import ready
from headrace.cli.kafka.stop_signals import StopSignals
from headrace.cli.kafka.tool import ToolError
from headrace.client.librdkafka import make_client, producer_settings

NAME = "kafka-console-producer.sh"
_POLL_S = 0.1
_RECORDS_PER_LOOK = 100
_PATIENCE_S = 1.0  # so long the end is waited for without a word


class ConsoleSending:
    def __init__(
        self, topic: str, reader: LineReader, properties: dict[str, str], *, sync: bool, block_s_max: float
    ) -> None:
        self._topic = topic
        self._reader = reader
        self._sync = sync
        self._block_s_max = block_s_max
        self._interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._prompted = False  # the prompt is the last thing on the screen
        self._pending: dict[int, None] = {}  # numbers of the lines that are not answered yet, in order
        self._failed = 0
        wait_ms = properties["delivery.timeout.ms"]
        self._brokers = BrokerWatch({**properties, "default.api.timeout.ms": wait_ms}, self._say)
        self._watch = DeliveryWatch(topic, int(wait_ms) / 1000, self._say)
        settings = producer_settings(properties) | {"error_cb": self._brokers.on_error}
        self._producer = make_client(NAME, Producer, settings | self._watch.settings(settings))
        self._ready = False
        self._stops = StopSignals()

    def run(self) -> int:
        with self._stops:
            try:
                self._copy()
            finally:
                self._finish()
        return self._stops.exit_code or (1 if self._failed else 0)

    def _copy(self) -> None:
        lines = input_lines(sys.stdin.buffer, self._goes_on)
        number = 0
        while not self._stops.count:
            number += 1
            self._prompt(self._interactive)
            line = next(lines, None)
            if line is None:
                break
            self._prompted = False
            self._send(number, self._reader.read(line, number))
        if self._prompted:
            self._prompted = False
            print(flush=True)  # what is said from now on does not stand behind the prompt

    def _send(self, number: int, line: Line) -> None:
        if not self._ready and not self._brokers.away:  # not before the first record: without one, no topic may be made
            ready(self._producer, self._topic)
            self._ready = True
        self._pending[number] = None
        answered = functools.partial(self._answered, number)
        headers: Any = line.headers or None
        deadline = time.monotonic() + self._block_s_max
        while self._stops.count < 2:
            try:
                self._producer.produce(self._topic, line.value, line.key, headers=headers, on_delivery=answered)
                break
            except BufferError:
                if time.monotonic() > deadline:
                    raise ToolError(
                        f"No room for further records within {self._block_s_max:g} s; raise --max-memory-bytes"
                    ) from None
                self._goes_on(_POLL_S)
        if number % _RECORDS_PER_LOOK == 0:
            self._goes_on()  # a quiet input looks by itself
        self._brokers.check("nothing more is sent")
        while self._sync and not self._stops.count and self._producer.flush(_POLL_S):
            self._look()

    def _goes_on(self, wait_s: float = 0.0) -> bool:
        """Hears what has become of the records; False when the reading is to end."""
        self._producer.poll(wait_s)
        self._look()
        return not self._stops.count

    def _look(self) -> None:
        self._watch.look(self._producer, len(self._pending))

    def _finish(self) -> None:
        """Sends at once what waits for company, and waits for every answer. librdkafka gives each record up in time."""
        stops, began, said = self._stops.count, time.monotonic(), False
        try:
            while self._producer.flush(_POLL_S) and self._stops.count == stops:
                self._look()
                self._brokers.check(self._unanswered())
                if not said and time.monotonic() - began >= _PATIENCE_S:
                    said = True
                    self._say(f"Waiting until {_count(len(self._pending))} acknowledged; Ctrl-C gives up")
            if self._pending:
                self._say(self._unanswered())
        finally:
            if self._pending:
                self._producer.purge()
                tool.end_at_once()

    def _unanswered(self) -> str:
        first = next(iter(self._pending), 0)
        where = f"line {first}" if len(self._pending) == 1 else f"line {first} and later"
        return f"{_count(len(self._pending))} not acknowledged ({where}); send again from there once a broker answers"

    def _answered(self, number: int, error: Any, message: Any) -> None:
        self._pending.pop(number, None)
        self._watch.answered(message.partition(), acknowledged=error is None)
        if error is None:
            self._brokers.seen()
            return
        self._failed += 1
        self._say(
            f"Error when sending message to topic {message.topic()} with key: {_size(message.key())}, value: "
            f"{_size(message.value())} with error: {error.str()}"
        )

    def _prompt(self, wanted: bool) -> None:
        if wanted:
            print(">", end="", flush=True)
            self._prompted = True

    def _say(self, text: str) -> None:
        """On a line of its own, and the prompt again where there was one."""
        prompted = self._prompted
        print("\n" * prompted + text, file=sys.stderr, flush=True)
        self._prompt(prompted)


def _count(number: int) -> str:
    return "1 record is" if number == 1 else f"{number} records are"


def _size(data: bytes | None) -> str:
    return "null" if data is None else f"{len(data)} bytes"
