"""What of a topic's values becomes a row and what does not, value by value. A record is whole or bad."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.core.errors import OperatorError
from headrace.streaming.declarations import TopicStream
from headrace.streaming.parsing import BAD, parser_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RAW = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
SCHEMA = "id int, amount double, name string, at timestamp, day date, inner struct<x: int>, list array<int>"
AVRO = (
    '{"type":"record","name":"order","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"]}]}'
)


def parsed(spark: SparkSession, topic: TopicStream, *values: bytes | None) -> list[Any]:
    """Of each value its row as a dict, or the reason why it is none."""
    parser = parser_of(topic, topic.schema)
    rows = [(b"k", value, "t", 0, index, None, None) for index, value in enumerate(values)]
    split = parser.split(spark.createDataFrame(rows, RAW))
    made = split.select(BAD, parser.reason().alias("reason"), *parser.columns()).orderBy("_offset").collect()
    own = parser.schema.names
    return [row.reason if row[BAD] else {name: row[name] for name in own if row[name] is not None} for row in made]


def test_json_is_whole_or_bad(spark: SparkSession) -> None:
    cases: dict[bytes | None, Any] = {
        b'{"id": 1, "amount": 1.5, "name": "x"}': {"id": 1, "amount": 1.5, "name": "x"},
        b' {"id": 1}\r\n': {"id": 1},
        b'{"id": null}': {},
        b"{}": {},
        b'{"id": 1, "more": 5}': {"id": 1},
        b'{"name": "} {"}': {"name": "} {"},
        b'{"list": [1, 2], "inner": {"x": 3}}': {"list": [1, 2], "inner": (3,)},
        b'{"id": "1"}': "wrong type: id is '1', not int",
        b'{"id": 1.5, "amount": "x"}': "wrong type: id is '1.5', not int; amount is 'x', not double",
        b'{"id": 99999999999}': "wrong type: id is '99999999999', not int",
        b'{"at": "yesterday"}': "wrong type: at is 'yesterday', not timestamp",
        b'{"day": "2026-13-01"}': "wrong type: day is '2026-13-01', not date",
        b'{"inner": {"x": "y"}}': 'wrong type: inner is \'{"x":"y"}\', not struct<x:int>',
        b'{"list": ["x"]}': "wrong type: list is '[\"x\"]', not array<int>",
        b"{bad": "malformed JSON, or not an object",
        b'{"id": 1': "malformed JSON, or not an object",
        b"[1, 2]": "malformed JSON, or not an object",
        b"5": "malformed JSON, or not an object",
        b"null": "malformed JSON, or not an object",
        b"\xff\xfe\x00": "malformed JSON, or not an object",
        b'{"id": 1}{"id": 2}': "more than one JSON value",
        b'{"id": 1}\n{"id": 2}': "more than one JSON value",
        b'{"id": 1} rest': "more than one JSON value",
        b"": "empty value",
        b"  ": "empty value",
        None: "no value (a tombstone)",
    }
    found = parsed(spark, hr.topic("t", schema=SCHEMA), *cases)
    assert dict(zip(cases, found, strict=True)) == cases


def test_unknown_fields_are_left_out_unless_they_shall_be_kept_out(spark: SparkSession) -> None:
    topic = hr.topic("t", schema="id int", extra="quarantine")
    assert parsed(spark, topic, b'{"id": 1}', b'{"id": 1, "b": 2, "a": 3}') == [{"id": 1}, "unknown fields: b, a"]


def test_a_tombstone_is_a_row_of_nulls_where_it_is_wanted(spark: SparkSession) -> None:
    assert parsed(spark, hr.topic("t", schema="id int", tombstones="keep"), None, b"{bad") == [
        {},
        "malformed JSON, or not an object",
    ]


def test_csv_is_whole_or_bad(spark: SparkSession) -> None:
    topic = hr.topic("t", schema="id int, name string", format="csv", parse_options={"sep": ";"})
    assert parsed(spark, topic, b"1;x", b'2;"a;b"', b"x;y", b"1", b"1;2;3") == [
        {"id": 1, "name": "x"},
        {"id": 2, "name": "a;b"},
        *["not CSV of 2 columns of the declared types"] * 3,
    ]


def test_avro_is_whole_or_bad_also_behind_the_bytes_of_a_registry(spark: SparkSession) -> None:
    order = b"\x02\x02\x04hi"  # id 1, the second of the union, two letters
    assert parsed(spark, hr.topic("t", schema=AVRO, format="avro"), order, b"\x02\x00", b"\x02\x02\x40") == [
        {"id": 1, "name": "hi"},
        {"id": 1},
        "not Avro of the declared schema",
    ]
    framed = struct.pack(">bI", 0, 7) + order
    topic = hr.topic("t", schema=AVRO, format="avro", skip_bytes=5)
    assert parsed(spark, topic, framed) == [{"id": 1, "name": "hi"}]


def test_text_and_bytes_are_what_they_are(spark: SparkSession) -> None:
    assert parsed(spark, hr.topic("t", format="text"), b"hello", None) == [{"value": "hello"}, "no value (a tombstone)"]
    assert parsed(spark, hr.topic("t", format="raw"), b"\xff") == [{"value": bytearray(b"\xff")}]


@pytest.mark.parametrize(
    ("schema", "format", "says"),
    [
        ("id integr", "json", r"schema 'id integr'"),
        ("_offset int", "json", "every topic has a column '_offset' of its own"),
        ("{", "avro", "the schema is not JSON"),
        ('{"type": "rekord"}', "avro", "Avro schema"),
        ('"string"', "avro", "must be a record"),
    ],
)
def test_a_schema_that_is_none_is_said_with_its_line(spark: SparkSession, schema: str, format: Any, says: str) -> None:
    with pytest.raises(OperatorError, match=rf"test_parsing\.py:\d+: .*{says}"):
        parser_of(hr.topic("t", schema=schema, format=format), schema)


OLD = '{"type":"record","name":"order","fields":[{"name":"id","type":"int"},{"name":"gone","type":"string"}]}'
NOW = (
    '{"type":"record","name":"order","fields":[{"name":"id","type":"long"},'
    '{"name":"city","type":"string","default":"?"},{"name":"name","type":["null","string"],"default":null}]}'
)


def test_avro_of_another_writer_is_read_by_the_rules_of_resolution(spark: SparkSession) -> None:
    old = b"\x02\x04ab"  # id 1 as an int, and a field that readers no longer have
    topic = hr.topic("t", schema=NOW, format="avro", writer_schema=OLD)
    assert parsed(spark, topic, old, b"\x02\x40") == [{"id": 1, "city": "?"}, "not Avro of the declared schema"]


def test_avro_with_a_schema_per_id_reads_each_value_by_its_own(spark: SparkSession) -> None:
    def framed(number: int, body: bytes) -> bytes:
        return struct.pack(">bI", 0, number) + body

    topic = hr.topic("t", schema=NOW, format="avro", writer_schema={7: OLD, 300: NOW})
    values = [framed(7, b"\x02\x04ab"), framed(300, b"\x04\x02X\x02\x04hi"), framed(9, b"\x02"), b"\x02\x04ab"]
    assert parsed(spark, topic, *values) == [
        {"id": 1, "city": "?"},
        {"id": 2, "city": "X", "name": "hi"},
        "schema id 9 is not known",
        "no schema id in front: a zero and four bytes",
    ]
