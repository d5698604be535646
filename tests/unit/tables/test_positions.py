"""At which versions two tables can be compared, by the offsets in their histories."""

from __future__ import annotations

from pathlib import Path

from delta_tables import write
from hypothesis import given
from hypothesis import strategies as st
from shop import made, topic

from headrace.core.errors import OperatorError
from headrace.tables.delta_log import DeltaLog
from headrace.tables.positions import Pair, Positions, Reached, Stand, common
from headrace.tables.provenance import Source, TableSource


def at(version: int, *ends: int) -> Stand:
    return Stand(version=version, ends={("orders", partition): (end, end) for partition, end in enumerate(ends)})


def versions(pair: Pair | None) -> tuple[int, int, int | None] | None:
    return (pair.a.version, pair.b.version, pair.before.version if pair.before else None) if pair else None


def test_the_newest_versions_at_one_position_are_taken() -> None:
    live = [at(0, 0, 0), at(1, 5, 3), at(2, 9, 6), at(3, 12, 6)]
    assert versions(common(live, [at(0, 0, 0), at(1, 9, 6)])) == (2, 1, None)
    assert versions(common([at(0, 0, 0), at(1, 9, 6)], live)) == (1, 2, None)
    assert versions(common(live, live)) == (3, 3, None)


def test_a_version_between_two_others_is_compared_with_the_later_and_told_the_earlier() -> None:
    live = [at(0, 0, 0), at(1, 5, 3), at(2, 9, 6), at(3, 12, 6)]
    pair = common(live, [at(0, 0, 0), at(1, 6, 6)])
    assert versions(pair) == (2, 1, 1)
    assert pair is not None
    assert pair.side == "a"
    pair = common([at(0, 0, 0), at(1, 6, 6)], live)
    assert versions(pair) == (1, 2, 1)
    assert pair is not None
    assert pair.side == "b"


def test_an_old_meeting_gives_way_to_what_both_have_read_since() -> None:
    live = [at(0, 0), at(1, 10), at(2, 20), at(3, 30)]
    assert versions(common(live, [at(0, 0), at(1, 10), at(2, 25)])) == (3, 2, 2)


def test_where_each_is_ahead_of_the_other_there_is_none() -> None:
    assert common([at(0, 0, 0), at(1, 9, 1)], [at(0, 0, 0), at(1, 1, 9)]) is None


def test_a_topic_read_to_two_offsets_is_no_position() -> None:
    torn = Stand(version=1, ends={("orders", 0): (3, 5)})
    assert versions(common([at(0, 0), at(1, 5)], [torn])) is None
    assert versions(common([at(0, 0), at(1, 4), at(2, 9)], [at(0, 0), torn, at(2, 7)])) == (2, 2, 1)


def test_a_new_version_that_has_read_nothing_stands_at_nothing() -> None:
    assert versions(common([at(0, 0), at(1, 5)], [at(0, 0)])) == (0, 0, None)


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8)


@given(one=STEPS, other=STEPS)
def test_what_is_chosen_is_at_one_position_or_around_it(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    def stands(steps: list[tuple[int, int]]) -> list[Stand]:
        ends, found = [0, 0], [at(0, 0, 0)]
        for number, step in enumerate(steps, 1):
            ends = [end + more for end, more in zip(ends, step, strict=True)]
            found.append(at(number, *ends))
        return found

    a, b = stands(one), stands(other)
    pair = common(a, b)
    meetings = [(x, y) for x in a for y in b if x.ends == y.ends and x.begun]
    if pair is None:
        assert not meetings
    elif pair.before is None:
        assert pair.a.ends == pair.b.ends
        best = max((sum(end for _, end in x.ends.values()) for x, _ in meetings), default=0)
        assert sum(end for _, end in pair.a.ends.values()) == best
    else:
        middle = pair.b if pair.side == "a" else pair.a
        after = pair.a if pair.side == "a" else pair.b
        for place, (_, end) in middle.ends.items():
            assert pair.before.ends[place][1] <= end <= after.ends[place][0]


def positions(directory: Path, reached: dict[str, Reached] | None = None) -> Positions:
    def log_of(table: str) -> DeltaLog:
        if not (directory / table).is_dir():
            raise OperatorError(f"{table}: not of this pipeline")
        return DeltaLog(str(directory / table), table)

    return Positions(log_of, lambda table: (reached or {}).get(table))


def commit(path: Path, batch: int, *sources: Source) -> None:
    write(path, "select 1 as n", made_by=made(path.name, 1, batch, *sources))


def test_a_table_of_a_table_stands_where_that_one_stood(tmp_path: Path) -> None:
    commit(tmp_path / "clean", 0, topic("orders", p0=(0, 5), p1=(0, 2)))
    commit(tmp_path / "clean", 1, topic("orders", p0=(5, 9), p1=(2, 2)))
    commit(tmp_path / "totals", 0, TableSource(table="clean", versions=(0, 0)))
    commit(tmp_path / "totals", 1, TableSource(table="clean", versions=(1, 1)))
    write(tmp_path / "totals", "select 2 as n")  # somebody else's commit moves nothing
    found = positions(tmp_path).stands("totals")
    assert [(stand.version, stand.text()) for stand in found] == [
        (0, "orders 0: 5, 1: 2"),
        (1, "orders 0: 9, 1: 2"),
        (2, "orders 0: 9, 1: 2"),
    ]


def test_two_ways_to_one_topic_are_told_apart(tmp_path: Path) -> None:
    commit(tmp_path / "clean", 0, topic("orders", p0=(0, 5)))
    commit(tmp_path / "clean", 1, topic("orders", p0=(5, 9)))
    commit(tmp_path / "joined", 0, TableSource(table="clean", versions=(0, 0)), topic("orders", p0=(0, 9)))
    commit(tmp_path / "joined", 1, TableSource(table="clean", versions=(1, 1)), topic("orders", p0=(9, 9)))
    first, second = positions(tmp_path).stands("joined")
    assert not first.exact
    assert first.text() == "orders 0: 5 to 9"
    assert second.exact


def test_a_table_of_another_pipeline_counts_by_its_versions(tmp_path: Path) -> None:
    commit(tmp_path / "totals", 0, TableSource(table="elsewhere", versions=(0, 7)))
    assert positions(tmp_path).stands("totals")[0].text() == "elsewhere version 7"


def test_batches_that_changed_nothing_count_by_the_checkpoint(tmp_path: Path) -> None:
    commit(tmp_path / "clean", 0, topic("orders", p0=(0, 5)))
    commit(tmp_path / "totals", 0, TableSource(table="clean", versions=(0, 0)))
    reached = {
        "clean": Reached(batch=3, sources=(topic("orders", p0=(7, 8)),)),
        "totals": Reached(batch=0, sources=(TableSource(table="clean", versions=(0, 0)),)),
    }
    assert [stand.text() for stand in positions(tmp_path, reached).stands("totals")] == ["orders 0: 5", "orders 0: 8"]
    # A checkpoint that is behind the table says nothing of the table.
    commit(tmp_path / "clean", 4, topic("orders", p0=(8, 12)))
    assert [stand.text() for stand in positions(tmp_path, reached).stands("clean")] == ["orders 0: 5", "orders 0: 12"]
