"""`kafka-console-consumer.sh`: prints the records of a topic."""

import random

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, UsageError
from headrace.cli.kafka.zookeeper import OPTION as ZOOKEEPER
from headrace.cli.kafka.zookeeper import bootstrap_of

NAME = "kafka-console-consumer.sh"
ABOUT = "This tool helps to read data from Kafka topics and outputs it to standard output."
_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_FORMATTER_PROPERTIES = """\
How records are printed, key=value; may stand many times:
 print.timestamp=true|false
 print.key=true|false
 print.offset=true|false
 print.epoch=true|false
 print.partition=true|false
 print.headers=true|false
 print.value=true|false
 key.separator=<key.separator>
 line.separator=<line.separator>
 headers.separator=<headers.separator>
 null.literal=<null.literal>
 key.deserializer=<key.deserializer>
 value.deserializer=<value.deserializer>
 headers.deserializer=<headers.deserializer>"""
OPTIONS = (
    Option(name="topic", value="topic", help="The topic to read."),
    Option(
        name="include",
        also=("whitelist",),
        value="Java regex (String)",
        help="Which topics to read, as a regular expression.",
    ),
    Option(
        name="partition",
        value="partition",
        kind=int,
        help="The one partition to read; from its end, unless --offset says otherwise.",
    ),
    Option(
        name="offset",
        value="consume offset",
        default="latest",
        help="Where to begin: a number, `earliest` or `latest`.",
    ),
    Option(
        name="bootstrap-server",
        also=("broker-list",),
        value="server to connect to",
        help="REQUIRED: The brokers, host:port each.",
    ),
    ZOOKEEPER,
    Option(
        name="consumer-property",
        also=("command-property",),
        value="consumer_prop",
        help="A setting of the consumer, key=value; may stand many times.",
    ),
    Option(
        name="consumer.config",
        also=("command-config",),
        value="config file",
        help="A file of settings; --consumer-property wins over it.",
    ),
    Option(
        name="formatter",
        value="class",
        default=_FORMATTER,
        help="How records are printed: the name of one of Kafka's own formatters.",
    ),
    Option(name="property", also=("formatter-property",), value="prop", help=_FORMATTER_PROPERTIES),
    Option(name="formatter-config", value="config file", help="A file of such properties; --property wins over it."),
    Option(name="from-beginning", help="Begin with the oldest record, if the group has no offset of its own yet."),
    Option(name="max-messages", value="num_messages", kind=int, help="End after so many records."),
    Option(name="timeout-ms", value="timeout_ms", kind=int, help="End after this long without a record."),
    Option(name="skip-message-on-error", help="Go on after a record that cannot be printed."),
    Option(
        name="key-deserializer",
        value="deserializer for keys",
        help="How keys are read: the name of one of Kafka's own deserializers.",
    ),
    Option(name="value-deserializer", value="deserializer for values", help="The same for values."),
    Option(name="enable-systest-events", help="Say when the consumer has shut down."),
    Option(
        name="isolation-level",
        value="",
        default="read_uncommitted",
        help="read_committed leaves out what belongs to open or aborted transactions.",
    ),
    Option(name="group", value="consumer group id", help="The group to read as; one of its own, if it is not given."),
    Option(name="new-consumer", help="Accepted as older versions did; there is no other."),
)


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    _check(given)
    bootstrap = bootstrap_of(given)
    from headrace.cli.kafka.message_formats import format_named
    from headrace.client.greeting import greet
    from headrace.client.properties import gathered, load, pairs

    formatting = load(given.one("formatter-config")) if given.has("formatter-config") else {}
    for name in ("key-deserializer", "value-deserializer"):
        if given.one(name):
            formatting[name.replace("-", ".")] = given.one(name)
    shape = format_named(given.one("formatter"), formatting | pairs(given.all("property")))
    properties = gathered(given.one("consumer.config"), given.all("consumer-property"))
    start = start_offset(given)
    settings = consumer_properties(given, properties, bootstrap)
    missing = greet(bootstrap, properties, given.one("topic"))
    from headrace.cli.kafka.console_reading import ConsoleReading, Plan

    plan = Plan(
        topic=given.one("topic"),
        topic_missing=missing,
        pattern=given.one("include"),
        partition=given.one("partition"),
        start=start,
        messages_max=given.one("max-messages"),
        timeout_ms=given.one("timeout-ms"),
        skip_errors=given.has("skip-message-on-error"),
        systest_events=given.has("enable-systest-events"),
    )
    return ConsoleReading(plan, shape, settings).run()


def _check(given: GivenOptions) -> None:
    if given.has("topic") == given.has("include"):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if given.has("partition"):
        if not given.has("topic"):
            raise UsageError("The topic is required when partition is specified.")
        if given.has("from-beginning") and given.has("offset"):
            raise UsageError("Options from-beginning and offset cannot be specified together.")
    elif given.has("offset"):
        raise UsageError("The partition is required when offset is specified.")
    if not given.has("bootstrap-server") and not given.has("zookeeper"):
        raise UsageError('Missing required argument "[bootstrap-server]"')


def start_offset(given: GivenOptions) -> str | int:
    """`earliest`, `latest` or a number."""
    if not given.has("offset"):
        return "earliest" if given.has("from-beginning") else "latest"
    text = str(given.one("offset"))
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if not text.isdigit():
        raise UsageError(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return int(text)


def consumer_properties(given: GivenOptions, properties: dict[str, str], bootstrap: str) -> dict[str, str]:
    merged = dict(properties)
    reset = merged.get("auto.offset.reset")
    if reset is None:
        merged["auto.offset.reset"] = "earliest" if given.has("from-beginning") else "latest"
    elif given.has("from-beginning") and reset != "earliest":
        raise ToolError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    merged["bootstrap.servers"] = bootstrap
    merged.setdefault("client.id", "console-consumer")
    if given.has("isolation-level") or "isolation.level" not in merged:
        merged["isolation.level"] = given.one("isolation-level")
    groups = {name for name in (given.one("group"), properties.get("group.id")) if name is not None}
    if len(groups) > 1:
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer.config') do not match. Detected group ids: {', '.join(repr(name) for name in sorted(groups))}"
        )
    if groups and given.has("partition"):
        raise UsageError("Options group and partition cannot be specified together.")
    if groups:
        merged["group.id"] = groups.pop()
    else:
        merged["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        merged.setdefault("enable.auto.commit", "false")
    return merged


if __name__ == "__main__":
    main()
