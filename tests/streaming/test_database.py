"""A database's life: its changes, delivered more than once and out of order, are its table again at every position.

Each commit of the table says up to which offsets it has read. What the database held by then is computed here, and
compared with the table at that version. `make database` does it with 100,000 changes and kills the pipeline once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from changes import Change, life, redelivered
from pipeline_runs import Bench, commits, kill_when

from headrace.tables.provenance import TopicSource, decode
from headrace.tables.reading import open_snapshot

CODE = """
changes = hr.topic("{topic}", schema="id int, lsn long, op string, name string", max_offsets_per_trigger={size})

@hr.table(key="id", order_by="lsn", delete="op = 'd'", leave_out=["op", "lsn"])
def people(changes):
    return changes
"""
QUICK_CHANGES = 400


def test_the_table_is_the_database_at_every_position_that_was_committed(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    whole = request.config.getoption("--changes")
    count, seed = whole or QUICK_CHANGES, request.config.getoption("--seed") or 5
    log = redelivered(life(seed, count, max(10, count // 20)), seed)
    topic, half = f"database-{seed}", len(log) // 2
    file = bench.file(CODE.format(topic=topic, size=len(log) // (20 if whole else 5)))
    bench.send(topic, [change.record() for change in log[:half]], key=_key)
    if whole:
        kill_when(bench, file, lambda: commits(bench, "people") > 4)
    bench.once(file)
    bench.send(topic, [change.record() for change in log[half:]], key=_key)
    bench.once(file)
    checked = 0
    for version, ends, held in states(bench, topic, len(log)):
        table = open_snapshot(bench.version_path("people"), version=version).table
        found = table.to_pyarrow_table(columns=["id", "name"]).to_pylist()
        assert len(found) == len(held), f"seed {seed}, version {version}, at {ends}"
        assert {row["id"]: row["name"] for row in found} == held, f"seed {seed}, version {version}, at {ends}"
        checked += 1
    assert checked >= (20 if whole else 4)
    print(f"seed {seed}: {len(log)} records of {count} changes, {len(held)} rows, {checked} positions")


def states(bench: Bench, topic: str, records: int) -> Iterator[tuple[int, dict[int, int], dict[int, str | None]]]:
    """Each version of the table with the offsets that it has reached, and what the database held by then."""
    partitions: dict[int, list[Change]] = {}
    for record in bench.records(topic):
        partitions.setdefault(record.partition(), []).append(Change(**json.loads(record.value())))
    assert sum(map(len, partitions.values())) == records
    last: dict[int, Change] = {}
    reached = dict.fromkeys(partitions, 0)
    log = Path(bench.version_path("people")) / "_delta_log"
    for version in range(1, commits(bench, "people")):
        source = topic_source((log / f"{version:020}.json").read_text())
        if source is None:
            continue
        for partition, (begin, end) in source.ranges.items():
            assert begin == reached[partition], f"version {version}: nothing is read twice or left out"
            for change in partitions[partition][begin:end]:
                if change.id not in last or change.lsn >= last[change.id].lsn:
                    last[change.id] = change
            reached[partition] = end
        yield version, dict(reached), {n: each.name for n, each in last.items() if each.op != "d"}
    assert reached == {partition: len(each) for partition, each in partitions.items()}


def topic_source(commit: str) -> TopicSource | None:
    for line in commit.splitlines():
        made = decode(json.loads(line).get("commitInfo", {}).get("userMetadata"))
        for source in made.sources if made is not None else ():
            if isinstance(source, TopicSource):
                return source
    return None


def _key(record: dict[str, Any]) -> str:
    return str(record["id"])
