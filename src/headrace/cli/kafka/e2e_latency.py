"""`kafka-e2e-latency.sh`: how long a record takes from being sent to being read, one at a time."""

import random
import time
from typing import Any

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, UsageError, require
from headrace.protocol.api_keys import CREATE_TOPICS

NAME = "kafka-e2e-latency.sh"
ABOUT = "This tool measures end-to-end latency in Kafka by sending messages and timing their reception."
OPTIONS = (
    Option(name="bootstrap-server", value="bootstrap-server", help="REQUIRED: The brokers, HOST1:PORT1,HOST2:PORT2."),
    Option(name="topic", value="topic-name", help="REQUIRED: The topic to use; it is made if there is none."),
    Option(name="num-records", value="count", kind=int, help="REQUIRED: How many records to send."),
    Option(name="producer-acks", value="producer-acks", help="REQUIRED: 1 or all."),
    Option(name="record-size", value="bytes", kind=int, help="REQUIRED: Bytes of a value."),
    Option(name="record-key-size", value="bytes", kind=int, default=0, help="Bytes of a key."),
    Option(name="record-header-key-size", value="bytes", kind=int, default=0, help="Bytes of a header's name."),
    Option(name="record-header-size", value="bytes", kind=int, default=0, help="Bytes of a header's value; -1: null."),
    Option(name="num-headers", value="count", kind=int, default=0, help="How many headers."),
    Option(name="command-config", value="config-file", help="A file of settings for the clients."),
)
REQUIRED = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
_WAIT_S_MAX = 60.0
_PROGRESS_EVERY = 1000
_TIMEOUT_MS = 30_000


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, named(args), ABOUT)
    _check(given)

    properties = tool.client_properties(given)
    _Latency(given, properties).run()
    return 0


def named(args: list[str]) -> list[str]:
    """The older form, five or six words without names, as options."""
    if not args or any(arg.startswith("--") for arg in args):
        return args
    if len(args) not in (5, 6):
        raise UsageError(
            f"Invalid number of arguments. Expected 5 or 6 positional arguments, but got {len(args)}. Usage: "
            "bootstrap-server topic num-records producer-acks record-size [optional] command-config"
        )
    return [
        word for name, value in zip((*REQUIRED, "command-config"), args, strict=False) for word in (f"--{name}", value)
    ]


def _check(given: GivenOptions) -> None:
    require(given, *REQUIRED)
    if given.one("producer-acks") not in ("1", "all"):
        raise UsageError(
            "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. Please use "
            "'1' or 'all'."
        )
    if given.one("num-records") <= 0:
        raise UsageError("Value for --num-records must be a positive integer.")
    for name in ("record-size", "record-key-size", "record-header-key-size", "num-headers"):
        if given.one(name) < 0:
            raise UsageError(f"Value for --{name} must be a non-negative integer.")
    if given.one("record-header-size") < -1:
        raise UsageError("Value for --record-header-size must be a non-negative integer or -1 for null header value.")


