"""A schema from a sample."""

from __future__ import annotations

import json

import pytest

from headrace.streaming.inference import infer_ddl


def ddl(*records: object) -> str | None:
    return infer_ddl([json.dumps(record).encode() for record in records])


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{"a": 1}, {"a": 2}], "`a` bigint"),
        ([{"a": 1}, {"a": 2.5}], "`a` double"),
        ([{"a": 1}, {"a": "x"}], "`a` string"),
        ([{"a": True}, {"a": None}], "`a` boolean"),
        ([{"a": None}], "`a` string"),
        ([{"a": 1}, {"b": "x"}], "`a` bigint, `b` string"),
        ([{"a": {"b": 1}}, {"a": {"c": 2.0}}], "`a` struct<`b`: bigint, `c`: double>"),
        ([{"a": [1, 2.5]}, {"a": []}], "`a` array<double>"),
        ([{"a": [{"b": 1}]}], "`a` array<struct<`b`: bigint>>"),
        ([{"a": {}}], "`a` map<string,string>"),
        ([{"a": {"b": 1}}, {"a": 3}], "`a` string"),
        ([{"a": 2**70}], "`a` string"),
        ([{"od`d": 1}], "`od``d` bigint"),
    ],
)
def test_the_narrowest_type_that_holds_every_value(records: list[object], expected: str) -> None:
    assert ddl(*records) == expected


def test_what_is_not_an_object_says_nothing() -> None:
    assert infer_ddl([b"{bad", b"[1]", b"5", b"", b"[" * 100_000]) is None
    assert infer_ddl([b"{bad", b'{"a": 1}']) == "`a` bigint"
