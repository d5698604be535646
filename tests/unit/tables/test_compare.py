"""Two tables, or two versions of one, against a slow and obvious comparison in Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from delta_tables import write
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import OperatorError
from headrace.tables.compare import compare, parts_needed
from headrace.tables.reading import open_snapshot

ROWS = st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 2)), max_size=8)


def table(path: Path, rows: list[tuple[int | None, int | None]]) -> str:
    values = ", ".join(f"({'null' if k is None else k}, {'null' if v is None else v})" for k, v in rows)
    body = f"(values {values}) t(k, v)" if rows else "(select null k, null v limit 0)"
    write(path, f"select k::integer k, v::integer v from {body}")
    return str(path)


@settings(max_examples=25, deadline=None)
@given(a=ROWS, b=ROWS, parts=st.sampled_from([1, 3]))
def test_counts_are_those_of_an_obvious_comparison(
    a: list[tuple[int | None, int | None]],
    b: list[tuple[int | None, int | None]],
    parts: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("compare")
    path_a, path_b = table(directory / "a", a), table(directory / "b", b)
    left_a, left_b = Counter(a) - Counter(b), Counter(b) - Counter(a)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.tables.compare.parts_needed", lambda *_: parts)
        plain = compare(path_a, path_b)
        keyed = compare(path_a, path_b, ["k"])
    assert (plain.only_a, plain.only_b, plain.same) == (left_a.total(), left_b.total(), len(a) - left_a.total())
    keys_a, keys_b = (Counter[int | None](), Counter[int | None]())
    for keys, left in ((keys_a, left_a), (keys_b, left_b)):
        for (key, _), count in left.items():
            keys[key] += count
    differing = (keys_a & keys_b).total()
    assert keyed.differing == differing
    assert (keyed.only_a, keyed.only_b) == (left_a.total() - differing, left_b.total() - differing)
    assert keyed.same == plain.same
    assert plain.equal == (Counter(a) == Counter(b))


def test_samples_show_the_rows_and_what_changed(tmp_path: Path) -> None:
    write(tmp_path / "a", "select i k, i * 10 v, 's' s from range(5) t(i)")
    write(tmp_path / "b", "select i k, case when i = 2 then 99 else i * 10 end v, 's' s from range(1, 6) t(i)")
    result = compare(str(tmp_path / "a"), str(tmp_path / "b"), ["k"])
    assert (result.same, result.differing, result.only_a, result.only_b) == (3, 1, 1, 1)
    differing, only_a, only_b = result.samples
    assert (differing.a, differing.b) == ({"k": "2", "v": "20", "s": "s"}, {"k": "2", "v": "99", "s": "s"})
    assert differing.changed == ("v",)
    assert only_a.a == {"k": "0", "v": "0", "s": "s"}
    assert only_b.b == {"k": "5", "v": "50", "s": "s"}


def test_samples_are_bounded(tmp_path: Path) -> None:
    write(tmp_path / "a", "select i k from range(100) t(i)")
    write(tmp_path / "b", "select i + 1000 k from range(100) t(i)")
    result = compare(str(tmp_path / "a"), str(tmp_path / "b"), ["k"], samples_max=3)
    assert [each.kind for each in result.samples] == ["only_a"] * 3 + ["only_b"] * 3


def test_sums_added_up_in_another_order_are_the_same_within_a_tolerance(tmp_path: Path) -> None:
    write(tmp_path / "a", "select 1 k, 0.3::double v union all select 2, 1.0")
    write(tmp_path / "b", "select 1 k, 0.1::double + 0.2::double v union all select 2, 1.1")
    exact = compare(str(tmp_path / "a"), str(tmp_path / "b"), ["k"])
    near = compare(str(tmp_path / "a"), str(tmp_path / "b"), ["k"], tolerance=1e-9)
    assert (exact.differing, exact.same) == (2, 0)
    assert (near.differing, near.same) == (1, 1)
    assert [sample.a and sample.a["k"] for sample in near.samples] == ["2"]


def test_columns_of_one_side_are_named_and_types_may_differ(tmp_path: Path) -> None:
    write(tmp_path / "a", "select 1::integer k, 'x' as old, 'same' s")
    write(tmp_path / "b", "select 1::bigint k, 'y' as new, 'same' s")
    result = compare(str(tmp_path / "a"), str(tmp_path / "b"), ["k"])
    assert (result.same, result.columns, result.columns_only_a, result.columns_only_b) == (
        1,
        ("k", "s"),
        ("old",),
        ("new",),
    )
    assert not result.equal
    assert compare(str(tmp_path / "a"), str(tmp_path / "b"), ignore=["old", "new"]).equal


def test_nested_values_are_compared(tmp_path: Path) -> None:
    write(tmp_path / "a", "select 1 k, {'x': [1, 2]} v, map {'a': 1} m")
    write(tmp_path / "b", "select 1 k, {'x': [1, 3]} v, map {'a': 1} m")
    assert compare(str(tmp_path / "a"), str(tmp_path / "b"), ["k"]).samples[0].changed == ("v",)


def test_two_versions_of_one_table(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1 k")
    write(tmp_path / "t", "select 2 k")
    result = compare(str(tmp_path / "t"), str(tmp_path / "t"), version_a=0, version_b=1)
    assert (result.only_a, result.only_b, result.same, result.version_a, result.version_b) == (0, 1, 1, 0, 1)


def test_a_key_that_is_no_column_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1 k, 2 v")
    with pytest.raises(OperatorError, match="key id: not a compared column of both tables; these are: k, v"):
        compare(str(tmp_path / "t"), str(tmp_path / "t"), ["id"])


def test_large_tables_are_compared_in_shares_within_the_memory(tmp_path: Path) -> None:
    """All rows differ, which is the most that can be left over; the memory is a fraction of what they take."""
    for name, add in (("a", 0), ("b", 1)):
        write(tmp_path / name, f"select i k, md5((i + {add})::varchar) v, md5(i::varchar) w from range(250000) t(i)")
    paths = str(tmp_path / "a"), str(tmp_path / "b")
    assert parts_needed([open_snapshot(path) for path in paths], 100) > 1
    result = compare(*paths, ["k"], memory_mb_max=100)
    assert (result.differing, result.same, result.only_a, result.only_b) == (250_000, 0, 0, 0)


def test_what_changed_around_the_position_is_lag(tmp_path: Path) -> None:
    """The first table stood at 3 rows, then at 6; the second at 4, and one of its rows is wrong."""
    write(tmp_path / "a", "select i k, i * 10 v from range(3) t(i)")
    write(tmp_path / "a", "select i k, i * 10 v from range(3, 6) t(i)")
    write(tmp_path / "b", "select i k, case when i = 1 then 99 else i * 10 end v from range(4) t(i)")
    for key in ([], ["k"]):
        found = compare(str(tmp_path / "a"), str(tmp_path / "b"), key, before=("a", 0))
        assert (found.same, found.lag) == (3, 2), key
        assert (found.only_a, found.only_b, found.differing) == ((0, 0, 1) if key else (1, 1, 0))
        found = compare(str(tmp_path / "b"), str(tmp_path / "a"), key, before=("b", 0))
        assert (found.same, found.lag) == (3, 2), key
        assert (found.only_a, found.only_b, found.differing) == ((0, 0, 1) if key else (1, 1, 0))


def test_a_key_whose_row_changed_meanwhile_is_lag_whatever_the_value(tmp_path: Path) -> None:
    write(tmp_path / "a", "select 'x' k, 10 v union all select 'y', 1")
    write(tmp_path / "a", "select 'x' k, 30 v union all select 'y', 1", mode="overwrite")
    write(tmp_path / "b", "select 'x' k, 20 v union all select 'y', 2")
    found = compare(str(tmp_path / "a"), str(tmp_path / "b"), ["k"], before=("a", 0))
    assert (found.same, found.lag, found.differing, found.only_a, found.only_b) == (0, 1, 1, 0, 0)
    assert [sample.a for sample in found.samples] == [{"k": "y", "v": "1"}]


def test_a_key_that_changed_and_changed_back_is_lag_where_the_table_keeps_which_record_made_it(tmp_path: Path) -> None:
    """x went 10, 20, 10 between the two versions of the first table; the second stands where it was 20. y was not
    written again, and differs."""

    def rows(offset: int, *, order: bool) -> str:
        kept = ", {{'offset': {}}} _headrace_order" if order else ""
        return f"select 'x' k, 10 v{kept.format(offset)} union all select 'y', 1{kept.format(0).split(' _')[0]}"

    for order in (True, False):
        first, second = tmp_path / f"a-{order}", tmp_path / f"b-{order}"
        write(first, rows(1, order=order))
        write(first, rows(3, order=order), mode="overwrite")
        write(second, "select 'x' k, 20 v union all select 'y', 2")
        for parts in (1, 3):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("headrace.tables.compare.parts_needed", lambda *_, parts=parts: parts)
                found = compare(str(first), str(second), ["k"], before=("a", 0))
            assert (found.lag, found.differing, found.doubtful) == ((1, 1, False) if order else (0, 2, True))
            assert "_headrace_order" not in found.columns
