from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.kafka.group_reset import export, parse_datetime, parse_duration, parse_places, read_plan
from headrace.cli.kafka.tool import ToolError, UsageError


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("1970-01-02T00:00:00.000Z", 86_400_000),
        ("1970-01-01T00:00:01", 1000),
    ],
)
def test_dates_are_utc_unless_they_say_otherwise(text: str, ms: int) -> None:
    assert parse_datetime(text) == ms


@pytest.mark.parametrize("text", ["1970-01-01", "yesterday", "1970-13-01T00:00:00.000"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match=text):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1S", 1000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("-PT1M", -60_000),
        ("PT-1.5S", -1500),
        ("pt0.001s", 1),
    ],
)
def test_durations_are_java_s(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT1D"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match="cannot be parsed to a Duration"):
        parse_duration(text)


def test_partitions_are_named_behind_a_colon() -> None:
    assert parse_places("t:0,2") == [("t", 0), ("t", 2)]
    with pytest.raises(UsageError, match="Invalid partition 'x'"):
        parse_places("t:x")
    with pytest.raises(UsageError, match="expected topic name and partitions"):
        parse_places("t:1:2")


def test_an_exported_plan_is_read_again(tmp_path: Path) -> None:
    long = "a-topic-with-a-name-that-is-long"
    plans = {"g": {("t", 0): 5, (long, 1): 7}}
    text = export(plans, ["g"])
    assert text == f'"{long}",1,7\nt,0,5\n'
    file = tmp_path / "plan.csv"
    file.write_text(text)
    assert read_plan(str(file), ["g"]) == plans
    both = plans | {"h": {("t", 0): 6}}
    file.write_text(export(both, ["g", "h"]))
    assert read_plan(str(file), ["g", "h"]) == both
    file.write_text("t,zero,5\n")
    with pytest.raises(ToolError, match=r"plan\.csv:1: .* is not topic,partition,offset"):
        read_plan(str(file), ["g"])
