"""`kafka-consumer-perf-test.sh`: how fast records are read."""

import random
import re
import time
from datetime import datetime
from typing import Any

from headrace.cli.kafka import tool
from headrace.cli.kafka.consuming import close, take
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, UsageError, require

NAME = "kafka-consumer-perf-test.sh"
ABOUT = "This tool is used to verify the consumer performance."
OPTIONS = (
    Option(name="bootstrap-server", also=("broker-list",), value="server to connect to", help="REQUIRED: The brokers."),
    Option(name="topic", value="topic", help="The topic to read."),
    Option(name="include", value="Java regex (String)", help="Which topics to read, as a regular expression."),
    Option(name="group", value="gid", help="The group to read as; one of its own, if it is not given."),
    Option(name="fetch-size", value="size", kind=int, default=1 << 20, help="Bytes of one partition in one answer."),
    Option(name="command-property", value="prop1=val1", help="A setting of the consumer; may stand many times."),
    Option(name="from-latest", help="Begin at the end, if the group has no offsets yet, not with the oldest record."),
    Option(name="socket-buffer-size", value="size", kind=int, default=2 << 20, help="Bytes of the receive buffer."),
    Option(name="consumer.config", also=("command-config",), value="config file", help="A file of settings."),
    Option(name="print-metrics", help="Print librdkafka's own numbers at the end."),
    Option(name="show-detailed-stats", help="Print a line for each --reporting-interval."),
    Option(
        name="timeout",
        value="milliseconds",
        kind=int,
        value_optional=True,
        default=10_000,
        help="End after this long without a record.",
    ),
    Option(name="messages", also=("num-records",), value="count", kind=int, help="REQUIRED: How many records to read."),
    Option(name="reporting-interval", value="interval_ms", kind=int, default=5000, help="How often to print progress."),
    Option(name="date-format", value="date format", default="yyyy-MM-dd HH:mm:ss:SSS", help="How times are printed."),
    Option(name="hide-header", help="Leave out the line of titles."),
    Option(name="threads", value="count", kind=int, help="Accepted as older versions did; one thread reads."),
)
_BATCH_MAX = 10_000
_POLL_S = 0.1
_MB = 1024 * 1024
# By default librdkafka pauses for a second when it is ahead of its reader; that would be what is measured.
_EAGER = {"fetch.queue.backoff.ms": 2, "queued.min.messages": 1_000_000}
# SimpleDateFormat's letters, as far as a time has them.
_DATE_PARTS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "hh": "%I",
    "mm": "%M",
    "ss": "%S",
    "a": "%p",
}


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    require(given, "bootstrap-server")
    if given.has("topic") == given.has("include"):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if not given.has("messages"):
        raise UsageError("Exactly one of the following arguments is required: [messages], [num-records]")
    if given.one("reporting-interval") <= 0:
        raise UsageError("Reporting interval must be greater than 0.")
    from headrace.client.greeting import greet
    from headrace.client.properties import gathered

    properties = gathered(given.one("consumer.config"), given.all("command-property"))
    greet(given.one("bootstrap-server"), properties)
    properties.setdefault("client.id", "perf-consumer-client")
    properties |= {
        "bootstrap.servers": given.one("bootstrap-server"),
        "group.id": given.one("group") or f"perf-consumer-{random.randrange(100_000)}",
        "receive.buffer.bytes": str(given.one("socket-buffer-size")),
        "max.partition.fetch.bytes": str(given.one("fetch-size")),
        "auto.offset.reset": "latest" if given.has("from-latest") else "earliest",
        "check.crcs": "false",
    }
    return _Reading(given, properties).run()


def shown_time(ms: int, pattern: str) -> str:
    """A time in the pattern of Java's SimpleDateFormat."""
    when = datetime.fromtimestamp(ms / 1000)
    parts = re.findall(r"SSS|" + "|".join(_DATE_PARTS) + r"|'[^']*'|.", pattern)
    shown = []
    for part in parts:
        if part == "SSS":
            shown.append(f"{ms % 1000:03d}")
        elif part in _DATE_PARTS:
            shown.append(when.strftime(_DATE_PARTS[part]))
        else:
            shown.append(part.strip("'"))
    return "".join(shown)


