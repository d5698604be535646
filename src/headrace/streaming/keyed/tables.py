"""Which writer a table with a key has: with history, column by column, or row by row."""

from headrace.streaming.declarations import TableOutput
from headrace.streaming.delete_markers import DeleteMarkers
from headrace.streaming.delta_sink import Keyed
from headrace.streaming.keyed.history import HistoryTable
from headrace.streaming.keyed.merge import KeyedTable
from headrace.streaming.keyed.order import Order
from headrace.streaming.keyed.partial import PartialTable


def keyed_table(
    output: TableOutput, path: str, deletes: str, order: Order | None, *, alone: bool, grouped: bool = False
) -> Keyed:
    """`deletes` is the directory of its markers; `alone`: nothing else writes the table; `grouped`: state gives at most
    one row per key and batch."""
    markers = DeleteMarkers(deletes, output, order)
    if output.history and order is not None:
        return HistoryTable(output, path, markers, order, alone=alone)
    if output.nulls == "unchanged" and order is not None:
        return PartialTable(output, path, markers, order, alone=alone)
    return KeyedTable(output, path, markers, order, alone=alone, grouped=grouped)
