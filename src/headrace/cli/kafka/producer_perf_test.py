"""`kafka-producer-perf-test.sh`: how fast records are taken, and how long each takes."""

import random
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, UsageError, require

NAME = "kafka-producer-perf-test.sh"
ABOUT = (
    "This tool is used to verify the producer performance. To enable transactions, you can specify a transactional id "
    "or set a transaction duration using --transaction-duration-ms."
)
OPTIONS = (
    Option(name="bootstrap-server", value="BOOTSTRAP-SERVER", help="The brokers; wins over bootstrap.servers."),
    Option(name="topic", value="TOPIC", help="REQUIRED: The topic to write to."),
    Option(name="num-records", value="NUM-RECORDS", kind=int, help="REQUIRED: How many records to write."),
    Option(name="record-size", value="RECORD-SIZE", kind=int, help="Bytes of a record. Give this or a --payload."),
    Option(name="payload-file", value="PAYLOAD-FILE", help="A file of records, of which one is picked by chance."),
    Option(name="payload-monotonic", help="Records are the numbers 0, 1, 2, …"),
    Option(name="payload-delimiter", value="PAYLOAD-DELIMITER", default="\\n", help="What ends a record in the file."),
    Option(
        name="throughput",
        value="THROUGHPUT",
        kind=float,
        help="REQUIRED: Records per second, about; -1: as many as possible.",
    ),
    Option(
        name="producer-props",
        also=("command-property",),
        value="PROP-NAME=PROP-VALUE",
        many=True,
        help="Settings of the producer: linger.ms=10 batch.size=32768.",
    ),
    Option(name="producer.config", also=("command-config",), value="CONFIG-FILE", help="A file of settings."),
    Option(name="print-metrics", help="Print librdkafka's own numbers at the end."),
    Option(name="transactional-id", value="TRANSACTIONAL-ID", help="Write in transactions, under this id."),
    Option(
        name="transaction-duration-ms",
        value="TRANSACTION-DURATION",
        kind=int,
        help="Commit that often; 3000 unless it is given.",
    ),
    Option(
        name="warmup-records",
        value="WARMUP-RECORDS",
        kind=int,
        default=0,
        help="Records to leave out of a second summary.",
    ),
    Option(name="reporting-interval", value="INTERVAL-MS", kind=int, default=5000, help="How often to print progress."),
)
_TRANSACTION_MS = 3000
_POLL_EVERY = 64
_FLUSH_S_MAX = 130.0


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT, usage_exit=0)
    _check(given)
    from headrace.client.greeting import greet
    from headrace.client.properties import gathered

    for text in given.all("producer-props"):
        if text.count("=") != 1:
            raise UsageError(f"Invalid property: {text}")
    properties = gathered(given.one("producer.config"), given.all("producer-props"))
    properties.setdefault("client.id", "perf-producer-client")
    if given.has("bootstrap-server"):
        properties["bootstrap.servers"] = given.one("bootstrap-server")
    if "bootstrap.servers" not in properties:
        raise UsageError(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or "
            "--command-config must be specified."
        )
    every_ms = given.one("transaction-duration-ms")
    if every_ms is not None or given.has("transactional-id") or "transactional.id" in properties:
        named = given.one("transactional-id") or properties.get("transactional.id")
        properties["transactional.id"] = named or f"performance-producer-{uuid.uuid4()}"
        every_ms = every_ms or _TRANSACTION_MS
    payload = payloads(given)
    greet(properties["bootstrap.servers"], properties)
    return _Load(given, properties, payload, every_ms).run()


