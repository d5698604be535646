"""Columns that Headrace keeps in a user's table for itself, and that its own readers leave out.

A keyed table keeps in one of them which record made each row, so that an older change never replaces a newer one.
"""

from collections.abc import Iterable

ORDER = "_headrace_order"
ORDERS = "_headrace_orders"  # of each column, where changes hold only a part of a row
HIDDEN_COLUMNS = frozenset({ORDER, ORDERS})


def shown(columns: Iterable[str]) -> list[str]:
    return [name for name in columns if name not in HIDDEN_COLUMNS]
