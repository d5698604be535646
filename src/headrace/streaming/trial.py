"""A pipeline tried out on a sample, in one session that stays warm: `headrace pipeline dev`.

Each trial runs the functions on plain DataFrames instead of streams, in the order of the graph, and writes scratch
tables with the writers of a real run: keys, order, deletes and expectations are applied as they would be to one batch.
Nothing of the user's tables is touched. What a function does that only a stream can do is reported for that node, and
its readers are left out. The sample of a topic is read once, and kept for the next trials; so is what a node gave,
until a change of the code touches it.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.core.errors import HeadraceError
from headrace.streaming import expectations
from headrace.streaming.assembling import Assembler, stored
from headrace.streaming.check import Checked, check
from headrace.streaming.code_change import touched_names
from headrace.streaming.declarations import (
    BatchOutput,
    Expectation,
    Node,
    Static,
    TableOutput,
    TableStream,
    TopicStream,
)
from headrace.streaming.delta_sink import DeltaSink
from headrace.streaming.delta_writes import Stamp, overwrite
from headrace.streaming.graph import Graph
from headrace.streaming.kafka import Kafka, TopicMissingError
from headrace.streaming.keyed.tables import keyed_table
from headrace.streaming.loading import LoadedPipeline
from headrace.streaming.opening import open_table
from headrace.streaming.parsing import BAD, Parser
from headrace.streaming.progress import counted
from headrace.streaming.reading import real_path, table_path
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.schemas import Schemas
from headrace.streaming.sources import raw_range, static_table, whole_records, without_hidden
from headrace.streaming.spark_errors import first_line
from headrace.streaming.worker_code import WorkerCode
from headrace.tables.provenance import TopicSource
from headrace.tables.reading import open_snapshot
from headrace.tables.version_code import VersionCode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CELL_CHARS_MAX = 200
_SOMETHING = (TopicSource(topic="sample", ranges={0: (0, 1)}),)  # a batch that read nothing is looked at first


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a node gave: how many rows, their columns, some of them as text; or why it gave none."""

    node: str
    rows: int = 0
    left_out: int = 0  # by expectations
    columns: tuple[tuple[str, str], ...] = ()
    sample: tuple[tuple[str | None, ...], ...] = ()
    error: str = ""
    before: bool = False  # as in the trial before: no change touched it


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    number: int
    seconds: float
    nodes: tuple[Tried, ...] = ()
    records: dict[str, int] = field(default_factory=dict)
    unparsed: dict[str, int] = field(default_factory=dict)  # of these records, as each topic is declared now


