"""What the plan that Spark made of a function tells about it: its operators and groups. Reading only, no job."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.streaming.spark_internals.plan import analysed, each_of, holds_aggregate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Operators whose state gives a row again, changed, when more of its group comes.
_UPDATING = frozenset({"Aggregate", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState",
                       "TransformWithStateInPySpark", "TransformWithStateInPandas"})  # fmt: skip
# Of these Spark does not compare the mode that they were given with that of the query.
_OWN_MODE = frozenset({"TransformWithState", "TransformWithStateInPySpark", "TransformWithStateInPandas"})
# Operators that give one row for each row, so that a row which state has updated replaces the one before.
_ROW_FOR_ROW = frozenset({"Project", "SubqueryAlias", "EventTimeWatermark"})
_ABOVE_GROUPS = frozenset({"Project", "SubqueryAlias", "EventTimeWatermark", "Sort"})
_TIME_WINDOW = "spark.timeWindow"  # Spark marks the column of a window with it


def operators(frame: "DataFrame") -> Iterator[Any]:
    """The operators of the analysed plan, from the last one down."""
    work = [analysed(frame)]
    while work:
        plan = work.pop()
        yield plan
        work.extend(each_of(plan.children()))


def updates_rows(frame: "DataFrame") -> bool:
    """Whether state gives rows again as they change, rather than each row once."""
    return any(plan.isStreaming() and plan.nodeName() in _UPDATING for plan in operators(frame))


def gives_rows_once(frame: "DataFrame") -> bool:
    """Whether its custom state was told that each row which it gives is final."""
    return any(
        plan.isStreaming() and plan.nodeName() in _OWN_MODE and str(plan.outputMode()) == "Append"
        for plan in operators(frame)
    )


def watermarked(frame: "DataFrame") -> bool:
    """Whether rows may come too late in it."""
    return any(plan.isStreaming() and plan.nodeName() == "EventTimeWatermark" for plan in operators(frame))


def filters(frame: "DataFrame") -> int:
    """How many filters its stream passes."""
    return sum(1 for plan in operators(frame) if plan.isStreaming() and plan.nodeName() == "Filter")


def above_state(frame: "DataFrame") -> tuple[str, str | None] | None:
    """The first operator that may leave out or multiply rows which state updates, with its condition if it filters;
    None if each of these rows reaches the table. A row that no longer passes would stay in the table as it was."""
    plan = analysed(frame)
    while (name := str(plan.nodeName())) in _ROW_FOR_ROW:
        plan = plan.children().apply(0)
    if name in _UPDATING:
        return None
    return name, str(plan.condition().sql()) if name == "Filter" else None


def ends_in_groups(frame: "DataFrame") -> bool:
    """Whether each of its rows is a group of an aggregate. With a key that `group_problem` finds nothing wrong with, no
    two rows of a batch have the same key."""
    plan = analysed(frame)
    while str(plan.nodeName()) in _ABOVE_GROUPS:
        plan = plan.children().apply(0)
    return str(plan.nodeName()) == "Aggregate"


def group_problem(frame: "DataFrame", key: tuple[str, ...]) -> str | None:
    """Why a key does not name exactly one group of the last aggregate; None if it does, or nothing is grouped last.

    Each grouping expression must reach the key as itself, and nothing in the key may be the result of an aggregate:
    else a key has several groups, or a group changes its key and leaves the row of the old one behind."""
    plan = analysed(frame)
    columns = [column for column in each_of(plan.output()) if column.name() in key]
    made = itself = {int(column.exprId().id()) for column in columns}
    while str(plan.nodeName()) in _ABOVE_GROUPS:
        if str(plan.nodeName()) == "Project":
            named = each_of(plan.projectList())
            made, itself = made_of(named, made), _passed_on(named, itself)
        plan = plan.children().apply(0)
    if str(plan.nodeName()) != "Aggregate":
        return None
    named = each_of(plan.aggregateExpressions())
    for each in named:
        if each.exprId().id() in made and holds_aggregate(frame.sparkSession, each):
            return f"its key holds {each.name()!r}, the result of an aggregate, which changes"
    held = [bare(each) for each in named if each.exprId().id() in itself]
    known = {int(each.exprId().id()) for each in held if is_attribute(each)} | _passed_on(named, itself)
    outside = [
        str(each.sql())
        for each in each_of(plan.groupingExpressions())
        if not (references(each) <= known and each.deterministic())
        and not any(each.semanticEquals(other) for other in held)
    ]
    return (
        f"groups by {', '.join(outside)}, which key= does not hold, so that a key has several rows" if outside else None
    )


def made_of(expressions: list[Any], wanted: set[int]) -> set[int]:
    """The columns that the wanted ones among named expressions are made of."""
    found: set[int] = set()
    for each in expressions:
        if each.exprId().id() in wanted:
            found |= references(each)
    return found


def references(expression: Any) -> set[int]:
    return {int(used.exprId().id()) for used in each_of(expression.references().toSeq())}


def _passed_on(expressions: list[Any], wanted: set[int]) -> set[int]:
    """The columns that the wanted ones are, under whatever name; a window is told by its start or its end."""
    found = set()
    for each in expressions:
        if each.exprId().id() not in wanted:
            continue
        column = bare(each)
        if _kind(column) == "GetStructField" and is_attribute(column.child()):
            window = column.child()
            column = window if window.metadata().contains(_TIME_WINDOW) else column
        if is_attribute(column):
            found.add(int(column.exprId().id()))
    return found


def bare(expression: Any) -> Any:
    while _kind(expression) == "Alias":
        expression = expression.child()
    return expression


def is_attribute(expression: Any) -> bool:
    return _kind(expression) == "AttributeReference"


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
