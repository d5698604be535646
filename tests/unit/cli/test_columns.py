"""Rows on a screen of some width, and in a pipe of none."""

from __future__ import annotations

import click
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.columns import cell, cut, fitted, lines, width_of

ROWS: list[list[str | None]] = [["1", "short", None], ["200", "a rather long text that has to be cut", "x"]]
HEADER = ["id", "text", "note"]


def plain(width_max: int | None, right: list[bool] | None = None) -> list[str]:
    return [click.unstyle(line) for line in lines(HEADER, ROWS, right=right or [True], width_max=width_max)]


def test_a_pipe_gets_everything() -> None:
    assert plain(None) == [
        " id  text                                   note",
        "  1  short                                  null",
        "200  a rather long text that has to be cut  x",
    ]


def test_a_terminal_gets_what_fits() -> None:
    assert plain(30) == [
        " id  text                 note",
        "  1  short                null",
        "200  a rather long text…  x",
    ]


def test_rows_that_cannot_fit_are_stacked() -> None:
    assert plain(10) == [
        "row 1",
        "  id    1",
        "  text  short",
        "  note  null",
        "row 2",
        "  id    200",
        "  text  a rather long text that has to be cut",
        "  note  x",
    ]


def test_no_line_ends_in_spaces() -> None:
    for line in lines(["a", "b"], [["1", None], ["2", "long text"]]):
        assert click.unstyle(line) == click.unstyle(line).rstrip()


def test_wide_and_combining_letters_take_the_room_they_take() -> None:
    assert [width_of(text) for text in ("abc", "日本", "e\u0301", "ü")] == [3, 4, 1, 1]
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 6) == "日本語"


def test_a_cell_is_one_line_and_moves_no_cursor() -> None:
    assert cell("a\nb\x1b[31m\t") == "a\\nb\\x1b[31m\\t"
    assert cell(None) == "null"


@given(st.lists(st.integers(0, 80), min_size=1, max_size=8), st.integers(1, 200))
def test_fitted_columns_fit_and_never_grow(natural: list[int], width_max: int) -> None:
    widths = fitted(natural, width_max)
    if widths is None:
        assert sum(min(width, 8) for width in natural) + 2 * (len(natural) - 1) > width_max
    else:
        assert sum(widths) + 2 * (len(widths) - 1) <= max(width_max, 0)
        assert all(min(old, 8) <= new <= old for new, old in zip(widths, natural, strict=True))
