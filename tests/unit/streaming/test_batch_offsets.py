"""Which offsets made a batch, from files as Spark writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import InvariantError
from headrace.streaming.batch_offsets import batch_ranges, parse_offsets, ranges_text
from headrace.tables.provenance import TableSource, TopicSource


def offsets(checkpoint: Path, batch: int, *sources: dict[str, Any] | None) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', *(json.dumps(each) if each is not None else "-" for each in sources)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def delta(version: int, index: int = -1, starting: bool = False) -> dict[str, Any]:
    return {"sourceVersion": 1, "reservoirId": "id-1", "reservoirVersion": version, "index": index,
            "isStartingVersion": starting}  # fmt: skip


def test_a_topic_s_range_is_from_the_end_of_the_batch_before(tmp_path: Path) -> None:
    offsets(tmp_path, 3, {"orders": {"0": 100, "1": 90}})
    offsets(tmp_path, 4, {"orders": {"0": 250, "1": 90}})
    assert batch_ranges(str(tmp_path), 4, {}) == (TopicSource(topic="orders", ranges={0: (100, 250), 1: (90, 90)}),)


def test_the_first_batch_begins_where_the_source_says(tmp_path: Path) -> None:
    offsets(tmp_path, 0, {"orders": {"0": 250}})
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_bytes(b'\0v1\n{"orders":{"0":100}}')
    assert batch_ranges(str(tmp_path), 0, {}) == (TopicSource(topic="orders", ranges={0: (100, 250)}),)


def test_a_partition_that_was_added_begins_at_its_first_record(tmp_path: Path) -> None:
    offsets(tmp_path, 0, {"orders": {"0": 10}})
    offsets(tmp_path, 1, {"orders": {"0": 12, "1": 5}})
    assert batch_ranges(str(tmp_path), 1, {}) == (TopicSource(topic="orders", ranges={0: (10, 12), 1: (0, 5)}),)


@pytest.mark.parametrize(
    ("before", "now", "versions"),
    [
        (None, delta(5, starting=True, index=3), (0, 5)),
        (None, delta(6), (0, 5)),
        (delta(6), delta(8), (6, 7)),
        (delta(6), delta(7, index=2), (6, 7)),
        (delta(7, index=2), delta(8), (7, 7)),
    ],
)
def test_a_table_s_versions_are_those_that_were_read(
    tmp_path: Path, before: dict[str, Any] | None, now: dict[str, Any], versions: tuple[int, int]
) -> None:
    offsets(tmp_path, 0, before)
    offsets(tmp_path, 1, now)
    assert batch_ranges(str(tmp_path), 1, {"id-1": "clean"}) == (TableSource(table="clean", versions=versions),)


def test_a_batch_without_news_of_a_table_has_none_of_its_versions(tmp_path: Path) -> None:
    offsets(tmp_path, 0, delta(6))
    offsets(tmp_path, 1, delta(6))
    assert batch_ranges(str(tmp_path), 1, {}) == ()


def test_a_topic_read_twice_is_named_once(tmp_path: Path) -> None:
    offsets(tmp_path, 0, {"orders": {"0": 10}}, {"orders": {"0": 12}})
    offsets(tmp_path, 1, {"orders": {"0": 20}}, {"orders": {"0": 20}})
    assert batch_ranges(str(tmp_path), 1, {}) == (TopicSource(topic="orders", ranges={0: (10, 20)}),)


def test_offsets_of_another_format_are_not_guessed_at() -> None:
    with pytest.raises(InvariantError, match="another Spark wrote them"):
        parse_offsets("v9\n{}\n{}")


def test_a_person_reads_both_ends_included() -> None:
    sources = (
        TopicSource(topic="orders", ranges={1: (5, 5), 0: (100, 250)}),
        TableSource(table="clean", versions=(3, 5)),
    )
    assert ranges_text(sources) == "orders offsets 0: 100-249; clean versions 3-5"