class _Reading:
    def __init__(self, given: GivenOptions, properties: dict[str, str]) -> None:
        from confluent_kafka import Consumer

        from headrace.cli.kafka import group_positions
        from headrace.cli.kafka.broker_watch import BrokerWatch
        from headrace.cli.kafka.client_metrics import ClientMetrics
        from headrace.cli.kafka.topic_wait import TopicWait
        from headrace.client.librdkafka import consumer_settings, make_client

        self._given = given
        self._watch = BrokerWatch(properties)
        self._metrics = ClientMetrics() if given.has("print-metrics") else None
        settings = _EAGER | consumer_settings(properties) | group_positions.SETTINGS
        settings["error_cb"] = self._watch.on_error
        if self._metrics is not None:
            settings |= self._metrics.settings()
        self._consumer = make_client(NAME, Consumer, settings)
        self._positions = group_positions.GroupPositions(self._consumer, settings)
        self._wait = TopicWait(self._consumer, topic=given.one("topic"), pattern=given.one("include"))
        self._records = self._bytes = 0
        self._joining_since: int | None = _ms()
        self._joined_ms = self._joined_ms_since_line = 0

    def run(self) -> int:
        given = self._given
        detailed = given.has("show-detailed-stats")
        if not given.has("hide-header"):
            first = "time, threadId" if detailed else "start.time, end.time"
            print(
                f"{first}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
                "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec",
                flush=True,
            )
        begin = _ms()
        try:
            self._read(detailed)
        finally:
            end = _ms()
            close(self._consumer)
        if not detailed:
            print(self._total(begin, end))
        if self._metrics is not None:
            print("\n".join(self._metrics.lines()))
        return 0

    def _read(self, detailed: bool) -> None:
        given = self._given
        wanted, timeout_ms = given.one("messages"), given.one("timeout")
        topics = [given.one("topic") or "^" + given.one("include").lstrip("^")]
        self._positions.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked)
        last = line_at = _ms()
        at_line = (0, 0)
        while self._records < wanted and _ms() - last <= timeout_ms:
            messages = take(self._consumer, min(_BATCH_MAX, wanted - self._records), _POLL_S)
            now = _ms()
            if self._count(messages):
                last = now
                self._watch.seen()
            self._watch.check(f"{self._records} records were read")
            if messages and now - line_at >= given.one("reporting-interval"):
                if detailed:
                    print(self._progress(line_at, now, at_line), flush=True)
                line_at, at_line, self._joined_ms_since_line = now, (self._bytes, self._records), 0
        if self._records < wanted:
            print(
                f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) "
                "exceeded. You can use the --timeout option to increase the timeout."
            )

    def _count(self, messages: list[Any]) -> int:
        from headrace.cli.kafka.group_positions import is_end

        before = self._records
        for message in messages:
            error = message.error()
            if error is not None:
                if is_end(message) or error.retriable() or self._wait.heard(error):
                    continue
                raise ToolError(f"{NAME}: {error.str()}")
            self._records += 1
            self._bytes += len(message.key() or b"") + len(message)
        self._positions.shown(messages)
        return self._records - before

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        if self._joining_since is not None:
            spent = _ms() - self._joining_since
            self._joined_ms += spent
            self._joined_ms_since_line += spent
            self._joining_since = None

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self._joining_since = _ms()

    def _total(self, begin: int, end: int) -> str:
        pattern = self._given.one("date-format")
        elapsed_s = max(1, end - begin) / 1000
        fetch_ms = end - begin - self._joined_ms
        fetch_s = max(1, fetch_ms) / 1000
        mb = self._bytes / _MB
        return (
            f"{shown_time(begin, pattern)}, {shown_time(end, pattern)}, {mb:.4f}, {mb / elapsed_s:.4f}, "
            f"{self._records}, {self._records / elapsed_s:.4f}, {self._joined_ms}, {fetch_ms}, {mb / fetch_s:.4f}, "
            f"{self._records / fetch_s:.4f}"
        )

    def _progress(self, begin: int, now: int, before: tuple[int, int]) -> str:
        elapsed = max(1, now - begin)
        mb, records = (self._bytes - before[0]) / _MB, self._records - before[1]
        joined = self._joined_ms_since_line
        fetch_ms = elapsed - joined
        rates = (0.0, 0.0) if fetch_ms <= 0 else (1000.0 * mb / fetch_ms, 1000.0 * records / fetch_ms)
        return (
            f"{shown_time(now, self._given.one('date-format'))}, 0, {self._bytes / _MB:.4f}, "
            f"{1000.0 * mb / elapsed:.4f}, {self._records}, {1000.0 * records / elapsed:.4f}, {joined}, {fetch_ms}, "
            f"{rates[0]:.4f}, {rates[1]:.4f}"
        )


def _ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
