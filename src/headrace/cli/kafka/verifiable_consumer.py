"""`kafka-verifiable-consumer.sh`: reads as a group, and says what it got, was given, gave up and committed."""

import signal
from typing import TYPE_CHECKING, Any

from headrace.cli.kafka import tool
from headrace.cli.kafka.consuming import close, take
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, print_event, require

if TYPE_CHECKING:
    from headrace.client.offsets import PartitionName

NAME = "kafka-verifiable-consumer.sh"
ABOUT = (
    "This tool consumes messages from a specific topic and emits consumer events (e.g. group rebalances, received "
    "messages, and offsets committed) as JSON objects to STDOUT."
)
_RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
OPTIONS = (
    Option(
        name="bootstrap-server",
        also=("broker-list",),
        value="HOST1:PORT1[,HOST2:PORT2[...]]",
        help="REQUIRED: The brokers.",
    ),
    Option(name="topic", value="TOPIC", help="REQUIRED: The topic to read."),
    Option(name="group-protocol", value="GROUP-PROTOCOL", default="classic", help="classic or consumer."),
    Option(name="group-remote-assignor", value="GROUP-REMOTE-ASSIGNOR", help="The broker's assignor, with consumer."),
    Option(name="group-id", value="GROUP-ID", help="REQUIRED: The group."),
    Option(name="group-instance-id", value="GROUP-INSTANCE-ID", help="A name that the member keeps over restarts."),
    Option(name="max-messages", value="MAX-MESSAGES", kind=int, default=-1, help="How many; -1: until it is stopped."),
    Option(
        name="session-timeout", value="TIMEOUT-MS", kind=int, help="When a silent member is given up; classic only."
    ),
    Option(name="verbose", help="A line for each record, too."),
    Option(name="enable-autocommit", help="Commit from time to time, not after each batch."),
    Option(name="reset-policy", value="RESET-POLICY", default="earliest", help="earliest, latest or none."),
    Option(name="assignment-strategy", value="ASSIGNMENT-STRATEGY", default=_RANGE, help="The assignor; classic only."),
    Option(name="consumer.config", also=("command-config",), value="CONFIG-FILE", help="A file of settings."),
)
_BATCH_MAX = 500
_POLL_S = 0.1


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT, usage_exit=0)
    require(given, "bootstrap-server", "topic", "group-id")
    from headrace.client.greeting import greet
    from headrace.client.properties import load

    properties = load(given.one("consumer.config")) if given.has("consumer.config") else {}
    missing = greet(given.one("bootstrap-server"), properties, given.one("topic"))
    return _Reading(given, consumer_properties(given, properties)).run(missing)


def consumer_properties(given: GivenOptions, properties: dict[str, str]) -> dict[str, str]:
    protocol = given.one("group-protocol").lower()
    merged = {
        **properties,
        "group.protocol": protocol,
        "group.id": given.one("group-id"),
        "bootstrap.servers": given.one("bootstrap-server"),
        "enable.auto.commit": "true" if given.has("enable-autocommit") else "false",
        # librdkafka has no such policy by that name.
        "auto.offset.reset": "error" if given.one("reset-policy") == "none" else given.one("reset-policy"),
    }
    optional = {"group.instance.id": "group-instance-id"}
    if protocol == "consumer":
        optional["group.remote.assignor"] = "group-remote-assignor"
    else:
        merged["partition.assignment.strategy"] = given.one("assignment-strategy")
        optional["session.timeout.ms"] = "session-timeout"
    return merged | {key: str(given.one(name)) for key, name in optional.items() if given.one(name) is not None}


