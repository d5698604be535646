"""What a pipeline's file calls: `hr.topic`, `@hr.table`, `@hr.view`, `@hr.to_topic` and their kin.

A decorated function stays the plain function that it was, so that a test can call it with DataFrames of its own.
This module records what was declared and checks what one line alone can get wrong; it must never import Spark.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar, overload

from headrace.streaming.declarations import (
    BATCH_ARGUMENT,
    FORMATS,
    MODES,
    Action,
    BatchOutput,
    Expectation,
    Format,
    Latency,
    Mode,
    Node,
    Output,
    PipelineError,
    Place,
    Source,
    Static,
    TableOutput,
    TableStream,
    Topic,
    TopicOutput,
    ViewOutput,
    collected,
)

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", Topic, TableStream, Static)
Names = str | Iterable[str]
DECLARED = "__headrace_node__"
TASKS_MAX = 1_000


class Rule:
    """An expectation that has no name yet: what `hr.warn`, `hr.drop`, `hr.quarantine` and `hr.fail` return."""

    def __init__(self, action: Action, predicate: str) -> None:
        if not isinstance(predicate, str) or not predicate.strip():
            raise PipelineError(
                Place.of_caller(), f"hr.{action}({predicate!r}): give a SQL predicate, such as 'amount > 0'"
            )
        self.action = action
        self.predicate = predicate


def warn(predicate: str) -> Rule:
    """Rows for which the predicate is not true are counted and kept."""
    return Rule("warn", predicate)


def drop(predicate: str) -> Rule:
    """Rows for which the predicate is not true are counted and left out."""
    return Rule("drop", predicate)


def quarantine(predicate: str) -> Rule:
    """Rows for which the predicate is not true go to the node's quarantine table instead."""
    return Rule("quarantine", predicate)


def fail(predicate: str) -> Rule:
    """A row for which the predicate is not true stops the node before its batch is written."""
    return Rule("fail", predicate)


Expect = Mapping[str, Rule] | Iterable[Rule] | Rule


def pipeline(name: str) -> None:
    """Names the pipeline; without it, it has the name of its file."""
    declared = collected()
    if declared is not None:
        if declared.pipeline not in (None, name):
            raise PipelineError(Place.of_caller(), f"pipeline {name!r}: it is named {declared.pipeline!r} already")
        declared.pipeline = name


