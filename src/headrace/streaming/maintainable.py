"""Whether a keyed table over tables that change can be kept up to date from their changes alone, told from its plan.

The function over the rows that changed (as they were and as they are) must give every key whose row may be another now.
That holds where a row of the result comes from single rows of the inputs (selecting, filtering, inner joins, explode,
unions, windows of time) and where the result groups such rows by the key, or drops equal ones. It does not hold above
an aggregate, where a filter over a part of a group says nothing of the whole group; for anti joins, where a row is
there because another is not; for limits and window functions; for the time of the batch.

A left or right outer join has such rows too: without a partner a row comes with nulls. That is right where the key is
made of the side that keeps all its rows, and nothing above looks at what may be null: then the row with a partner and
the one without have the same key. A change of the other side touches every key.

Whatever is not known to hold is refused.
"""

from typing import TYPE_CHECKING, Any

from headrace.streaming.plans import group_problem, made_of
from headrace.streaming.spark_internals.plan import analysed, each_of, uses_batch_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWWISE = frozenset({"Project", "Filter", "SubqueryAlias", "Join", "Union", "Generate", "Expand", "Sort", "View"})
_GROUPING = frozenset({"Aggregate", "Distinct", "Deduplicate"})
_ABOVE_GROUPS = frozenset({"Project", "SubqueryAlias", "Sort"})
_OUTER = {"LEFT OUTER": "left", "RIGHT OUTER": "right"}  # and the side that keeps all its rows
_JOINS = frozenset({"INNER", "CROSS", "LEFT SEMI", *_OUTER})


def obstacle(frame: "DataFrame", key: tuple[str, ...], inputs: "tuple[DataFrame, ...]") -> str | None:
    """Why it cannot be; None if it can. `frame` is of plain DataFrames; `inputs` are the tables that it was given."""
    root = analysed(frame)
    leaves, work = [], [root]
    while work:
        plan = work.pop()
        children = each_of(plan.children())
        if not children:
            leaves.append(plan)
            continue
        why = _step(plan, str(plan.nodeName()))
        if why is not None:
            return why
        work.extend(children)
    if uses_batch_time(frame):
        return "it uses the time of the batch (current_timestamp and its like), which no change of a table tells"
    return (
        _inputs_obstacle(leaves, inputs)
        or _above_groups(root)
        or group_problem(frame, key)
        or _outer_problem(
            root, {int(column.exprId().id()) for column in each_of(root.output()) if column.name() in key}
        )
    )


def _step(plan: Any, name: str) -> str | None:
    if name not in _ROWWISE and name not in _GROUPING:
        return f"it uses {name.lower()}"
    if not plan.deterministic():
        return "it would not give the same rows again (a random value, or the time)"
    if plan.subqueries().size():
        return "it has a subquery"
    if name == "Deduplicate" and _id_set(plan.keys()) != _ids(plan):
        return "it uses deduplicate, which keeps any one of several rows, by some of the columns"
    if name == "Join" and str(plan.joinType().sql()) not in _JOINS:
        return f"it has a {str(plan.joinType().sql()).lower()} join"
    return None


def _inputs_obstacle(leaves: list[Any], inputs: "tuple[DataFrame, ...]") -> str | None:
    """Spark gives columns new ids where a table is read a second time, so a leaf is one of the inputs or a repetition
    of one, or something else."""
    given = [_leaf_ids(frame) for frame in inputs]
    read = [_ids(leaf) for leaf in leaves]
    if any(each not in read for each in given):
        return "it does not use every table that it reads"
    if len(read) > len(given):
        return "it reads a table twice, or rows that are not of its tables"
    return None


def _leaf_ids(frame: "DataFrame") -> frozenset[int]:
    plan = analysed(frame)
    while plan.children().size():
        plan = plan.children().apply(0)
    return _ids(plan)


def _ids(plan: Any) -> frozenset[int]:
    return _id_set(plan.output())


def _id_set(columns: Any) -> frozenset[int]:
    return frozenset(int(column.exprId().id()) for column in each_of(columns))


def _outer_problem(root: Any, key: set[int]) -> str | None:
    """`key` are the ids of the key's columns in the result."""
    plan = root
    while True:
        name = str(plan.nodeName())
        if name in _ABOVE_GROUPS or name in _GROUPING:
            if name == "Project":
                key = made_of(each_of(plan.projectList()), key)
            elif name == "Aggregate":
                key = made_of(each_of(plan.aggregateExpressions()), key)
            plan = plan.children().apply(0)
            continue
        side = _outer_side(plan)
        if side is None:
            return _outer_below(plan)
        whole, other = (plan.left(), plan.right()) if side == "left" else (plan.right(), plan.left())
        if not key <= _ids(whole):
            return f"its key holds columns that a {side} outer join may leave null"
        if (found := _outer_below(other)) is not None:
            return found
        plan = whole


def _outer_side(plan: Any) -> str | None:
    return _OUTER.get(str(plan.joinType().sql())) if str(plan.nodeName()) == "Join" else None


def _outer_below(plan: Any) -> str | None:
    work = [plan]
    while work:
        below = work.pop()
        if (side := _outer_side(below)) is not None:
            return f"it filters or joins what a {side} outer join gives"
        work.extend(each_of(below.children()))
    return None


def _above_groups(root: Any) -> str | None:
    """Only the last step may group."""
    plan = root
    while str(plan.nodeName()) in _ABOVE_GROUPS:
        plan = plan.children().apply(0)
    rest = each_of(plan.children()) if str(plan.nodeName()) in _GROUPING else [plan]
    while rest:
        below = rest.pop()
        if str(below.nodeName()) in _GROUPING:
            return "it filters, joins or groups what was grouped before"
        rest.extend(each_of(below.children()))
    return None
