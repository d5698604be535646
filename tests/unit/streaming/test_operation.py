"""Whether a run reads so little that its JVM had better not compile it well."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from pipeline_files import graph_of

from headrace.streaming.kafka import Kafka
from headrace.streaming.operation import SHORT_RUN_RECORDS_MAX, reads_little

Offsets = dict[tuple[str, int], int]


class FakeKafka:
    """Two partitions per topic, the records of each topic in the first."""

    def __init__(self, records: dict[str, int]) -> None:
        self._records = records

    def partitions(self, topic: str) -> int:
        return 2 if topic in self._records else 0

    def beginnings(self, places: Iterable[tuple[str, int]]) -> Offsets:
        return dict.fromkeys(places, 1000)

    def ends(self, places: Iterable[tuple[str, int]]) -> Offsets:
        return {(topic, n): 1_000 + (self._records[topic] if n == 0 else 0) for topic, n in places}


SHOP = """
orders = hr.topic("orders", schema="id string")
clicks = hr.topic("clicks", schema="id string")

@hr.table
def kept(orders):
    return orders

@hr.table
def seen(clicks):
    return clicks
"""
OTHER_TABLE = """
@hr.table
def copied(other):
    return other

other = hr.stream("other")
"""


@pytest.mark.parametrize(
    ("code", "records", "expected"),
    [
        (SHOP, {"orders": 10, "clicks": 10}, True),
        (SHOP, {"orders": 10}, True),
        (SHOP, {"orders": SHORT_RUN_RECORDS_MAX - 10, "clicks": 10}, True),
        (SHOP, {"orders": SHORT_RUN_RECORDS_MAX - 10, "clicks": 11}, False),
        (OTHER_TABLE, {}, False),
    ],
)
def test_a_run_reads_little_when_all_its_topics_hold_little(
    tmp_path: Path, code: str, records: dict[str, int], expected: bool
) -> None:
    kafka: Any = FakeKafka(records)
    assert reads_little(graph_of(tmp_path, code), cast(Kafka, kafka)) is expected
