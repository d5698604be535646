"""Where in a topic to begin."""

from __future__ import annotations

import json

import pytest

from headrace.core.errors import OperatorError
from headrace.streaming.starting import starting


def test_the_ends_of_a_topic_are_spark_s_own_words() -> None:
    assert starting("earliest").options("orders", 2) == {"startingOffsets": "earliest"}
    assert starting("latest").options("orders", 2) == {"startingOffsets": "latest"}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-31T10:00:00Z", 1769853600000),
        ("2026-01-31T11:00+01:00", 1769853600000),
        ("2026-01-31 10:00", 1769853600000),
    ],
)
def test_a_time_is_utc_unless_it_says_otherwise(text: str, ms: int) -> None:
    options = starting(text).options("orders", 2)
    assert options["startingTimestamp"] == str(ms)
    assert options["startingOffsetsByTimestampStrategy"] == "latest"


def test_a_partition_that_is_not_named_begins_at_its_first_record() -> None:
    options = starting("orders:1=20,orders:0=5,other:0=7").options("orders", 3)
    assert json.loads(options["startingOffsets"]) == {"orders": {"0": 5, "1": 20, "2": -2}}
    assert json.loads(starting("0=9").options("x", 1)["startingOffsets"]) == {"x": {"0": 9}}


def test_declared_offsets_are_taken_as_they_are() -> None:
    assert json.loads(starting({"orders": {"0": 4}}).options("orders", 1)["startingOffsets"]) == {"orders": {"0": 4}}


@pytest.mark.parametrize("text", ["yesterday", "orders:0", "orders:x=1", "orders:0=", "0=-1", ""])
def test_what_is_no_place_is_said(text: str) -> None:
    with pytest.raises(OperatorError, match=r"not a place in a topic|not an offset"):
        starting(text)


def test_a_partition_that_the_topic_has_not_is_said() -> None:
    with pytest.raises(OperatorError, match=r"orders: partition 3 is outside \[0, 2\)"):
        starting("orders:3=1").options("orders", 2)
