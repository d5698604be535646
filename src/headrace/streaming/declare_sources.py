"""What a pipeline reads, as its file says it: `hr.topic`, `hr.changes`, `hr.stream`, `hr.static`.

It must never import Spark.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from headrace.core.errors import OperatorError
from headrace.streaming import sql_text
from headrace.streaming.debezium import EXTRA_COLUMNS, OP, ORDER
from headrace.streaming.declarations import (
    FORMATS,
    ChangeRules,
    Format,
    PipelineError,
    Place,
    Static,
    TableStream,
    Topic,
    collected,
)
from headrace.streaming.declared_values import one_of, options_of
from headrace.streaming.starting import starting as place_in_topic

S = TypeVar("S", Topic, TableStream, Static)


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
    one_of(place, "format", format, FORMATS)
    one_of(place, "key", key, ("binary", "string"))
    one_of(place, "tombstones", tombstones, ("quarantine", "keep"))
    one_of(place, "unknown", unknown, ("ignore", "quarantine"))
    if unknown == "quarantine" and format != "json":
        raise PipelineError(place, f"topic {topic!r}: unknown='quarantine' is for format='json', not {format!r}")
    if schema is None and format in ("csv", "avro"):
        raise PipelineError(place, f"topic {topic!r}: format={format!r} needs a schema; only JSON can be inferred")
    if schema is not None and format in ("text", "raw"):
        raise PipelineError(place, f"topic {topic!r}: format={format!r} has one column, value, and takes no schema")
    text = _schema_text(place, schema)
    _check_schema(place, topic, format, text)
    return _source(
        Topic(
            topic=topic,
            schema=text,
            format=format,
            key=key,
            starting=_begin(place, topic, starting),
            tombstones=tombstones,
            unknown=unknown,
            skip_bytes=skip_bytes,
            parse_options=options_of(parse_options),
            options=options_of(options),
            max_offsets_per_trigger=max_offsets_per_trigger,
            name=_identifier(topic),
            place=place,
        )
    )


def changes(
    topic: str,
    schema: Any,
    *,
    key: str | Iterable[str],
    format: Literal["debezium"] = "debezium",
    starting: str | Mapping[Any, int] = "earliest",
    parse_options: Mapping[str, Any] | None = None,
    max_offsets_per_trigger: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Topic:
    """A topic of changes that Debezium captured, as JSON with or without its schemas; `schema` and `key` are of the
    database's table.

    A `@hr.table` that reads it and says nothing else of keys becomes that table: merged by `key`, in the order of the
    database's log, deletes and truncations included. `_op`, `_order` and `_at` (when the database made the change) can
    be used like any column.
    """
    place = Place.of_caller()
    one_of(place, "format", format, ("debezium",))
    keys = (key,) if isinstance(key, str) else tuple(key)
    text = _schema_text(place, schema)
    if text is None or not keys:
        raise PipelineError(place, f"changes {topic!r}: give the schema of the database's table, and its key")
    _check_schema(place, topic, format, text)
    rules = ChangeRules(
        key=keys,
        order_by=(ORDER,),
        delete=f"{OP} = 'd'",
        truncate=f"{OP} = 't'",
        leave_out=EXTRA_COLUMNS,
    )
    return _source(
        Topic(
            topic=topic,
            schema=text,
            format=format,
            key="binary",
            starting=_begin(place, topic, starting),
            tombstones="keep",
            unknown="ignore",
            skip_bytes=0,
            parse_options=options_of(parse_options),
            options=options_of(options),
            max_offsets_per_trigger=max_offsets_per_trigger,
            name=_identifier(topic),
            place=place,
            changes=rules,
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
        Static(
            table=table, format=format, options=options_of(options), name=_identifier(table), place=Place.of_caller()
        )
    )


def _source(source: S) -> S:
    declared = collected()
    if declared is not None:
        declared.sources.append(source)
    return source


def _begin(place: Place, topic: str, starting: str | Mapping[Any, int]) -> str | Mapping[str, Mapping[str, int]]:
    begin = starting if isinstance(starting, str) else {topic: {str(p): int(o) for p, o in starting.items()}}
    try:
        place_in_topic(begin)
    except OperatorError as error:
        raise PipelineError(place, f"topic {topic!r}: starting={error}") from error
    return begin


def _schema_text(place: Place, schema: Any) -> str | None:
    """DDL or JSON as it stands; a StructType as its JSON."""
    if schema is None or isinstance(schema, str):
        return schema
    if callable(getattr(schema, "json", None)):
        return str(schema.json())
    raise PipelineError(place, f"schema={schema!r}: give DDL such as 'id string, amount double', or a StructType")


def _check_schema(place: Place, topic: str, format: str, schema: str | None) -> None:
    """What can be told without Spark, which reads DDL."""
    if schema is None:
        return
    if format == "avro" or schema.lstrip().startswith("{"):
        try:
            json.loads(schema)
        except ValueError as error:
            raise PipelineError(place, f"topic {topic!r}: the schema is not JSON: {error}") from error
    elif (why := sql_text.problem(schema)) is not None:
        raise PipelineError(place, f"topic {topic!r}: schema {schema!r}: {why}")


def _identifier(name: str) -> str:
    """What an argument must be called to mean a source that is held by no variable."""
    base = name.rstrip("/").rsplit("/", 1)[-1]
    return "".join(letter if letter.isalnum() else "_" for letter in base)
