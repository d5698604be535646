"""NEXMark as a pipeline (examples/nexmark): every table is what DuckDB finds in the same events, after every run.

The log is cut into parts at random, each part into batches of random sizes, and the pipeline is killed in the midst of
one. `make nexmark` runs it: 27 streaming queries are too many for `make test`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from events import SIDE_INPUT, TOPICS, Event, create_topics, events, send, write_side_input
from nexmark_answers import ANSWERS, EVENTS
from oracle import Oracle, stored_rows
from pipeline_runs import Bench, commits, kill_when

FILE = Path(__file__).parents[2] / "examples" / "nexmark" / "nexmark.py"
SHARES = {"PERSON": 1 / 50, "AUCTION": 3 / 50, "BID": 46 / 50}
# Each has a commit for nearly every batch; some begin before others, since tables are read once they are written.
KILLED_AT = ("q17", "q18", "valid_bids", "best_prices", "bid_counts")


class House:
    """The auction house: its log, sent part by part, and what DuckDB makes of as much as was sent."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._oracle = Oracle(EVENTS)
        self._oracle.add("side_input", [{"key": key, "value": value} for key, value in SIDE_INPUT])
        write_side_input(bench.tables)
        # What a watermark calls late is told by the order of the bids, which one partition has.
        create_topics(bench.broker.bootstrap_servers, partitions={"bids": 1})

    def send(self, part: list[Event]) -> None:
        send(self._bench.broker.bootstrap_servers, part)
        for topic in TOPICS:
            given = [event for event in part if event.topic == topic]
            self._oracle.add(topic, [{**event.value, "log_at": event.log_time} for event in given])

    def check(self, said: str) -> Counter[str]:
        """Rows of each query, all of which are right."""
        totals = Counter[str]()
        for query, answer in ANSWERS.items():
            totals[query], wrong = self._oracle.differences(answer, stored_rows(f"{self._bench.tables}/{query}"))
            assert not wrong, f"{said}: {query}: {len(wrong)} rows differ from {totals[query]}: {wrong[:5]}"
        return totals


def parts(seed: int, count: int, cuts: int) -> Iterator[list[Event]]:
    """The first has an event of each kind."""
    given = list(events(seed, count, step_ms=1_500))
    ends = sorted(random.Random(seed).sample(range(60, count), cuts))
    for begin, end in zip([0, *ends], [*ends, count], strict=True):
        yield given[begin:end]


def in_batches(bench: Bench, seed: int, count: int) -> str:
    """The example, but for the sizes of its batches."""
    chance, code = random.Random(seed), FILE.read_text()
    for schema, share in SHARES.items():
        size = max(2, round(share * chance.randrange(count // 10, count // 4)))
        whole, bounded = f"schema={schema})", f"schema={schema}, max_offsets_per_trigger={size})"
        assert code.count(whole) == 1, schema
        code = code.replace(whole, bounded)
    path = bench.directory / FILE.name
    path.write_text(code)
    return str(path)


def test_every_query_gives_what_duckdb_gives_after_every_part_of_the_log(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    count = request.config.getoption("--events")
    if not count:
        pytest.skip("make nexmark EVENTS=250 runs it")
    seed = request.config.getoption("--seed") or 20261118
    house, said, file = House(bench), f"seed {seed}", in_batches(bench, seed, count)
    for number, part in enumerate(parts(seed, count, 2)):
        house.send(part)
        if number == 1:
            last = random.Random(seed).choice(KILLED_AT)
            before = commits(bench, last, "nexmark")
            kill_when(bench, file, lambda: commits(bench, last, "nexmark") > before)  # noqa: B023 - called in this round
            said += f", killed after a batch of {last}"
        bench.once(file)
        totals = house.check(f"{said}, part {number}")
    print(f"{said}: {count} events, rows {dict(totals)}")
    assert not [query for query in ANSWERS if not totals[query]], f"{said}: a query without rows proves nothing"
