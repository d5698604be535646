"""`kafka-verifiable-producer.sh`: writes numbers, and says of each whether it was acknowledged."""

import signal
import time
from typing import Any

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import UsageError, print_event, require

NAME = "kafka-verifiable-producer.sh"
ABOUT = (
    'This tool produces increasing integers to the specified topic and prints JSON metadata to stdout on each "send" '
    "request, making externally visible which messages have been acked and which have not."
)
OPTIONS = (
    Option(name="topic", value="TOPIC", help="REQUIRED: The topic to write to."),
    Option(
        name="bootstrap-server",
        also=("broker-list",),
        value="HOST1:PORT1[,HOST2:PORT2[...]]",
        help="REQUIRED: The brokers.",
    ),
    Option(name="max-messages", value="MAX-MESSAGES", kind=int, default=-1, help="How many; -1: until it is stopped."),
    Option(
        name="throughput",
        value="THROUGHPUT",
        kind=int,
        default=-1,
        help="Records per second, about; -1: as many as possible.",
    ),
    Option(name="acks", value="ACKS", kind=int, default=-1, help="0, 1 or -1."),
    Option(name="producer.config", also=("command-config",), value="CONFIG-FILE", help="A file of settings."),
    Option(
        name="message-create-time",
        value="CREATE-TIME",
        kind=int,
        default=-1,
        help="The first record's timestamp in ms.",
    ),
    Option(name="value-prefix", value="VALUE-PREFIX", kind=int, help="A number in front of each value, and a dot."),
    Option(name="repeating-keys", value="REPEATING-KEYS", kind=int, help="Keys 0, 1, … up to this, then again from 0."),
)
_POLL_S = 0.1
_DELIVERY_MS_MAX = 30_000


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT, usage_exit=0)
    require(given, "topic", "bootstrap-server")
    if given.one("acks") not in (0, 1, -1):
        raise UsageError(f"argument --acks: invalid choice: '{given.one('acks')}' (choose from {{0,1,-1}})")
    if given.has("repeating-keys") and given.one("repeating-keys") <= 0:
        raise UsageError("--repeating-keys should be greater than zero.")
    from headrace.client.greeting import greet
    from headrace.client.properties import load

    properties = {
        "bootstrap.servers": given.one("bootstrap-server"),
        "acks": str(given.one("acks")),
        "retries": "0",  # each failure is to be seen
        "delivery.timeout.ms": str(_DELIVERY_MS_MAX),
        **(load(given.one("producer.config")) if given.has("producer.config") else {}),
    }
    greet(properties["bootstrap.servers"], properties)
    return _Counting(given, properties).run()


class _Counting:
    def __init__(self, given: GivenOptions, properties: dict[str, str]) -> None:
        from confluent_kafka import Producer

        from headrace.client.librdkafka import make_client, producer_settings

        self._given = given
        self._topic: str = given.one("topic")
        self._producer = make_client(NAME, Producer, producer_settings(properties))
        self._sent = self._acked = 0
        self._stopped = False
        self._begin = time.monotonic()
        self._created_ms: int = given.one("message-create-time")

    def run(self) -> int:
        from headrace.cli.kafka.pacing import SendingPace

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        print_event("startup_complete")
        pace = SendingPace(self._given.one("throughput"))
        wanted = self._given.one("max-messages")
        while not self._stopped and (wanted < 0 or self._sent < wanted):
            self._send(self._sent)
            self._producer.poll(0)
            self._wait(pace.wait_after(self._sent))
        while self._producer.flush(_POLL_S):
            pass  # librdkafka gives each record up in time
        print_event("shutdown_complete")
        seconds = max(0.001, time.monotonic() - self._begin)
        print_event(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._given.one("throughput"),
            avg_throughput=self._acked / seconds,
        )
        return 0 if self._acked == self._sent or self._given.one("acks") == 0 else 1

    def _send(self, number: int) -> None:
        prefix, keys = self._given.one("value-prefix"), self._given.one("repeating-keys")
        value = str(number) if prefix is None else f"{prefix}.{number}"
        key = None if keys is None else str(number % keys)
        stamp_ms = max(0, self._created_ms)  # 0: now
        if self._created_ms >= 0:
            self._created_ms += int((time.monotonic() - self._begin) * 1000)
        self._sent += 1
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._delivered, timestamp=stamp_ms)
                return
            except BufferError:
                self._producer.poll(_POLL_S)

    def _wait(self, wait_s: float) -> None:
        end = time.monotonic() + wait_s
        while not self._stopped and (left := end - time.monotonic()) > 0:
            self._producer.poll(min(left, _POLL_S))

    def _delivered(self, error: Any, message: Any) -> None:
        key, value = message.key(), message.value()
        what = {"key": None if key is None else key.decode(), "value": value.decode(), "topic": self._topic}
        if error is not None:
            print_event("producer_send_error", **what, exception=f"class {error.name()}", message=error.str())
            return
        self._acked += 1
        print_event("producer_send_success", **what, partition=message.partition(), offset=message.offset())

    def _stop(self, number: int, frame: object) -> None:
        self._stopped = True


if __name__ == "__main__":
    main()
