"""What a pipeline reads, as its file says it: `hr.topic`, `hr.changes`, `hr.stream`, `hr.static`.

It must never import Spark.
"""

import json
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from headrace.core.errors import OperatorError
from headrace.streaming import sql_text
from headrace.streaming.debezium import EXTRA_COLUMNS, OP, ORDER
from headrace.streaming.declarations import (
    EXTRA,
    FORMATS,
    ChangeRules,
    Extra,
    Format,
    PipelineError,
    SourceLine,
    Static,
    TableStream,
    TopicStream,
    collected,
)
from headrace.streaming.declared_values import one_of, options_of
from headrace.streaming.own_modules import read_beside
from headrace.streaming.starting import starting as place_in_topic

S = TypeVar("S", TopicStream, TableStream, Static)


def topic(
    topic: str,
    schema: Any = None,
    *,
    format: Format = "json",
    key: Literal["binary", "string"] = "binary",
    starting: str | Mapping[Any, int] = "earliest",
    tombstones: Literal["quarantine", "keep"] = "quarantine",
    extra: Extra | None = None,
    writer_schema: Any = None,
    skip_bytes: int = 0,
    parse_options: Mapping[str, Any] | None = None,
    max_offsets_per_trigger: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> TopicStream:
    """A topic whose values are parsed into the columns of `schema`; without one it is inferred once and kept.

    `starting` is "earliest", "latest", a time, or the offset of each partition. `_key`, `_headers`, `_topic`,
    `_partition`, `_offset` and `_timestamp` can be used like any column. `skip_bytes` are left out before a value
    is parsed, such as the five that a schema registry puts in front; `parse_options` are those of Spark's JSON or CSV
    reader, `options` those of its Kafka source.

    `extra` says what becomes of JSON fields that the schema does not have: "warn" counts and names them, which is the
    default; "quarantine" keeps such records out; "keep" puts them into a column `_extra` of type map<string, string>;
    "ignore" does not look for them.

    An Avro schema is JSON, or the name of a file beside the pipeline's that ends in .avsc; its columns are the topic's.
    `writer_schema` is the one that values were written with, where that is another, and Avro's rules of schema
    resolution hold between the two. Where values begin with the id of their schema, as those of a schema registry do
    (a zero and four bytes), give a schema per id: `writer_schema={7: "orders-1.avsc", 9: "orders-2.avsc"}`.

    >>> import headrace as hr
    >>> orders = hr.topic("orders", schema="order_id string, amount double, at timestamp")
    >>> orders.format
    'json'
    """
    place = SourceLine.of_caller()
    one_of(place, "format", format, FORMATS)
    one_of(place, "key", key, ("binary", "string"))
    one_of(place, "tombstones", tombstones, ("quarantine", "keep"))
    if extra is not None:
        one_of(place, "extra", extra, EXTRA)
        if extra != "ignore" and format != "json":
            raise PipelineError(place, f"topic {topic!r}: extra={extra!r} is for format='json', not {format!r}")
    if schema is None and format in ("csv", "avro"):
        raise PipelineError(place, f"topic {topic!r}: format={format!r} needs a schema; only JSON can be inferred")
    if schema is not None and format in ("text", "raw"):
        raise PipelineError(place, f"topic {topic!r}: format={format!r} has one column, value, and takes no schema")
    writers = _writers(place, topic, format, writer_schema, skip_bytes)
    text = _avro_text(place, topic, schema) if format == "avro" else _schema_text(place, schema)
    _check_schema(place, topic, format, text)
    return _source(
        TopicStream(
            topic=topic,
            schema=text,
            writers=writers,
            format=format,
            key=key,
            starting=_begin(place, topic, starting),
            tombstones=tombstones,
            extra=extra or ("warn" if format == "json" else "ignore"),
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
) -> TopicStream:
    """A topic of changes that Debezium captured, as JSON with or without its schemas; `schema` and `key` are of the
    database's table.

    A `@hr.table` that reads it and says nothing else of keys becomes that table: merged by `key`, in the order of the
    database's log, deletes and truncations included. `_op`, `_order` and `_at` (when the database made the change) can
    be used like any column.

    >>> import headrace as hr
    >>> customer_changes = hr.changes("shop.public.customers", "id int, name string", key="id")
    >>> customer_changes.changes.key
    ('id',)
    """
    place = SourceLine.of_caller()
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
        TopicStream(
            topic=topic,
            schema=text,
            format=format,
            key="binary",
            starting=_begin(place, topic, starting),
            tombstones="keep",
            extra="ignore",
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

    >>> import headrace as hr
    >>> sales_feed = hr.stream("current_sales", change_feed=True)
    >>> sales_feed.table
    'current_sales'
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
            place=SourceLine.of_caller(),
        )
    )


def static(table: str, *, format: str = "delta", options: Mapping[str, Any] | None = None) -> Static:
    """A table that streams are joined with: a table's name or a path. Each batch sees it as it is then.

    >>> import headrace as hr
    >>> prices = hr.static("data/prices.csv", format="csv", options={"header": True})
    >>> prices.format
    'csv'
    """
    return _source(
        Static(
            table=table,
            format=format,
            options=options_of(options),
            name=_identifier(table),
            place=SourceLine.of_caller(),
        )
    )


def _source(source: S) -> S:
    declared = collected()
    if declared is not None:
        declared.sources.append(source)
    return source


def _begin(place: SourceLine, topic: str, starting: str | Mapping[Any, int]) -> str | Mapping[str, Mapping[str, int]]:
    begin = starting if isinstance(starting, str) else {topic: {str(p): int(o) for p, o in starting.items()}}
    try:
        place_in_topic(begin)
    except OperatorError as error:
        raise PipelineError(place, f"topic {topic!r}: starting={error}") from error
    return begin


def _schema_text(place: SourceLine, schema: Any) -> str | None:
    """DDL or JSON as it stands; a StructType as its JSON."""
    if schema is None or isinstance(schema, str):
        return schema
    if callable(getattr(schema, "json", None)):
        return str(schema.json())
    raise PipelineError(place, f"schema={schema!r}: give DDL such as 'id string, amount double', or a StructType")


def _avro_text(place: SourceLine, topic: str, schema: Any) -> str:
    """Avro's JSON, or that of a file beside the pipeline's, which is kept with its code."""
    text = json.dumps(schema) if isinstance(schema, dict | list) else schema
    if not isinstance(text, str):
        raise PipelineError(place, f"topic {topic!r}: an Avro schema is JSON or the name of an .avsc file")
    if not text.strip().endswith(".avsc"):
        return text
    try:
        return read_beside(text.strip(), os.path.dirname(place.file)).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise PipelineError(place, f"topic {topic!r}: {text}: {reason.lower()}") from error


def _writers(place: SourceLine, topic: str, format: str, given: Any, skip_bytes: int) -> Mapping[int | None, str]:
    if given is None:
        return MappingProxyType({})
    if format != "avro":
        raise PipelineError(place, f"topic {topic!r}: writer_schema= is for format='avro', not {format!r}")
    by_id = isinstance(given, Mapping) and bool(given) and all(isinstance(each, int) for each in given)
    if by_id and skip_bytes:
        raise PipelineError(
            place, f"topic {topic!r}: skip_bytes={skip_bytes} with a writer_schema per id; remove it: the id is read"
        )
    found = {key: _avro_text(place, topic, each) for key, each in (given if by_id else {None: given}).items()}
    for text in found.values():
        _check_schema(place, topic, format, text)
    return MappingProxyType(found)


def _check_schema(place: SourceLine, topic: str, format: str, schema: str | None) -> None:
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
