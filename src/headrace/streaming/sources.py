"""Topics and Delta tables as Spark streams.

A topic's rows are its parsed columns and the six metadata columns; what cannot be parsed is counted in the same pass
and left out here, and `quarantine` fetches it. Offsets that are gone already stop the query: nothing is skipped.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.streaming import extra_fields
from headrace.streaming.declarations import Static, TableStream, TopicStream
from headrace.streaming.parsing import BAD, Parser
from headrace.tables.hidden import HIDDEN_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

UNPARSED = "headrace.unparsed."
SKIPPED = "_headrace_skipped"
# So many records keep a second core busy though the topic has one partition; a small batch stays in one task.
RECORDS_PER_TASK_MAX = 250_000
# A task reads records that are there. Its consumer asks for more than that, and what it asks next (the log's ends)
# would wait behind that fetch for half a second by default: most of the time that a small task takes.
FETCH_WAIT_MS_MAX = "5"
CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


def kafka_options(topic: TopicStream, bootstrap: str, common: Mapping[str, str]) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "maxRecordsPerPartition": str(RECORDS_PER_TASK_MAX),
        "kafka.fetch.max.wait.ms": FETCH_WAIT_MS_MAX,
        **common,
        **topic.options,
    }


def raw_topic(
    spark: "SparkSession", topic: TopicStream, *, bootstrap: str, common: Mapping[str, str], starting: Mapping[str, str]
) -> "DataFrame":
    options = kafka_options(topic, bootstrap, common) | {"subscribe": topic.topic} | dict(starting)
    if topic.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(topic.max_offsets_per_trigger)
    return spark.readStream.format("kafka").options(**options).load()


def raw_range(
    spark: "SparkSession",
    topic: TopicStream,
    *,
    bootstrap: str,
    common: Mapping[str, str],
    ranges: Mapping[int, tuple[int, int]],
) -> "DataFrame":
    """The same records as a batch: of each partition the offsets from the first up to, but without, the second."""
    ranges = {partition: span for partition, span in ranges.items() if span[1] > span[0]}
    options = kafka_options(topic, bootstrap, common) | {
        "assign": json.dumps({topic.topic: list(ranges)}),
        "startingOffsets": json.dumps({topic.topic: {str(partition): span[0] for partition, span in ranges.items()}}),
        "endingOffsets": json.dumps({topic.topic: {str(partition): span[1] for partition, span in ranges.items()}}),
    }
    return spark.read.format("kafka").options(**options).load()


def parsed_topic(raw: "DataFrame", parser: Parser, observed: str) -> "DataFrame":
    """Whole records only; under the name `observed` the query reports how many there were and how many were bad."""
    from pyspark.sql import functions as F

    # What is counted is copied: the raw bytes are left out before.
    skipped = parser.skipped()
    more = [] if skipped is None else [skipped.alias(SKIPPED)]
    counts = [F.count(F.lit(1)).alias("rows"), F.count_if(F.col(BAD)).alias("bad")]
    if parser.counts_extra:
        more.append(parser.extra().names_text().alias(extra_fields.NAMES))
        counts += extra_fields.observed()
    rows = parser.split(raw).select(BAD, *more, *parser.columns())
    whole = rows.observe(observed, *counts).where(~F.col(BAD)).drop(BAD, extra_fields.NAMES)
    return whole if skipped is None else whole.where(~F.col(SKIPPED)).drop(SKIPPED)


def whole_records(raw: "DataFrame", parser: Parser) -> "DataFrame":
    """The same of plain records, without counting."""
    from pyspark.sql import functions as F

    skipped = parser.skipped()
    more = [] if skipped is None else [skipped.alias(SKIPPED)]
    whole = parser.split(raw).where(~F.col(BAD)).select(*more, *parser.columns())
    return whole if skipped is None else whole.where(~F.col(SKIPPED)).drop(SKIPPED)


def table_stream(
    spark: "SparkSession", path: str, given: TableStream | None, *, changes: bool, by_commits: bool = False
) -> "DataFrame":
    """A table as a stream. Read by its change feed, a table gives each row as it becomes, and removals give none;
    with `change_feed=True` it gives every change as it is. `by_commits` begins with the first commit rather than with
    what the table holds."""
    from pyspark.sql import functions as F

    options: dict[str, str] = {}
    if given is not None:
        if given.max_files_per_trigger is not None:
            options["maxFilesPerTrigger"] = str(given.max_files_per_trigger)
        if given.ignore_deletes:
            options["ignoreDeletes"] = "true"
        if given.ignore_changes:
            options["ignoreChanges"] = "true"
        if given.starting_version is not None:
            options["startingVersion"] = str(given.starting_version)
    if by_commits:
        options.setdefault("startingVersion", "0")
    as_declared = given is not None and given.change_feed
    if changes or as_declared:
        options["readChangeFeed"] = "true"
    stream = spark.readStream.format("delta").options(**options).load(path)
    if changes and not as_declared:
        stream = stream.where(F.col("_change_type").isin("insert", "update_postimage")).drop(*CHANGE_COLUMNS)
    return without_hidden(stream)


def static_table(spark: "SparkSession", path: str, given: Static) -> "DataFrame":
    table = spark.read.format(given.format).options(**given.options).load(path)
    return without_hidden(table) if given.format == "delta" else table


def without_hidden(frame: "DataFrame") -> "DataFrame":
    hidden = [name for name in frame.columns if name in HIDDEN_COLUMNS]
    return frame.drop(*hidden) if hidden else frame


def empty_stream(spark: "SparkSession", schema: "StructType", directory: str) -> "DataFrame":
    """A stream of that schema that never has a row: for analysis, where the real one may not exist yet."""
    return spark.readStream.format("parquet").schema(schema).load(directory)