def _check(given: GivenOptions) -> None:
    require(given, "topic", "num-records", "throughput")
    if sum(given.has(name) for name in ("record-size", "payload-file", "payload-monotonic")) != 1:
        raise UsageError("Provide exactly one of --record-size, --payload-file or --payload-monotonic.")
    if given.one("num-records") <= 0:
        raise UsageError("--num-records should be greater than zero.")
    if given.one("warmup-records") >= given.one("num-records"):
        raise UsageError(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
    for name in ("record-size", "transaction-duration-ms", "reporting-interval"):
        if given.has(name) and given.one(name) <= 0:
            raise UsageError(f"--{name} should be greater than zero.")


def payloads(given: GivenOptions) -> Callable[[int], bytes]:
    """The payload of the record with this number."""
    if given.has("payload-monotonic"):
        return lambda number: str(number).encode()
    if given.has("record-size"):
        # As many different ones as keep a codec honest; made before the clock starts.
        chance = random.Random(0)
        letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        size = given.one("record-size")
        count = max(1, min(1024, given.one("num-records"), (64 << 20) // size))
        made = [bytes(chance.choices(letters, k=size)) for _ in range(count)]
        return lambda number: made[number % count]
    path = given.one("payload-file")
    delimiter = given.one("payload-delimiter").replace("\\n", "\n").encode()
    try:
        with open(path, "rb") as file:
            print(f"Reading payloads from: {path}")
            held = [part for part in file.read().split(delimiter) if part]
    except OSError as error:
        raise ToolError(f"{path}: File does not exist or empty file provided.") from error
    if not held:
        raise ToolError(f"{path}: File does not exist or empty file provided.")
    print(f"Number of records read: {len(held)}")
    picked = random.Random(0)
    return lambda number: picked.choice(held)


class _Load:
    def __init__(
        self, given: GivenOptions, properties: dict[str, str], payload: Callable[[int], bytes], commit_ms: int | None
    ) -> None:
        from confluent_kafka import Producer

        from headrace.cli.kafka.broker_watch import BrokerWatch
        from headrace.cli.kafka.client_metrics import ClientMetrics
        from headrace.client.librdkafka import make_client, producer_settings

        self._topic: str = given.one("topic")
        self._records: int = given.one("num-records")
        self._warmup: int = given.one("warmup-records")
        self._interval_ms: int = given.one("reporting-interval")
        self._throughput: float = given.one("throughput")
        self._payload = payload
        self._commit_ms = commit_ms
        self._metrics = ClientMetrics() if given.has("print-metrics") else None
        self._watch = BrokerWatch(properties)
        settings = producer_settings(properties) | {"error_cb": self._watch.on_error}
        settings.setdefault("queue.buffering.max.messages", 1_000_000)
        if self._metrics is not None:
            settings |= self._metrics.settings()
        self._producer = make_client(NAME, Producer, settings)
        self._failed = 0
        self._now_ms = 0

    def run(self) -> int:
        from confluent_kafka import KafkaException

        from headrace.cli.kafka.pacing import SendingPace
        from headrace.cli.kafka.send_statistics import SendStatistics

        def statistics(records: int, steady: bool) -> SendStatistics:
            return SendStatistics(records, self._interval_ms, _ms(), _say, steady=steady)

        try:
            if self._commit_ms is not None:
                self._producer.init_transactions(_FLUSH_S_MAX)
            if self._warmup:
                _say(
                    f"Warmup first {self._warmup} records. Steady state results will print after the complete test "
                    "summary."
                )
            self._whole = statistics(self._records, steady=False)
            self._steady: SendStatistics | None = None
            pace = SendingPace(self._throughput)
            begun_ms: int | None = None
            for number in range(self._records):
                if self._warmup and number == self._warmup:
                    self._steady = statistics(self._records - self._warmup, steady=True)
                    self._whole.silent = True
                if self._commit_ms is not None and begun_ms is None:
                    self._producer.begin_transaction()
                    begun_ms = _ms()
                self._send(self._payload(number), self._delivered if self._steady is None else self._delivered_steadily)
                if number % _POLL_EVERY == 0:
                    self._poll(0)
                if begun_ms is not None and self._commit_ms is not None and self._commit_ms <= _ms() - begun_ms:
                    self._producer.commit_transaction(_FLUSH_S_MAX)
                    begun_ms = None
                wait_s = pace.wait_after(number + 1)
                if wait_s:
                    self._wait(wait_s)
            if begun_ms is not None:
                self._producer.commit_transaction(_FLUSH_S_MAX)
            self._finish()
        except KafkaException as error:
            raise ToolError(f"{NAME}: {error.args[0].str()}") from error
        _say(self._whole.total_line(_ms()))
        if self._steady is not None:
            _say(self._steady.total_line(_ms()))
        if self._metrics is not None:
            self._poll(0.2)
            _say("\n".join(self._metrics.lines()))
        return 1 if self._failed else 0

    def _send(self, payload: bytes, report: Callable[[Any, Any], None]) -> None:
        while True:
            try:
                self._producer.produce(self._topic, payload, on_delivery=report)
                return
            except BufferError:
                self._poll(0.05)
                self._watch.check(f"{self._failed} records failed")

    def _poll(self, wait_s: float) -> None:
        # One reading of the clock serves all the reports of a poll.
        self._now_ms = _ms()
        self._producer.poll(wait_s)

    def _wait(self, wait_s: float) -> None:
        end = time.monotonic() + wait_s
        while (left := end - time.monotonic()) > 0:
            self._poll(min(left, 0.1))
            self._watch.check(f"{self._failed} records failed")

    def _finish(self) -> None:
        self._now_ms = _ms()
        while self._producer.flush(0.1):
            self._now_ms = _ms()
            self._watch.check(f"{len(self._producer)} records were never acknowledged")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed += 1
            print(f"{error.str()}", file=sys.stderr)
            return
        self._watch.seen()
        self._whole.record(int((message.latency() or 0) * 1000), len(message), self._now_ms)

    def _delivered_steadily(self, error: Any, message: Any) -> None:
        self._delivered(error, message)
        if error is None and self._steady is not None:
            self._steady.record(int((message.latency() or 0) * 1000), len(message), self._now_ms)


def _ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