def topic(
    topic: str,
    schema: Any = None,
    *,
    format: Format = "json",
    key: Literal["binary", "string"] = "binary",
    starting: str | Mapping[Any, int] = "earliest",
    tombstones: Literal["quarantine", "keep"] = "quarantine",
    unknown: Literal["ignore", "quarantine"] = "ignore",
    skip_bytes: int = 0,
    parse_options: Mapping[str, Any] | None = None,
    max_offsets_per_trigger: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Topic:
    """A topic whose values are parsed into the columns of `schema`; without one it is inferred once and kept.

    `starting` is "earliest", "latest", a time, or the offset of each partition. `_key`, `_headers`, `_topic`,
    `_partition`, `_offset` and `_timestamp` can be used like any column. `skip_bytes` are left out before a value
    is parsed, such as the five that a schema registry puts in front; `parse_options` are those of Spark's JSON or CSV
    reader, `options` those of its Kafka source.
    """
    place = Place.of_caller()
    _one_of(place, "format", format, FORMATS)
    _one_of(place, "key", key, ("binary", "string"))
    _one_of(place, "tombstones", tombstones, ("quarantine", "keep"))
    _one_of(place, "unknown", unknown, ("ignore", "quarantine"))
    if unknown == "quarantine" and format != "json":
        raise PipelineError(place, f"topic {topic!r}: unknown='quarantine' is for format='json', not {format!r}")
    if schema is None and format in ("csv", "avro"):
        raise PipelineError(place, f"topic {topic!r}: format={format!r} needs a schema; only JSON can be inferred")
    if schema is not None and format in ("text", "raw"):
        raise PipelineError(place, f"topic {topic!r}: format={format!r} has one column, value, and takes no schema")
    return _source(
        Topic(
            topic=topic,
            schema=_schema_text(place, schema),
            format=format,
            key=key,
            starting=starting if isinstance(starting, str) else {topic: {str(p): int(o) for p, o in starting.items()}},
            tombstones=tombstones,
            unknown=unknown,
            skip_bytes=skip_bytes,
            parse_options=_options(parse_options),
            options=_options(options),
            max_offsets_per_trigger=max_offsets_per_trigger,
            name=_identifier(topic),
            place=place,
        )
    )


def stream(
    table: str,
    *,
    max_files_per_trigger: int | None = None,
    ignore_deletes: bool = False,
    ignore_changes: bool = False,
    change_feed: bool = False,
    starting_version: int | None = None,
) -> TableStream:
    """A Delta table as a stream: a function of this file, a table's name, or a path.

    With `change_feed` each row carries `_change_type`, `_commit_version` and `_commit_timestamp`.
    """
    return _source(
        TableStream(
            table=table,
            max_files_per_trigger=max_files_per_trigger,
            ignore_deletes=ignore_deletes,
            ignore_changes=ignore_changes,
            change_feed=change_feed,
            starting_version=starting_version,
            name=_identifier(table),
            place=Place.of_caller(),
        )
    )


def static(table: str, *, format: str = "delta", options: Mapping[str, Any] | None = None) -> Static:
    """A table that streams are joined with: a table's name or a path. Each batch sees it as it is then."""
    return _source(
        Static(table=table, format=format, options=_options(options), name=_identifier(table), place=Place.of_caller())
    )


@overload
def table(function: F, /) -> F: ...
@overload
def table(
    *,
    key: Names = ...,
    partition_by: Names = ...,
    mode: Mode | None = ...,
    order_by: Names = ...,
    delete: str | None = ...,
    expect: Expect | None = ...,
    evolve: bool = ...,
    into: str | None = ...,
    replace_where: str | None = ...,
    change_feed: bool = ...,
    properties: Mapping[str, Any] | None = ...,
    trigger: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
) -> Callable[[F], F]: ...
def table(
    function: Any = None,
    /,
    *,
    key: Names = (),
    partition_by: Names = (),
    mode: Mode | None = None,
    order_by: Names = (),
    delete: str | None = None,
    expect: Expect | None = None,
    evolve: bool = False,
    into: str | None = None,
    replace_where: str | None = None,
    change_feed: bool = False,
    properties: Mapping[str, Any] | None = None,
    trigger: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Any:
    """The function's rows are a Delta table: appended, or with a `key` merged, or with mode="complete" rewritten.

    `order_by` says which of several rows of one key in a batch is the last; `delete` which rows remove their key.
    `into` and `replace_where` fill another node's table back: the first batch replaces, later ones append.
    """
    place = Place.of_caller()
    output = TableOutput(
        key=_names(key),
        partition_by=_names(partition_by),
        mode=_mode(place, mode),
        order_by=_names(order_by),
        delete=delete,
        evolve=evolve,
        into=into,
        replace_where=replace_where,
        change_feed=change_feed,
        properties=_options(properties),
    )
    _check_table(place, output)
    return _decorator(function, output, expect=expect, trigger=trigger, options=options, name=name)


@overload
def view(function: F, /) -> F: ...
@overload
def view(*, name: str | None = ...) -> Callable[[F], F]: ...
def view(function: Any = None, /, *, name: str | None = None) -> Any:
    """A step that others read by its name. It is not stored: each reader runs it."""
    return _decorator(function, ViewOutput(), name=name)


def to_topic(
    topic: str,
    *,
    key: Names = (),
    value: str | None = None,
    headers: str | None = None,
    order_by: Names = (),
    latency: Latency = "exactly_once",
    mode: Mode | None = None,
    tasks: int = 4,
    expect: Expect | None = None,
    trigger: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Callable[[F], F]:
    """The function's rows are records of a topic, each exactly once; the value is a column, or all of them as JSON.

    `latency="realtime"` uses Spark's real-time trigger instead: milliseconds, from topic to topic, at least once.
    """
    place = Place.of_caller()
    _one_of(place, "latency", latency, ("exactly_once", "realtime"))
    if not 1 <= tasks <= TASKS_MAX:
        raise PipelineError(place, f"to_topic {topic!r}: tasks={tasks} is outside [1, {TASKS_MAX}]")
    output = TopicOutput(
        topic=topic,
        key=_names(key),
        value=value,
        headers=headers,
        order_by=_names(order_by),
        latency=latency,
        mode=_mode(place, mode),
        tasks=tasks,
        options=_options(options),
    )
    if latency == "realtime":
        if expect:
            raise PipelineError(place, f"to_topic {topic!r}: latency='realtime' takes no expectations; drop them")
        if output.order_by:
            raise PipelineError(place, f"to_topic {topic!r}: latency='realtime' cannot sort; drop order_by")
    return _decorator(None, output, expect=expect, trigger=trigger, name=name)  # type: ignore[no-any-return]


@overload
def for_each_batch(function: F, /) -> F: ...
@overload
def for_each_batch(
    *,
    mode: Mode | None = ...,
    expect: Expect | None = ...,
    trigger: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
) -> Callable[[F], F]: ...
def for_each_batch(
    function: Any = None,
    /,
    *,
    mode: Mode | None = None,
    expect: Expect | None = None,
    trigger: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Any:
    """The function gets each batch of its first argument as a plain DataFrame, and writes it itself.

    Delta writes it makes carry the batch's transaction, so that a batch run again writes nothing twice; one write a
    table and batch. An argument named `batch` gets the batch's id and the paths of this version's tables.
    """
    output = BatchOutput(mode=_mode(Place.of_caller(), mode))
    return _decorator(function, output, expect=expect, trigger=trigger, options=options, name=name)


def _decorator(function: Any, output: Output, **settings: Any) -> Any:
    def decorate(function: F) -> F:
        node = _node(function, output, **settings)
        function.__dict__[DECLARED] = node
        declared = collected()
        if declared is not None:
            declared.nodes.append(node)
        return function

    return decorate if function is None else decorate(function)


def _node(
    function: Callable[..., Any],
    output: Output,
    *,
    expect: Expect | None = None,
    trigger: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Node:
    code = inspect.unwrap(function).__code__
    place = Place(code.co_filename, code.co_firstlineno)
    name = name or function.__name__
    inputs, defaults, takes_batch = [], {}, False
    for argument in inspect.signature(function).parameters.values():
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD, argument.POSITIONAL_ONLY):
            raise PipelineError(place, f"{name}: argument {argument} has no name to look up; name each input")
        if argument.name == BATCH_ARGUMENT and isinstance(output, BatchOutput):
            takes_batch = True
            continue
        if isinstance(argument.default, Topic | TableStream | Static):
            defaults[argument.name] = argument.default
        elif argument.default is not argument.empty:
            continue  # an ordinary default: a parameter of the function, not an edge
        inputs.append(argument.name)
    if not inputs:
        raise PipelineError(place, f"{name}: reads nothing; name its inputs as arguments, such as def {name}(orders)")
    return Node(
        name=name,
        function=function,
        inputs=tuple(inputs),
        defaults=MappingProxyType(defaults),
        output=output,
        expectations=_expectations(place, name, expect),
        trigger=trigger,
        options=_query_options(place, name, options),
        place=place,
        takes_batch=takes_batch,
    )


def _expectations(place: Place, node: str, expect: Expect | None) -> tuple[Expectation, ...]:
    if expect is None:
        return ()
    if isinstance(expect, Rule):
        expect = [expect]
    pairs = list(expect.items()) if isinstance(expect, Mapping) else [(getattr(e, "predicate", ""), e) for e in expect]
    for name, rule in pairs:
        if not isinstance(rule, Rule):
            raise PipelineError(
                place, f"{node}: expectation {name!r} is {rule!r}; use hr.warn, hr.drop, hr.quarantine or hr.fail"
            )
    return tuple(Expectation(name=name, predicate=rule.predicate, action=rule.action) for name, rule in pairs)


def _check_table(place: Place, output: TableOutput) -> None:
    if output.mode == "complete" and output.key:
        raise PipelineError(place, "table: mode='complete' rewrites the table, so a key has no use; drop one of both")
    if output.key and output.mode == "append" and output.delete is None:
        return
    if output.delete is not None and not output.key:
        raise PipelineError(place, "table: delete= removes rows by their key; add key=")
    if output.order_by and not output.key:
        raise PipelineError(place, "table: order_by= decides among rows of one key; add key=")
    if output.replace_where is not None and (output.key or output.mode == "complete"):
        raise PipelineError(place, "table: replace_where= is for appended rows; drop key= and mode='complete'")
    if output.into is not None and output.partition_by:
        raise PipelineError(place, "table: into= writes another node's table, which has its own partition_by; drop it")


def _source(source: S) -> S:
    declared = collected()
    if declared is not None:
        declared.sources.append(source)
    return source


def _one_of(place: Place, name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise PipelineError(place, f"{name}={value!r}: must be one of {', '.join(known)}")


def _mode(place: Place, mode: Mode | None) -> Mode | None:
    if mode is not None:
        _one_of(place, "mode", mode, MODES)
    return mode


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _options(options: Mapping[str, Any] | None) -> Mapping[str, str]:
    return MappingProxyType({key: _option(value) for key, value in (options or {}).items()})


def _option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _query_options(place: Place, node: str, options: Mapping[str, Any] | None) -> Mapping[str, str]:
    made = _options(options)
    if any(key.lower() == "checkpointlocation" for key in made):
        raise PipelineError(place, f"{node}: checkpointLocation belongs to the version's directory; drop the option")
    return made


def _schema_text(place: Place, schema: Any) -> str | None:
    """DDL or JSON as it stands; a StructType as its JSON."""
    if schema is None or isinstance(schema, str):
        return schema
    if callable(getattr(schema, "json", None)):
        return str(schema.json())
    raise PipelineError(place, f"schema={schema!r}: give DDL such as 'id string, amount double', or a StructType")


def _identifier(name: str) -> str:
    """What an argument must be called to mean a source that is held by no variable."""
    base = name.rstrip("/").rsplit("/", 1)[-1]
    return "".join(letter if letter.isalnum() else "_" for letter in base)


__all__ = [
    "Source",
    "drop",
    "fail",
    "for_each_batch",
    "pipeline",
    "quarantine",
    "static",
    "stream",
    "table",
    "to_topic",
    "topic",
    "view",
    "warn",
]
