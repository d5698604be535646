"""Which of two rows of one key is the newer one: decided by the log and the declaration, never by the batches.

Every row of a keyed table keeps its order in a hidden column. It is a struct of the `order_by` values; behind them, if
the function passes it on, the row's place in the log (topic, partition, offset); and last a hash of the row. The hash
decides nothing: two rows that are equal before it and differ in it (several rows that an explode or a join makes of one
record, say) stop the node, since nothing tells which is last.

Without `order_by` the place alone decides, and only within a partition: between partitions the log has no order, so
a key that comes from two of them stops the node. Without a place either, a key may be written once.

A row that a stateful query updates has no order. Its state has seen everything before, so each batch replaces it.

What is here only makes expressions. `merge` uses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.streaming.declarations import TableOutput
from headrace.tables.hidden import ORDER

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructField, StructType

# Found again in the text of Spark's exception.
SEVERAL_MARK = "headrace rows of one key: "
PARTITIONS_MARK = "headrace partitions of one key: "
KEY_CHARS_MAX = 200
CONTENT = "content"
_PLACE = ("_topic", "_partition", "_offset")
_TIMED = ("_topic", "_partition", "_timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`by` are the declared columns; `placed` says whether rows carry their place in the log, `timed` whether they
    carry its time."""

    by: tuple[str, ...]
    placed: bool
    timed: bool

    @property
    def once(self) -> bool:
        """Whether nothing tells two rows of a key apart, so that each key may be written once only."""
        return not self.by and not self.placed

    @property
    def ranks(self) -> tuple[str, ...]:
        """The fields of the struct that decide, in their order: all but the hash."""
        place = tuple(name[1:] for name in _PLACE) if self.placed else ()
        return (*(f"o{index}" for index in range(len(self.by))), *place)


def order_of(output: TableOutput, columns: Sequence[str], *, by_state: bool) -> Order | None:
    """`columns` are those that the function returns; `by_state`, that a stateful query updates the rows."""
    if not output.key or by_state:
        return None
    have = set(columns)
    return Order(by=output.order_by, placed=have.issuperset(_PLACE), timed=have.issuperset(_TIMED))


def order_notes(output: TableOutput, order: Order | None) -> tuple[str, ...]:
    """What a user should know of how rows of one key are told apart."""
    if order is None:
        return ()
    notes = []
    if order.once:
        notes.append("a second, different row for a key stops the node; add order_by= to say which is last")
    elif not order.placed:
        notes.append(f"two rows of a key with one {', '.join(order.by)} and different content stop the node")
    if output.delete is not None and not order.timed:
        notes.append(
            "deletes are remembered forever, because the function does not return _topic, _partition and _timestamp"
        )
    return tuple(notes)


def order_column(order: Order, stored: Sequence[str], gone: "Column") -> "Column":
    """The order of each row; `gone` is whether the row removes its key."""
    from pyspark.sql import functions as F

    parts = [F.col(quoted(name)).alias(f"o{index}") for index, name in enumerate(order.by)]
    if order.placed:
        parts += [F.col(name).alias(name[1:]) for name in _PLACE]
    row = F.to_json(F.struct(*[F.col(quoted(name)) for name in stored]))
    return F.struct(*parts, F.xxhash64(row, gone).alias(CONTENT))


def order_field(order: Order, schema: "StructType") -> "StructField":
    """The hidden column of a table; `schema` is of what the function returns."""
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

    fields = [StructField(f"o{index}", schema[name].dataType) for index, name in enumerate(order.by)]
    if order.placed:
        fields += [
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
        ]
    return StructField(ORDER, StructType([*fields, StructField(CONTENT, LongType())]))


def newer(order: Order, new: str, old: str, key: str) -> str:
    """SQL that is true where the order `new` comes behind `old`, or `old` is null. It raises where nothing tells;
    `key` is an expression of the key as text. CASE keeps Spark from evaluating what raises too early; a merge evaluates
    this also for rows of the table that no change is of."""
    return f"case when {new} is null then false when {old} is null then true {_decided(order, new, old, key)} end"


def _decided(order: Order, new: str, old: str, key: str) -> str:
    """The branches where there are both."""
    raised = f"cast(raise_error(concat('{SEVERAL_MARK}', {key})) as boolean)"
    differing = f"when {new}.{CONTENT} <> {old}.{CONTENT} then {raised} else false"
    if order.once:
        return differing
    mine, theirs = _rank(order, new), _rank(order, old)
    decided = f"when {mine} > {theirs} then true when {mine} < {theirs} then false {differing}"
    if order.by:
        return decided
    places = f"' in {{', {old}.topic, '-', {old}.partition, ', ', {new}.topic, '-', {new}.partition, '}}'"
    same = f"{new}.topic <=> {old}.topic and {new}.partition <=> {old}.partition"
    between = f"cast(raise_error(concat('{PARTITIONS_MARK}', {key}, {places})) as boolean)"
    return f"when not ({same}) then {between} {decided}"


def behind_all(order: Order, new: str, old: str) -> str:
    """The same for `old` being a change that removes all rows; a row of the same rank goes too."""
    return f"{_rank(order, new)} > {_rank(order, old)}"


def _rank(order: Order, side: str) -> str:
    return "struct(" + ", ".join(f"{side}.{name} as {name}" for name in order.ranks) + ")"


def key_text(key: tuple[str, ...], side: str) -> str:
    """SQL of a key as a person reads it."""
    fields = ", ".join(f"{side}.{quoted(name)} as {quoted(name)}" for name in key)
    return f"substring(to_json(struct({fields})), 1, {KEY_CHARS_MAX})"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