def sample_ranges(firsts: dict[int, int], ends: dict[int, int], records_max: int) -> dict[int, tuple[int, int]]:
    """The last records of each partition, at most so many in all; an even share each, and what others leave."""
    left, ranges = records_max, {}
    order = sorted(ends, key=lambda partition: ends[partition] - firsts.get(partition, 0))
    for index, partition in enumerate(order):
        first, end = firsts.get(partition, 0), ends[partition]
        share = min(end - first, left // (len(order) - index))
        left -= share
        if share > 0:
            ranges[partition] = (end - share, end)
    return ranges


class Trials:
    """Of one file, one after the other."""

    def __init__(
        self,
        spark: "SparkSession",
        settings: RunSettings,
        *,
        records_max: int,
        shown_max: int,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """A trial ends with KeyboardInterrupt once `stopped` says so: what Spark raises when it is interrupted looks
        like any other failure."""
        self._step: Callable[[str], None] = lambda line: None
        self._stopped = stopped
        self._code: VersionCode | None = None
        self._tried: dict[str, Tried] = {}
        self._directories: dict[str, str] = {}  # of each node, where its scratch table lies
        self._spark = spark
        self._settings = settings
        self._records_max = records_max
        self._shown_max = shown_max
        self._kafka = Kafka(settings.bootstrap, settings.kafka)
        self._scratch = tempfile.mkdtemp(prefix="headrace-dev-")
        self._samples: dict[str, tuple[DataFrame, int]] = {}
        self._unparsed: dict[str, tuple[tuple[Any, ...], int]] = {}
        self._number = 0

    def close(self) -> None:
        for frame, _ in self._samples.values():
            frame.unpersist()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self, loaded: LoadedPipeline, graph: Graph, step: Callable[[str], None] = lambda line: None) -> Trial:
        """`step` gets a line for each step on the way."""
        self._step = step
        started = time.monotonic()
        self._number += 1
        WorkerCode(self._spark, loaded, self._number)
        schemas = Schemas(self._scratch, self._kafka)
        tables_dir = self._settings.tables_dir
        self._step(f"checking {counted(len(graph.queries), 'node')}")
        checked = check(self._spark, graph, parser=schemas.parser, path_of=lambda table: table_path(tables_dir, table))
        reader = _Reader(self, schemas)
        same = self._untouched(loaded, graph)
        tried: dict[str, Tried] = {}
        # Until all is done, nothing is known to belong to this code.
        before, self._code, self._tried = self._tried, None, {}
        for node in graph.queries:
            missing = [name for name in graph.upstream(node.name) if name in tried and tried[name].error]
            if missing:
                tried[node.name] = Tried(node=node.name, error=f"not run: {missing[0]} gave no table")
            elif node.name in same and all(tried[name].before for name in graph.upstream(node.name)):
                tried[node.name] = replace(before[node.name], before=True)
            else:
                self._step(f"running {node.name}")
                tried[node.name] = self._try(node, graph, checked, reader, self._cleared(node))
        self._code, self._tried = loaded.version_code, tried
        topics = {topic.topic for node in graph.queries for topic in graph.topics(node.name)}
        return Trial(
            number=self._number,
            seconds=time.monotonic() - started,
            nodes=tuple(tried.values()),
            records={topic: count for topic, (_, count) in self._samples.items() if topic in topics},
            unparsed={topic: count for topic, (_, count) in self._unparsed.items() if topic in topics and count},
        )

    def _untouched(self, loaded: LoadedPipeline, graph: Graph) -> set[str]:
        """The nodes that would give again what they gave in the trial before."""
        touched = touched_names(self._code, loaded.version_code) if self._code is not None else None
        filled = any(isinstance(node.output, TableOutput) and node.output.into is not None for node in graph.queries)
        if touched is None or filled:
            return set()
        return {name for name, tried in self._tried.items() if name not in touched and not tried.error}

    def _cleared(self, node: Node) -> str:
        """An empty directory for a node's scratch table; a node that fills another's table back has that one's."""
        target = node.output.into if isinstance(node.output, TableOutput) else None
        if target is not None:
            return self._directories[target]
        shutil.rmtree(self._directories.pop(node.name, ""), ignore_errors=True)
        self._directories[node.name] = os.path.join(self._scratch, str(self._number), node.name)
        return self._directories[node.name]

    def table(self, node: str) -> str:
        """Where the scratch table of a node lies."""
        return os.path.join(self._directories[node], node)

    def sample(self, topic: TopicStream) -> "DataFrame":
        """Some records of a topic as they are in the log, read once."""
        if topic.topic not in self._samples:
            self._step(f"reading a sample of {topic.topic}")
            count = self._kafka.partitions(topic.topic)
            if not count:
                where = self._settings.bootstrap
                raise TopicMissingError(
                    f"{topic.place}: topic {topic.topic!r} is not at {where}; create it or send to it"
                )
            places = [(topic.topic, partition) for partition in range(count)]
            firsts, ends = self._kafka.beginnings(places), self._kafka.ends(places)
            ranges = sample_ranges(
                {partition: offset for (_, partition), offset in firsts.items()},
                {partition: offset for (_, partition), offset in ends.items()},
                self._records_max,
            )
            options: Any = {"bootstrap": self._settings.bootstrap, "common": self._settings.kafka}
            raw = raw_range(self._spark, topic, ranges=ranges, **options) if ranges else self._nothing()
            kept = raw.coalesce(1).persist()
            self._samples[topic.topic] = (kept, kept.count())
        return self._samples[topic.topic][0]

    def whole(self, topic: TopicStream, parser: Parser) -> "DataFrame":
        """What can be parsed of a sample; the rest is counted, again only where the topic is declared otherwise."""
        raw = self.sample(topic)
        declared = (topic.schema, topic.format, topic.tombstones, topic.extra, topic.skip_bytes,
                    dict(topic.parse_options), dict(topic.writers))  # fmt: skip
        if self._unparsed.get(topic.topic, ((), 0))[0] != declared:
            self._unparsed[topic.topic] = declared, parser.split(raw).where(BAD).count()
        return whole_records(raw, parser)

    def _nothing(self) -> "DataFrame":
        return self._spark.createDataFrame(
            [],
            "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
            "timestampType int, headers array<struct<key: string, value: binary>>",
        )

    def _try(self, node: Node, graph: Graph, checked: Checked, reader: "_Reader", directory: str) -> Tried:
        if isinstance(node.output, BatchOutput):
            return Tried(node=node.name, error="not run: it writes its batches itself")
        try:
            frame = Assembler(graph, reader).compute(node.name)
            rows = expectations.kept(frame, node.expectations)
            left_out = _left_out(frame, node.expectations)
            if not isinstance(node.output, TableOutput):
                return self._shown(node, stored(rows), None, left_out)
            path = self._written(node, node.output, checked, frame, directory)
            return self._shown(node, *self._head(path), left_out)
        except HeadraceError as error:
            return Tried(node=node.name, error=str(error))
        except Exception as error:
            if self._stopped():
                raise KeyboardInterrupt from error
            return Tried(node=node.name, error=f"{node.place}: {node.name}: {first_line(error)}")

    def _written(self, node: Node, output: TableOutput, checked: Checked, frame: "DataFrame", directory: str) -> str:
        path = os.path.join(directory, output.into or node.name)
        found = checked.node(node.name)
        batch = 0 if output.into is None else 1  # the first batch of a table costs least
        stamp = Stamp(pipeline=checked.pipeline, version=0, node=node.name, batch=batch, sources=_SOMETHING)
        if output.into is None:
            open_table(self._spark, node, path, found, changes=False)
        if node.recomputed or found.maintained:
            overwrite(stored(frame, output.leave_out), path, stamp)
        else:
            deletes = os.path.join(directory, "_deletes", node.name)
            keyed = keyed_table(output, path, deletes, found.order, alone=True) if output.key else None
            DeltaSink(node, output, path, keyed).write(frame, stamp)
        return path

    def _head(self, path: str) -> "tuple[DataFrame, int | None]":
        """Some rows of a scratch table and how many there are, without a job: Delta in the JVM would take two to make
        the table's state. What deltalake cannot read (deletion vectors, say), Spark does."""
        table = without_hidden(self._spark.read.format("delta").load(path))
        try:
            found = open_snapshot(path).table.to_pyarrow_dataset()
            rows = found.head(self._shown_max, columns=table.columns)
            return self._spark.createDataFrame(rows, schema=table.schema), found.count_rows()
        except Exception:
            return table, None

    def _shown(self, node: Node, frame: "DataFrame", rows: int | None, left_out: int) -> Tried:
        from pyspark.sql import functions as F

        columns = tuple((column.name, column.dataType.simpleString()) for column in frame.schema.fields)
        texts = [
            F.substring(
                (F.to_json(f"`{name}`") if kind.startswith(("struct", "array", "map")) else F.col(f"`{name}`"))
                .cast("string"), 1, CELL_CHARS_MAX,
            )
            for name, kind in columns
        ]  # fmt: skip
        found = frame.select(*texts).take(self._shown_max)
        rows = frame.count() if rows is None else rows
        return Tried(node=node.name, rows=rows, left_out=left_out, columns=columns, sample=tuple(map(tuple, found)))


def _left_out(frame: "DataFrame", rules: tuple[Expectation, ...]) -> int:
    """Rows that expectations drop or put aside, in one pass."""
    from pyspark.sql import functions as F

    left = [~expectations.holds(each) for each in rules if each.action in ("drop", "quarantine")]
    if not left:
        return 0
    found = frame.agg(F.count_if(reduce(lambda one, other: one | other, left))).first()
    return int(found[0]) if found is not None else 0


class _Reader:
    """Topics by their samples, tables of the pipeline by what a trial wrote, other tables as they are."""

    def __init__(self, trials: Trials, schemas: Schemas) -> None:
        self._trials = trials
        self._schemas = schemas

    def topic(self, topic: TopicStream, observed: str) -> "DataFrame":
        return self._trials.whole(topic, self._schemas.parser(topic))

    def own_table(self, node: Node, given: TableStream | None, *, changes: bool) -> "DataFrame":
        spark = self._trials._spark
        return without_hidden(spark.read.format("delta").load(self._trials.table(node.name)))

    def other_table(self, given: TableStream) -> "DataFrame":
        trials = self._trials
        path = real_path(table_path(trials._settings.tables_dir, given.table))
        return without_hidden(trials._spark.read.format("delta").load(path))

    def static(self, given: Static, node: Node | None) -> "DataFrame":
        trials = self._trials
        if node is not None:
            return self.own_table(node, None, changes=False)
        return static_table(trials._spark, table_path(trials._settings.tables_dir, given.table), given)
