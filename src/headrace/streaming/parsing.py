"""From a record's bytes to columns, and the exact test of what could not be parsed.

Spark's own parsers are lenient in places: they take the first of several JSON values, and keep what they could read
of a record with a wrong type. Here a record is either whole or bad, and no third thing.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.streaming.debezium import EXTRA_COLUMNS, CapturedChange, envelope
from headrace.streaming.declarations import METADATA_COLUMNS, PipelineError, TopicStream
from headrace.streaming.extra_fields import EXTRA_COLUMN, NAMES, ExtraFields
from headrace.streaming.spark_errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

CORRUPT = "_headrace_corrupt"
PARSED = "_headrace_parsed"
BAD = "_headrace_bad"
VALUE_COLUMN = "value"
VALUE_CHARS_MAX = 80
FRAME_BYTES = 5  # a zero and the schema's id
_SEVERAL_VALUES = r"\}\s*\{"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """One topic's: its columns, and the expressions that make them of `value`."""

    topic: TopicStream
    schema: "StructType"
    avro: str | None = None

    def split(self, raw: "DataFrame") -> "DataFrame":
        """Adds BAD, and PARSED where values have a structure; nothing is filtered."""
        from pyspark.sql import functions as F

        if self.topic.format in ("text", "raw"):
            empty = F.col("value").isNull() if self.topic.tombstones == "quarantine" else F.lit(False)
            return raw.withColumn(BAD, empty)
        parsed = raw.withColumn(PARSED, self._parsed())
        return parsed.withColumn(BAD, self._bad())

    def columns(self) -> "list[Column]":
        """The topic's columns as its readers see them, from what `split` made."""
        from pyspark.sql import functions as F

        match self.topic.format:
            case "raw":
                values = [F.col("value")]
            case "text":
                values = [F.col("value").cast("string").alias(VALUE_COLUMN)]
            case "debezium":
                values = self._change().columns()
            case _:
                values = [F.col(f"{PARSED}.{_quoted(name)}").alias(name) for name in self.schema.names]
        if self.topic.extra == "keep":
            values.append(self.extra().kept().alias(EXTRA_COLUMN))
        key = F.col("key") if self.topic.key == "binary" else F.col("key").cast("string")
        return [
            *values,
            key.alias("_key"),
            F.col("headers").alias("_headers"),
            F.col("topic").alias("_topic"),
            F.col("partition").alias("_partition"),
            F.col("offset").alias("_offset"),
            F.col("timestamp").alias("_timestamp"),
        ]

    @property
    def counts_extra(self) -> bool:
        return self.topic.format == "json" and self.topic.extra in ("warn", "keep")

    def extra(self) -> ExtraFields:
        from pyspark.sql import functions as F

        return ExtraFields(self.schema, self._text(), F.col(PARSED))

    def skipped(self) -> "Column | None":
        """Records that are whole and give no row; None where there are none such."""
        from pyspark.sql import functions as F

        return None if self.topic.changes is None else F.col("value").isNull() | self._change().skipped()

    def reason(self) -> "Column":
        """Why a bad record is bad, for a person; this may be slow, for it is asked of bad records only."""
        from pyspark.sql import functions as F

        why = F.when(F.col("value").isNull(), "no value (a tombstone)")
        match self.topic.format:
            case "json":
                why = self._json_reason(why)
            case "debezium":
                why = why.when(F.json_object_keys(self._text()).isNull(), "malformed JSON, or not an object")
                why = why.when(F.col(PARSED).isNull() | F.col(PARSED)[CORRUPT].isNotNull(), "not of the declared types")
                unlogged = "unchanged large column not logged; set REPLICA IDENTITY FULL"
                why = why.when(self._change().op().isin("c", "u", "r") & self._change().unlogged(), unlogged)
                why = why.otherwise(F.lit("not a change that Debezium writes: no op, or no row for it"))
            case "csv":
                why = why.otherwise(F.lit(f"not CSV of {len(self.schema)} columns of the declared types"))
            case "avro":
                ids = [F.lit(key) for key in self.topic.writers if key is not None]
                if ids:
                    unframed = self._writer_id().isNull()
                    why = why.when(unframed, "no schema id in front: a zero and four bytes")
                    said = F.concat(F.lit("schema id "), self._writer_id().cast("string"), F.lit(" is not known"))
                    why = why.when(~self._writer_id().isin(*ids), said)
                why = why.otherwise(F.lit("not Avro of the declared schema"))
        return why

    def _text(self) -> "Column":
        from pyspark.sql import functions as F

        value = F.col("value")
        if self.topic.skip_bytes:
            value = F.substring(value, self.topic.skip_bytes + 1, 2**31 - 1)
        return value if self.topic.format == "avro" else value.cast("string")

    def _writer_id(self) -> "Column":
        """The id of the schema that a value was written with, as schema registries put it in front; null for none."""
        from pyspark.sql import functions as F

        head = F.hex(F.substring(F.col("value"), 1, FRAME_BYTES))
        framed = head.startswith("00") & (F.length(head) == 2 * FRAME_BYTES)
        return F.when(framed, F.conv(F.substring(head, 3, 8), 16, 10).cast("bigint"))

    def _parsed(self) -> "Column":
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        if self.topic.format == "avro":
            from pyspark.sql.avro.functions import from_avro

            reader = _wrapped(self.avro or "")
            writers = self.topic.writers
            if not writers:
                return from_avro(self._text(), reader, {"mode": "PERMISSIVE"})["value"]
            options = {"mode": "PERMISSIVE", "avroSchema": reader}
            if None in writers:
                return from_avro(self._text(), _wrapped(writers[None]), options)["value"]
            body = F.substring(F.col("value"), FRAME_BYTES + 1, 2**31 - 1)
            by_id = [
                (key, from_avro(body, _wrapped(text), options)["value"])
                for key, text in writers.items()
                if key is not None
            ]
            chosen = F.when(self._writer_id().eqNullSafe(by_id[0][0]), by_id[0][1])
            for key, parsed in by_id[1:]:
                chosen = chosen.when(self._writer_id().eqNullSafe(key), parsed)
            return chosen
        options = {**self.topic.parse_options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        fields = self.schema if self.topic.changes is None else envelope(self.schema)
        schema = StructType([*fields.fields, StructField(CORRUPT, StringType())])
        if self.topic.format == "csv":
            columns = ", ".join(f"{_quoted(each.name)} {each.dataType.simpleString()}" for each in schema.fields)
            return F.from_csv(self._text(), columns, options)
        return F.from_json(self._text(), schema, options)

    def _bad(self) -> "Column":
        from pyspark.sql import functions as F

        parsed = F.col(PARSED)
        unreadable = parsed.isNull()
        if self.topic.format != "avro":
            unreadable = unreadable | parsed[CORRUPT].isNotNull()
        if self.topic.format in ("json", "debezium"):
            unreadable = unreadable | self._several_values()
        if self.topic.changes is not None:
            unreadable = unreadable | ~self._change().whole()
        if self.topic.extra == "quarantine":
            unreadable = unreadable | self.extra().names().isNotNull()
        if self.topic.tombstones == "keep":
            return F.col("value").isNotNull() & F.coalesce(unreadable, F.lit(True))
        return F.coalesce(unreadable, F.lit(True))

    def _change(self) -> CapturedChange:
        from pyspark.sql import functions as F

        rules = self.topic.changes
        key = F.col("key").cast("string")
        return CapturedChange(F.col(PARSED), key, self.schema, rules.key if rules is not None else ())

    def _several_values(self) -> "Column":
        """`{..}{..}` and `{..}rest`: Spark would read the first. Only what looks like it is parsed again."""
        from pyspark.sql import functions as F

        text = self._text()
        ends_well = text.endswith("}") | F.rtrim(text, F.lit(" \t\r\n")).endswith("}")
        # Plain objects, which most are, have one brace, the first: bytes are looked through sooner than a pattern.
        rest = F.substring(F.col("value"), self.topic.skip_bytes + 2, 2**31 - 1)
        nested = F.contains(rest, F.lit(b"{"))
        looks_like_it = ~ends_well | (nested & text.rlike(_SEVERAL_VALUES))
        # Not from_json: that would keep the whole projection out of Spark's code generation.
        elements = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
        return looks_like_it & (F.coalesce(elements, F.lit(-1)) != 1)

    def _json_reason(self, why: "Column") -> "Column":
        from pyspark.sql import functions as F

        text = self._text()
        wrong = []
        for column in self.schema.fields:
            alone = f"{_quoted(column.name)} {column.dataType.simpleString()}, {CORRUPT} string"
            options = {**self.topic.parse_options, "columnNameOfCorruptRecord": CORRUPT}
            fits = F.from_json(text, alone, options)[CORRUPT].isNull()
            wrong.append(F.when(~fits, _not_of_type(text, column)))
        why = why.when(F.trim(text) == "", "empty value")
        why = why.when(F.json_object_keys(text).isNull(), "malformed JSON, or not an object")
        why = why.when(self._several_values(), "more than one JSON value")
        if self.topic.extra == "quarantine":
            names = self.extra().names()
            why = why.when(names.isNotNull(), F.concat(F.lit("unknown fields: "), F.array_join(names, ", ")))
        if wrong:
            names = F.array_join(F.array_compact(F.array(*wrong)), "; ")
            why = why.when(names != "", F.concat(F.lit("wrong type: "), names))
        return why.otherwise(F.lit("not JSON of the declared schema"))


def _wrapped(schema: str) -> str:
    """A record in a record has the same bytes, and is null as a whole when they cannot be read."""
    fields = [{"name": "value", "type": json.loads(schema)}]
    return json.dumps({"type": "record", "name": "headrace_value", "fields": fields})


def _not_of_type(text: "Column", column: "StructField") -> "Column":
    """`amount is 'x', not double`"""
    from pyspark.sql import functions as F

    kind = column.dataType.simpleString()
    if "'" in column.name:
        return F.lit(f"{column.name} is not {kind}")
    value = F.substring(F.get_json_object(text, f"$['{column.name}']"), 1, VALUE_CHARS_MAX)
    named = F.concat(F.lit(f"{column.name} is '"), value, F.lit(f"', not {kind}"))
    return F.coalesce(named, F.lit(f"{column.name} is not {kind}"))


def parser_of(topic: TopicStream, schema: str | None) -> Parser:
    """`schema` is the declared one or, where none was declared, the one that was inferred."""
    from pyspark.sql.types import BinaryType, StringType, StructType

    if topic.format == "raw":
        return Parser(topic=topic, schema=StructType().add(VALUE_COLUMN, BinaryType()))
    if topic.format == "text":
        return Parser(topic=topic, schema=StructType().add(VALUE_COLUMN, StringType()))
    if schema is None:
        raise PipelineError(topic.place, f"topic {topic.topic!r}: has no schema yet")
    avro = None
    if topic.format == "avro":
        avro, columns = schema, _avro_columns(topic, schema)
    else:
        columns = _columns(topic, schema)
    own = (*METADATA_COLUMNS, CORRUPT, PARSED, BAD, NAMES, *(EXTRA_COLUMNS if topic.changes is not None else ()))
    own = (*own, EXTRA_COLUMN) if topic.extra == "keep" else own
    taken = [name for name in columns.names if name in own]
    if topic.changes is not None and (unknown := [name for name in topic.changes.key if name not in columns.names]):
        raise PipelineError(
            topic.place, f"changes {topic.topic!r}: the key {unknown[0]!r} is not in the schema; add it there"
        )
    if taken:
        raise PipelineError(
            topic.place,
            f"topic {topic.topic!r}: every topic has a column {taken[0]!r} of its own; rename that of the schema",
        )
    return Parser(topic=topic, schema=columns, avro=avro)


def _columns(topic: TopicStream, schema: str) -> "StructType":
    from pyspark.sql.types import StructType

    try:
        if schema.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(schema))
        columns: Any = StructType.fromDDL(schema)
    except Exception as error:
        raise PipelineError(topic.place, f"topic {topic.topic!r}: schema {schema!r}: {first_line(error)}") from error
    if not isinstance(columns, StructType):
        raise PipelineError(topic.place, f"topic {topic.topic!r}: schema {schema!r} is not a list of columns")
    return columns


def _avro_columns(topic: TopicStream, schema: str) -> "StructType":
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.types import StructType

    try:
        json.loads(schema)
        spark = SparkSession.active()
        kind: Any = spark.range(0).select(from_avro(F.lit(b""), schema).alias("v")).schema["v"].dataType
    except Exception as error:
        raise PipelineError(topic.place, f"topic {topic.topic!r}: Avro schema: {first_line(error)}") from error
    if not isinstance(kind, StructType):
        raise PipelineError(topic.place, f"topic {topic.topic!r}: the Avro schema must be a record")
    return kind


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
