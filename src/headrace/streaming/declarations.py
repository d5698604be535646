"""What a pipeline's file declares, as plain values: sources, nodes and expectations, each with its file and line.

Nothing here knows Spark or the disk. `declare` makes these values, `graph` joins them, the rest only reads them.
"""

import inspect
import os
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal

from headrace.core.errors import OperatorError

Format = Literal["json", "csv", "avro", "text", "raw"]
Mode = Literal["append", "update", "complete"]
Action = Literal["warn", "drop", "quarantine", "fail"]
Extra = Literal["ignore", "warn", "quarantine", "keep"]
Latency = Literal["exactly_once", "realtime"]
Late = Literal["count", "quarantine"]  # what happens to rows that come behind the watermark

FORMATS: tuple[Format, ...] = ("json", "csv", "avro", "text", "raw")
EXTRA: tuple[Extra, ...] = ("ignore", "warn", "quarantine", "keep")
MODES: tuple[Mode, ...] = ("append", "update", "complete")
# A topic's own columns. They can be read in every function, and are stored only where a function selects them.
METADATA_COLUMNS = ("_key", "_headers", "_topic", "_partition", "_offset", "_timestamp")
# What a table with history has beside the function's columns.
HISTORY_COLUMNS = ("valid_from", "valid_to", "is_current")
# Arguments of a for_each_batch function that are not edges.
BATCH_ARGUMENT = "batch"


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @classmethod
    def of_caller(cls) -> "SourceLine":
        """The nearest frame outside this package."""
        frame = inspect.currentframe()
        package = os.path.dirname(__file__)
        while frame is not None and os.path.dirname(frame.f_code.co_filename) == package:
            frame = frame.f_back
        if frame is None:
            return cls("<unknown>", 0)
        return cls(frame.f_code.co_filename, frame.f_lineno)

    @classmethod
    def of_error(cls, error: BaseException, files: Container[str]) -> "SourceLine | None":
        """Where in `files` an exception came from: the innermost of its frames there."""
        found, trace = None, error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if file in files:
                found = cls(file, trace.tb_lineno)
            trace = trace.tb_next
        return found


class PipelineError(OperatorError):
    """What is wrong with a pipeline's file; the message begins with file and line."""

    def __init__(self, place: SourceLine | None, message: str) -> None:
        super().__init__(f"{place}: {message}" if place is not None else message)
        self.place = place


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    name: str
    predicate: str
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRules:
    """What a topic of changes says of the table that is made of it, unless the table says it itself."""

    key: tuple[str, ...]
    order_by: tuple[str, ...]
    delete: str
    truncate: str
    leave_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopicStream:
    """A topic as a stream of rows; `changes`, if they are changes of a database's rows."""

    topic: str
    schema: str | None
    format: Format | Literal["debezium"]
    key: Literal["binary", "string"]
    starting: str | Mapping[str, Mapping[str, int]]
    tombstones: Literal["quarantine", "keep"]
    extra: Extra
    skip_bytes: int
    parse_options: Mapping[str, str]
    options: Mapping[str, str]
    max_offsets_per_trigger: int | None
    name: str
    place: SourceLine
    changes: ChangeRules | None = None
    # Avro that was written with other schemas than `schema`: by the id in front of a value, or under None for all.
    writers: Mapping[int | None, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableStream:
    """A Delta table as a stream: a table of this pipeline by its name, another by name or path."""

    table: str
    max_files_per_trigger: int | None
    ignore_deletes: bool
    ignore_changes: bool
    change_feed: bool
    starting_version: int | None
    name: str
    place: SourceLine


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Static:
    """A Delta table, or files of another format, read whole for each batch that joins it."""

    table: str
    format: str
    options: Mapping[str, str]
    name: str
    place: SourceLine


Source = TopicStream | TableStream | Static


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutput:
    """Rows become a Delta table: merged by `key`, rewritten in mode complete or if `recomputed`, appended otherwise.

    `into` names another node's table: this node fills it back, its first batch replacing what `replace_where` says.
    `inherited`: key, order and deletes are those of the topic of changes that it reads.
    """

    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    mode: Mode | None = None
    order_by: tuple[str, ...] = ()
    delete: str | None = None
    truncate: str | None = None
    leave_out: tuple[str, ...] = ()
    history: bool = False
    nulls: Literal["null", "unchanged"] = "null"
    forget_deletes_after: timedelta | None = timedelta(days=7)
    evolve: bool = False
    into: str | None = None
    replace_where: str | None = None
    change_feed: bool = False
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    recomputed: bool = False
    inherited: bool = False

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that name one row of the table."""
        return (*self.key, HISTORY_COLUMNS[0]) if self.history else self.key

    @property
    def appended(self) -> bool:
        """Whether rows once written stay as they are, so that others can read the table as a plain stream."""
        return not self.key and self.mode != "complete" and not self.recomputed


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutput:
    """Rows become records of a topic."""

    topic: str
    key: tuple[str, ...] = ()
    value: str | None = None
    headers: str | None = None
    order_by: tuple[str, ...] = ()
    latency: Latency = "exactly_once"
    mode: Mode | None = None
    tasks: int = 4
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutput:
    """The function itself writes each batch."""

    mode: Mode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOutput:
    """Not stored: whoever reads it runs its function."""


Output = TableOutput | TopicOutput | BatchOutput | ViewOutput


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One function of the file."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[str, ...]
    defaults: Mapping[str, Source]
    output: Output
    expectations: tuple[Expectation, ...]
    trigger: str | None
    options: Mapping[str, str]
    place: SourceLine
    takes_batch: bool = False
    late: Late = "count"

    @property
    def recomputed(self) -> bool:
        """Whether it is computed again from whole tables, rather than from what is new in them."""
        return isinstance(self.output, TableOutput) and self.output.recomputed

    @property
    def is_query(self) -> bool:
        """Whether it runs as a streaming query of its own."""
        return not isinstance(self.output, ViewOutput)


@dataclass(slots=True)
class Declared:
    """What a file declared, in the order of its lines."""

    pipeline: str | None = None
    sources: list[Source] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


_collecting: list[Declared] = []


def collected() -> Declared | None:
    """Where declarations go while a file is loaded; None when a function is only imported, say by a test."""
    return _collecting[-1] if _collecting else None


class collecting:  # noqa: N801 - used as `with collecting() as declared`
    def __enter__(self) -> Declared:
        _collecting.append(Declared())
        return _collecting[-1]

    def __exit__(self, *error: object) -> None:
        _collecting.pop()
