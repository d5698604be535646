"""Whether a run reads so little that its JVM had better not compile it well."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from pipeline_files import graph_of, write

from headrace.core.errors import OperatorError
from headrace.streaming import operation
from headrace.streaming.kafka import Kafka
from headrace.streaming.launching import Launch, launch_live
from headrace.streaming.operation import SHORT_RUN_RECORDS_MAX, reads_little, run_version
from headrace.streaming.progress import NodeProgress, RunProgress
from headrace.streaming.run_settings import RunSettings
from headrace.tables.catalog import pipelines

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


def test_a_failed_first_run_leaves_no_pipeline_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that could not begin, nor one whose first batches failed; one that wrote something stays."""
    tables = str(tmp_path / "tables")
    file = write(tmp_path, SHOP)
    outcome: list[RunProgress | BaseException] = []

    def run(launch: Launch, *_: object) -> RunProgress:
        assert launch.catalog.live is not None
        (ended,) = outcome
        if isinstance(ended, BaseException):
            raise ended
        return ended

    def failed(**node: Any) -> RunProgress:
        nodes = {"kept": NodeProgress(name="kept", status="failed", **node)}
        return RunProgress(pipeline="shop", version=1, status="failed", nodes=nodes)

    monkeypatch.setattr(operation, "_run", run)
    for error in (OperatorError("no broker"), KeyboardInterrupt()):
        outcome[:] = [error]
        with pytest.raises(type(error)):
            run_version(launch_live(file, tables), RunSettings(tables_dir=tables))
        assert pipelines(tables) == ()
    outcome[:] = [failed()]
    assert run_version(launch_live(file, tables), RunSettings(tables_dir=tables)).status == "failed"
    assert pipelines(tables) == ()
    outcome[:] = [failed(batches=1)]
    run_version(launch_live(file, tables), RunSettings(tables_dir=tables))
    assert pipelines(tables) == ("shop",)
    outcome[:] = [failed()]  # not the first run any more
    run_version(launch_live(file, tables), RunSettings(tables_dir=tables))
    assert pipelines(tables) == ("shop",)


@pytest.mark.parametrize("written", [True, False])
def test_a_first_run_that_was_interrupted_is_kept_if_it_has_written(tmp_path: Path, written: bool) -> None:
    launch = launch_live(write(tmp_path, SHOP), str(tmp_path / "tables"))
    if written:
        commits = Path(launch.catalog.layout.checkpoint_dir(launch.version, "seen"), "commits")
        commits.mkdir(parents=True)
        (commits / "0").write_text("v1\n{}")
    operation.forget_unwritten(launch, None)
    assert bool(pipelines(str(tmp_path / "tables"))) is written
