"""`kafka-console-producer.sh`: each line of the input becomes a record."""

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, UsageError, require

NAME = "kafka-console-producer.sh"
ABOUT = "This tool helps to read data from standard input and publish it to Kafka."
_READER = "org.apache.kafka.tools.LineMessageReader"
_READERS = (_READER, "kafka.tools.ConsoleProducer$LineMessageReader", "LineMessageReader")
_READER_PROPERTIES = """\
How lines are read, key=value; may stand many times:
 parse.key=false
 parse.headers=false
 ignore.error=false
 key.separator=\\t
 headers.delimiter=\\t
 headers.separator=,
 headers.key.separator=:
 null.marker=   what stands for null in a key, a value or a header
With parse.headers and parse.key a line is "h1:v1,h2:v2<delimiter>key<separator>value"."""
OPTIONS = (
    Option(name="topic", value="topic", help="REQUIRED: The topic to write to."),
    Option(
        name="bootstrap-server",
        also=("broker-list",),
        value="server to connect to",
        help="REQUIRED: The brokers, HOST1:PORT1,HOST2:PORT2.",
    ),
    Option(name="sync", help="Wait for each record to be acknowledged before the next line is read."),
    Option(
        name="compression-codec",
        value="compression-codec",
        value_optional=True,
        help="none, gzip, snappy, lz4 or zstd; gzip if nothing follows.",
    ),
    Option(name="batch-size", value="size", kind=int, default=16384, help="Bytes in a batch of one partition."),
    Option(name="message-send-max-retries", value="", kind=int, default=3, help="How often a send is tried again."),
    Option(name="retry-backoff-ms", value="", kind=int, default=100, help="The pause before it is tried again."),
    Option(
        name="timeout", value="timeout_ms", kind=int, default=10, help="How long a record waits for others to join."
    ),
    Option(
        name="request-required-acks",
        value="request required acks",
        default="-1",
        help="Who must have a record before it counts: 0 nobody, 1 the leader, -1 or all: all in-sync replicas.",
    ),
    Option(
        name="request-timeout-ms",
        value="request timeout ms",
        kind=int,
        default=1500,
        help="How long an acknowledgement may take.",
    ),
    Option(
        name="metadata-expiry-ms",
        value="metadata expiration interval",
        kind=int,
        default=300_000,
        help="How old knowledge about the cluster may become.",
    ),
    Option(
        name="max-block-ms",
        value="max block on send",
        kind=int,
        default=60_000,
        help="How long to wait for room when brokers are slower than the input.",
    ),
    Option(
        name="max-memory-bytes",
        value="total memory in bytes",
        kind=int,
        default=33_554_432,
        help="Memory for records that wait to be sent.",
    ),
    Option(
        name="max-partition-memory-bytes",
        value="memory in bytes per partition",
        kind=int,
        help="The older name of --batch-size.",
    ),
    Option(
        name="line-reader",
        value="reader_class",
        default=_READER,
        help="How lines become records; only this one is known.",
    ),
    Option(name="socket-buffer-size", value="size", kind=int, default=102_400, help="Bytes of the send buffer."),
    Option(name="property", also=("reader-property",), value="prop", help=_READER_PROPERTIES),
    Option(name="reader-config", value="config file", help="A file of such properties; --property wins over it."),
    Option(
        name="producer-property",
        also=("command-property",),
        value="producer_prop",
        help="A setting of the producer, key=value; may stand many times.",
    ),
    Option(
        name="producer.config",
        also=("command-config",),
        value="config file",
        help="A file of settings; --producer-property wins over it.",
    ),
)
# option: the producer's setting that it stands for
_SETTINGS = {
    "timeout": "linger.ms",
    "request-required-acks": "acks",
    "request-timeout-ms": "request.timeout.ms",
    "message-send-max-retries": "retries",
    "retry-backoff-ms": "retry.backoff.ms",
    "socket-buffer-size": "send.buffer.bytes",
    "max-memory-bytes": "buffer.memory",
    "batch-size": "batch.size",
    "max-partition-memory-bytes": "batch.size",
    "metadata-expiry-ms": "metadata.max.age.ms",
}
DELIVERY_MS_MAX = 30_000  # unless delivery.timeout.ms says otherwise


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    require(given, "topic")
    if not given.has("bootstrap-server"):
        raise UsageError('Missing required argument "[bootstrap-server]"')
    if given.one("line-reader") not in _READERS:
        raise ToolError(f"--line-reader {given.one('line-reader')}: Java classes cannot be loaded; known is {_READER}")
    from headrace.cli.kafka.line_reader import LineReader
    from headrace.client.greeting import greet
    from headrace.client.properties import gathered, load, pairs

    reader = LineReader.of(
        (load(given.one("reader-config")) if given.has("reader-config") else {}) | pairs(given.all("property"))
    )
    properties = gathered(given.one("producer.config"), given.all("producer-property"))
    greet(given.one("bootstrap-server"), properties)
    from headrace.cli.kafka.console_sending import ConsoleSending

    return ConsoleSending(
        given.one("topic"),
        reader,
        producer_properties(given, properties),
        sync=given.has("sync"),
        block_s_max=given.one("max-block-ms") / 1000,
    ).run()


def producer_properties(given: GivenOptions, properties: dict[str, str]) -> dict[str, str]:
    """What the flags say; where a flag is absent the user's own properties win over the flag's default."""
    merged = {"client.id": "console-producer", **properties}
    merged["bootstrap.servers"] = given.one("bootstrap-server")
    if given.has("compression-codec"):
        merged["compression.type"] = given.one("compression-codec") or "gzip"
    for name, setting in _SETTINGS.items():
        value = given.one(name)
        if value is not None and (given.has(name) or setting not in merged):
            merged[setting] = str(value)
    if "delivery.timeout.ms" not in merged:
        # A record may wait for others to join before it is sent at all.
        waits_ms = sum(int(merged[name]) for name in ("linger.ms", "request.timeout.ms") if merged[name].isdigit())
        merged["delivery.timeout.ms"] = str(max(DELIVERY_MS_MAX, 2 * waits_ms))
    return merged


if __name__ == "__main__":
    main()
