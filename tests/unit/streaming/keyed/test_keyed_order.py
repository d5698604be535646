"""What decides which row of a key is the last, and when it is forgotten that a key was removed. No Spark."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.core.errors import OperatorError
from headrace.streaming.declarations import TableOutput
from headrace.streaming.declare import table
from headrace.streaming.declare_nodes import DECLARED
from headrace.streaming.delete_markers import forgotten
from headrace.streaming.durations import duration
from headrace.streaming.keyed.order import Order, newer, order_notes, order_of

METADATA = ["_key", "_headers", "_topic", "_partition", "_offset", "_timestamp"]
HOUR_US = 3_600_000_000


def test_rows_are_told_apart_by_what_is_declared_and_by_what_the_function_returns() -> None:
    keyed = TableOutput(key=("id",))
    ordered = TableOutput(key=("id",), order_by=("lsn",))
    assert order_of(TableOutput(), ["id"], by_state=False) is None
    assert order_of(keyed, ["id", *METADATA], by_state=True) is None
    assert order_of(keyed, ["id", *METADATA], by_state=False) == Order(by=(), placed=True, timed=True)
    assert order_of(ordered, ["id", "lsn"], by_state=False) == Order(by=("lsn",), placed=False, timed=False)
    some = ["id", "lsn", "_topic", "_partition", "_offset"]
    assert order_of(ordered, some, by_state=False) == Order(by=("lsn",), placed=True, timed=False)
    nothing = order_of(keyed, ["id"], by_state=False)
    assert nothing is not None
    assert nothing.once


def test_what_cannot_be_told_raises_instead_of_choosing() -> None:
    for order in (
        Order(by=("lsn",), placed=True, timed=True),
        Order(by=("lsn",), placed=False, timed=False),
        Order(by=(), placed=True, timed=True),
        Order(by=(), placed=False, timed=False),
    ):
        assert "raise_error" in newer(order, "s.o", "t.o", "k")


def test_a_user_is_told_what_would_stop_the_node_and_what_is_kept_forever() -> None:
    output = TableOutput(key=("id",), order_by=("lsn",), delete="op = 'd'")
    assert order_notes(output, Order(by=("lsn",), placed=True, timed=True)) == ()
    assert order_notes(output, None) == ()
    notes = order_notes(output, Order(by=("lsn",), placed=False, timed=False))
    assert ["lsn and different content" in notes[0], "remembered forever" in notes[1]] == [True, True]


def test_markers_go_when_their_own_partition_is_later_by_the_declared_time() -> None:
    spans = [("t", 0, 0, 9 * HOUR_US), ("t", 1, 0, 11 * HOUR_US), ("it's", 0, 0, 12 * HOUR_US), (None, 0, 0, 99)]
    found = forgotten(spans, timedelta(hours=10))
    assert found is not None
    one, other = found.split(" or ")
    assert "= 't'" in one
    assert f"= 1 and unix_micros(_headrace_at) < {HOUR_US})" in one
    assert r"= 'it\'s'" in other
    assert forgotten(spans[:1], timedelta(hours=10)) is None


@pytest.mark.parametrize(
    ("text", "length"),
    [("7 days", timedelta(days=7)), ("90 minutes", timedelta(minutes=90)), ("1.5 hours", timedelta(hours=1.5)),
     ("1 week", timedelta(weeks=1)), ("2seconds", timedelta(seconds=2)), (timedelta(1), timedelta(1))],
)  # fmt: skip
def test_lengths_of_time(text: object, length: timedelta) -> None:
    assert duration(text) == length


@pytest.mark.parametrize("text", ["", "7", "days", "7 moons", "-1 day", "0 days", 7, None, timedelta(0)])
def test_what_is_no_length_of_time_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"such as '7 days'|greater than zero"):
        duration(text)


def test_a_table_with_an_order_puts_rows_without_one_aside() -> None:
    @table(key="id", order_by=["lsn", "odd`name"], forget_deletes_after="1 hour")
    def ordered(changes: object) -> object:
        return changes

    node = ordered.__dict__[DECLARED]
    (known,) = node.expectations
    assert (known.name, known.action) == ("order is known", "quarantine")
    assert known.predicate == "`lsn` is not null and `odd``name` is not null"
    assert node.output.forget_deletes_after == timedelta(hours=1)
    with pytest.raises(OperatorError, match=r"forget_deletes_after='soon': give a length of time"):
        table(key="id", delete="x", forget_deletes_after="soon")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"key": "id", "truncate": "op = 't'"}, "truncate= removes what is older by order_by=; add key= and order_by="),
        ({"key": "id", "order_by": ["a", "b"], "history": True}, "history=True needs key= and one column in order_by="),
        ({"order_by": "a", "history": True}, "history=True needs key="),
        ({"key": "id", "order_by": "a", "history": True, "truncate": "x"}, "history=True and truncate= do not go"),
        (
            {"key": "id", "nulls": "unchanged"},
            "nulls='unchanged' puts changes of a key together; add key= and order_by=",
        ),
        ({"key": "id", "order_by": "a", "nulls": "unchanged", "history": True}, "does not go together with history="),
        ({"key": "id", "nulls": "maybe"}, "nulls='maybe': must be one of null, unchanged"),
        ({"key": "id", "leave_out": "id"}, "leave_out='id' is a column of key=; keep it"),
        ({"partition_by": "day", "leave_out": ["x", "day"]}, "leave_out='day' is a column of partition_by="),
        ({"key": "id", "mode": "append", "truncate": "op = 't'"}, "truncate= removes what is older by order_by="),
        ({"key": "id", "mode": "append", "leave_out": "id"}, "leave_out='id' is a column of key="),
        ({"key": "id", "order_by": "a", "truncate": "op = 't"}, 'truncate="op = \'t"'),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(OperatorError) as refused:
        table(**given)  # type: ignore[call-overload]
    assert says in str(refused.value)


def test_a_version_of_a_row_is_named_by_key_and_beginning() -> None:
    assert TableOutput(key=("id",)).row_key == ("id",)
    assert TableOutput(key=("id",), order_by=("lsn",), history=True).row_key == ("id", "valid_from")