class _Reading:
    def __init__(self, given: GivenOptions, properties: dict[str, str]) -> None:
        from confluent_kafka import Consumer

        from headrace.cli.kafka import group_positions
        from headrace.cli.kafka.broker_watch import BrokerWatch
        from headrace.cli.kafka.topic_wait import TopicWait
        from headrace.client.librdkafka import consumer_settings, make_client

        self._given = given
        self._watch = BrokerWatch(properties)
        settings = consumer_settings(properties) | group_positions.SETTINGS
        settings |= {"error_cb": self._watch.on_error, "on_commit": self._committed}
        self._consumer = make_client(NAME, Consumer, settings)
        self._positions = group_positions.GroupPositions(self._consumer, settings)
        self._wait = TopicWait(self._consumer, topic=given.one("topic"))
        self._commits = not given.has("enable-autocommit")
        self._count = 0
        self._unanswered = 0  # commits that are on their way
        self._stopped = False

    def run(self, topic_missing: bool) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        print_event("startup_complete")
        try:
            if self._wait.until_there(topic_missing, self._goes_on):
                self._read()
        finally:
            if self._stopped:
                print_event("shutdown_requested")
            close(self._consumer)
            print_event("shutdown_complete")
        return 0

    def _goes_on(self) -> bool:
        self._watch.check(f"{self._count} records were read")
        return not self._stopped

    def _read(self) -> None:
        topic, wanted = self._given.one("topic"), self._given.one("max-messages")
        if self._wait.was_missing:
            self._positions.from_beginning.add(topic)
        self._positions.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        while self._goes_on() and (wanted < 0 or self._count < wanted):
            room = _BATCH_MAX if wanted < 0 else min(_BATCH_MAX, wanted - self._count)
            self._take(take(self._consumer, room, _POLL_S))
        self._await_commits()

    def _take(self, messages: list[Any]) -> None:
        from headrace.cli.kafka.group_positions import is_end

        by_place: dict[PartitionName, list[Any]] = {}
        for message in messages:
            if message.error() is not None:
                if is_end(message) or message.error().retriable() or self._wait.heard(message.error()):
                    continue
                raise ToolError(f"{NAME}: {message.error().str()}")
            by_place.setdefault((message.topic(), message.partition()), []).append(message)
        if by_place:
            self._watch.seen()
            self._tell(by_place)
        self._positions.shown(messages)

    def _tell(self, by_place: "dict[PartitionName, list[Any]]") -> None:
        summaries = []
        for (topic, partition), records in by_place.items():
            span = {"minOffset": records[0].offset(), "maxOffset": records[-1].offset()}
            summaries.append({"topic": topic, "partition": partition, "count": len(records), **span})
            if self._given.has("verbose"):
                for each in records:
                    where = {"topic": topic, "partition": partition, "offset": each.offset()}
                    print_event("record_data", key=_text(each.key()), value=_text(each.value()), **where)
            self._count += len(records)
        print_event("records_consumed", count=sum(map(len, by_place.values())), partitions=summaries)
        if self._commits:
            self._commit({place: records[-1].offset() + 1 for place, records in by_place.items()})

    def _commit(self, ends: "dict[PartitionName, int]") -> None:
        """Commits in the background: a broker that went away must not hold up the end of the tool."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
        self._consumer.commit(offsets=places, asynchronous=True)
        self._unanswered += 1

    def _committed(self, error: Any, places: list[Any]) -> None:
        if not self._commits:
            return
        self._unanswered -= 1
        offsets = [{"topic": each.topic, "partition": each.partition, "offset": each.offset} for each in places]
        failure = {} if error is None else {"error": error.str()}
        print_event("offsets_committed", offsets=offsets, **failure, success=error is None)

    def _await_commits(self) -> None:
        self._consumer.pause(self._consumer.assignment())
        while self._unanswered > 0:
            self._consumer.poll(_POLL_S)
            self._watch.check(f"{self._unanswered} commits were not answered")

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        print_event("partitions_assigned", partitions=_places(partitions))

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        print_event("partitions_revoked", partitions=_places(partitions))

    def _stop(self, number: int, frame: object) -> None:
        self._stopped = True


def _places(partitions: list[Any]) -> list[dict[str, object]]:
    return [{"topic": each.topic, "partition": each.partition} for each in partitions]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


if __name__ == "__main__":
    main()