class _Latency:
    def __init__(self, given: GivenOptions, properties: dict[str, str]) -> None:
        self._given = given
        self._topic: str = given.one("topic")
        self._properties = {**properties, "bootstrap.servers": given.one("bootstrap-server")}
        self._chance = random.Random(0)

    def run(self) -> None:
        ends = self._prepare()
        from confluent_kafka import Consumer, Producer, TopicPartition

        from headrace.cli.kafka.consuming import close
        from headrace.cli.kafka.producing import ready
        from headrace.client.librdkafka import consumer_settings, make_client, producer_settings

        consumer = make_client(
            NAME,
            Consumer,
            consumer_settings(
                {
                    **self._properties,
                    "group.id": f"test-group-{time.time_ns() // 1_000_000}",
                    "enable.auto.commit": "false",
                    "auto.offset.reset": "latest",
                    "fetch.max.wait.ms": "100",
                    "enable.partition.eof": "true",
                }
            ),
        )
        acks = self._given.one("producer-acks")
        producer = make_client(NAME, Producer, producer_settings({**self._properties, "linger.ms": "0", "acks": acks}))
        try:
            consumer.assign([TopicPartition(self._topic, number, end) for number, end in ends.items()])
            ready(producer, self._topic)
            self._await_end(consumer, set(ends))
            self._measure(consumer, producer)
        finally:
            close(consumer)

    def _prepare(self) -> dict[int, int]:
        """Where each of the topic's partitions ends; a topic that is not there is made.

        Asked here, since librdkafka, asked to begin at the end, tries half a second later if it is not connected yet.
        """
        from headrace.client.cluster import ClusterClient
        from headrace.client.errors import check
        from headrace.client.offsets import LATEST, offsets_at

        with ClusterClient(self._given.one("bootstrap-server"), self._properties) as cluster:
            (found,) = cluster.metadata([self._topic]).topics
            if not found.error_code:
                places = {(self._topic, each.partition_index): LATEST for each in found.partitions}
                ends = offsets_at(cluster, places)
                for each in ends.values():
                    if each.error is not None:
                        raise each.error
                return {number: each.offset for (_, number), each in ends.items()}
            print(
                f'Topic "{self._topic}" does not exist. Will create topic with 1 partition(s) and replication '
                "factor = 1"
            )
            topic = {
                "name": self._topic,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            body = {"topics": [topic], "timeout": _TIMEOUT_MS, "validate_only": False}
            (made,) = cluster.controller().call(CREATE_TOPICS, body).topics
            check(made.error_code, made.error_message)
            return {0: 0}

    def _await_end(self, consumer: Any, waiting: set[int]) -> None:
        """Returns when the reader stands at the end of every partition, so that nothing sent from now on is missed."""
        from confluent_kafka import KafkaError

        deadline = time.monotonic() + _WAIT_S_MAX
        while waiting:
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            if message is None:
                raise ToolError(f"The partitions of {self._topic} could not be read within {_WAIT_S_MAX:g} s")
            if message.error() is not None and message.error().code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())

    def _measure(self, consumer: Any, producer: Any) -> None:
        count = self._given.one("num-records")
        total_ns = 0
        latencies = []
        for number in range(count):
            key, value, headers = self._record()
            begin = time.perf_counter_ns()
            self._send(producer, key, value, headers)
            found = self._receive(consumer)
            elapsed = time.perf_counter_ns() - begin
            self._check_same(found, key, value, headers)
            if number % _PROGRESS_EVERY == 0:
                print(f"{number}\t{elapsed / 1e6}", flush=True)
            total_ns += elapsed
            latencies.append(elapsed // 1_000_000)
        latencies.sort()
        shares = [latencies[int(count * share)] for share in (0.5, 0.99, 0.999)]
        print(f"Avg latency: {total_ns / count / 1e6:.4f} ms")
        print(f"Percentiles: 50th = {shares[0]}, 99th = {shares[1]}, 99.9th = {shares[2]}")

    def _record(self) -> tuple[bytes | None, bytes, list[tuple[str, bytes | None]]]:
        given = self._given
        key = self._bytes(given.one("record-key-size"))
        size = given.one("record-header-size")
        headers: list[tuple[str, bytes | None]] = [
            (
                self._bytes(given.one("record-header-key-size")).decode(),
                None if size < 0 else self._bytes(size),
            )
            for _ in range(given.one("num-headers"))
        ]
        return key, self._bytes(given.one("record-size")), headers

    def _bytes(self, size: int) -> bytes:
        return bytes([65 + self._chance.randrange(26)]) * size

    def _send(self, producer: Any, key: bytes | None, value: bytes, headers: list[tuple[str, bytes | None]]) -> None:
        failed: list[Any] = []
        producer.produce(
            self._topic, value, key, headers=headers or None, on_delivery=lambda error, _: failed.append(error)
        )
        while not failed:
            if producer.poll(_WAIT_S_MAX) == 0:
                raise ToolError(f"A record was not acknowledged within {_WAIT_S_MAX:g} s")
        if failed[0] is not None:
            raise ToolError(f"A record was not taken: {failed[0].str()}")

    def _receive(self, consumer: Any) -> Any:
        from confluent_kafka import KafkaError

        deadline = time.monotonic() + _WAIT_S_MAX
        while True:
            found = consumer.poll(max(0.0, deadline - time.monotonic()))
            if found is None:
                timeout = int(_WAIT_S_MAX * 1000)
                raise ToolError(f"poll() timed out before finding a result (timeout:[{timeout}ms])")
            if found.error() is None:
                return found
            if found.error().code() != KafkaError._PARTITION_EOF:
                raise ToolError(found.error().str())

    def _check_same(self, found: Any, key: bytes | None, value: bytes, headers: list[tuple[str, bytes | None]]) -> None:
        for what, sent, came in (
            ("value", value, found.value()),
            ("key", key, found.key() or b""),
            ("headers", headers, found.headers() or []),
        ):
            if sent != came:
                raise ToolError(f"The message {what} read [{came!r}] did not match the message {what} sent [{sent!r}]")


if __name__ == "__main__":
    main()
