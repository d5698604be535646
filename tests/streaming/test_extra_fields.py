"""Fields that a topic's schema does not have: none is missed, none is made up, and they go where `extra` says."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from pipeline_runs import Bench

import headrace as hr
from headrace.streaming.parsing import BAD, parser_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RAW = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
SCHEMA = "id int, name string, inner struct<x: int, deep: struct<y: string>>, list array<int>, by map<string, int>"
KNOWN: dict[str, Any] = {"id": None, "name": None, "inner": {"x": None, "deep": {"y": None}}, "list": None, "by": None}


def unknown(value: dict[str, Any], known: dict[str, Any], path: str = "") -> set[str]:
    found = {path + name for name in value if name not in known}
    for name, inner in known.items():
        if isinstance(inner, dict) and isinstance(value.get(name), dict):
            found |= unknown(value[name], inner, f"{path}{name}.")
    return found


def some_record(random: random.Random) -> dict[str, Any]:
    """A record of the schema, in which members are missing, null, and more than there should be."""
    texts = ["", "a", "a, b", ",", '", "', "{", "null", ": ,", "é,ü"]
    deep = {"y": random.choice([*texts, None]), "z": 1}
    inner = {"x": random.choice([1, None]), "deep": deep, "w": "x"}
    whole = {
        "id": random.choice([7, None]),
        "name": random.choice([*texts, None]),
        "inner": inner,
        "list": random.choice([[], [1], [1, 2, 3], None]),
        "by": random.choice([{}, {"a": 1}, {"a": 1, "b": 2}, None]),
        "more": random.choice([1, None, "x,y", {"id": 1}, [1, 2]]),
        "": 5,
    }

    def some(value: Any, odds: float) -> Any:
        if not isinstance(value, dict):
            return value
        left = {
            k: some(v, odds)
            for k, v in value.items()
            if random.random() < (odds if k in ("z", "w", "more", "") else 0.7)
        }
        return dict(random.sample(sorted(left.items()), len(left)))

    odds = random.choice([0.0, 0.2])
    return dict(some(whole, odds))


def test_the_names_of_unknown_fields_are_found_exactly(spark: SparkSession) -> None:
    seed = 12
    chance = random.Random(seed)
    records = [some_record(chance) for _ in range(400)]
    layouts: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 1}, {"separators": (" , ", " : ")}]
    values = [json.dumps(record, **chance.choice(layouts)).encode() for record in records]
    parser = parser_of(hr.topic("t", schema=SCHEMA), SCHEMA)
    rows = [(b"k", value, "t", 0, index, None, None) for index, value in enumerate(values)]
    split = parser.split(spark.createDataFrame(rows, RAW))
    extra = parser.extra()
    made = split.select(BAD, extra.names().alias("names"), extra.suspicious().alias("looked"), "offset").collect()
    assert not any(row[BAD] for row in made)
    found = {row.offset: set(row.names or ()) for row in made}
    for index, record in enumerate(records):
        assert found[index] == unknown(record, KNOWN), (seed, values[index])
    assert sum(not row.looked for row in made) > 0, "some were told without a second look"


def test_unknown_fields_are_counted_and_named_by_default(bench: Bench) -> None:
    path = bench.file("""
        known = hr.topic("extra-known", schema="id int, name string")
        quiet = hr.topic("extra-known", schema="id int, name string", extra="ignore")
        strict = hr.topic("extra-known", schema="id int, name string", extra="quarantine")
        whole = hr.topic("extra-known", schema="id int, name string", extra="keep")

        @hr.table
        def warned(known):
            return known

        @hr.table
        def ignored(quiet):
            return quiet

        @hr.table
        def guarded(strict):
            return strict

        @hr.table
        def kept(whole):
            return whole
        """)
    values: list[Any] = [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b", "coupon": "X, Y", "note": None},
        {"id": 3, "name": "c", "coupon": {"code": 5}},
    ]
    bench.send("extra-known", values, key=lambda value: "k")
    progress = bench.once(path)
    assert progress.nodes["warned"].extra == {"coupon": 2, "note": 1}
    assert progress.nodes["ignored"].extra == {}
    assert [tuple(row) for row in bench.rows("warned")] == [(1, "a"), (2, "b"), (3, "c")]
    assert [tuple(row) for row in bench.rows("guarded")] == [(1, "a")]
    assert [row.reason for row in bench.quarantine("guarded")] == [
        "unknown fields: coupon",
        "unknown fields: coupon, note",
    ]
    assert [tuple(row) for row in bench.rows("kept")] == [
        (1, "a", None),
        (2, "b", {"coupon": "X, Y", "note": None}),
        (3, "c", {"coupon": '{"code":5}'}),
    ]
    assert progress.nodes["kept"].extra == {"coupon": 2, "note": 1}
    assert (progress.nodes["kept"].rows_in, progress.nodes["kept"].rows_out) == (3, 3)
    bench.send("extra-known", [{"id": 4, "note": "n"}], key=lambda value: "k")
    assert bench.once(path).nodes["warned"].extra == {"coupon": 2, "note": 2}
