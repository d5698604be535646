"""Whether a keyed table over tables that change can be kept up to date from their changes alone, told from its plan.

The function over the rows that changed (as they were and as they are) must give every key whose row may be another now.
That holds where a row of the result comes from single rows of the inputs (selecting, filtering, inner joins, explode,
unions) and where the result groups such rows by the key. It does not hold above an aggregate, where a filter over
a part of a group says nothing of the whole group; for outer and anti joins, where a row is there because another is
not; for limits and windows; for the time of the batch. Whatever is not known to hold is refused.
"""

from typing import TYPE_CHECKING, Any

from headrace.streaming.plans import each_of, group_problem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWWISE = frozenset({"Project", "Filter", "SubqueryAlias", "Join", "Union", "Generate", "Sort", "View"})
_GROUPING = frozenset({"Aggregate", "Distinct"})
_ABOVE_GROUPS = frozenset({"Project", "SubqueryAlias", "Sort"})
_JOINS = frozenset({"INNER", "CROSS", "LEFT SEMI"})


def obstacle(frame: "DataFrame", key: tuple[str, ...], inputs: "tuple[DataFrame, ...]") -> str | None:
    """Why it cannot be; None if it can. `frame` is of plain DataFrames; `inputs` are the tables that it was given."""
    found: Any = frame
    jvm: Any = frame.sparkSession._jvm
    current = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    root = found._jdf.queryExecution().analyzed()
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
    if root.containsPattern(current):
        return "it uses the time of the batch (current_timestamp and its like), which no change of a table tells"
    return _inputs_obstacle(leaves, inputs) or _above_groups(root) or group_problem(frame, key)


def _step(plan: Any, name: str) -> str | None:
    if name not in _ROWWISE and name not in _GROUPING:
        return f"it uses {name.lower()}"
    if not plan.deterministic():
        return "it would not give the same rows again (a random value, or the time)"
    if plan.subqueries().size():
        return "it has a subquery"
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
    found: Any = frame
    plan = found._jdf.queryExecution().analyzed()
    while plan.children().size():
        plan = plan.children().apply(0)
    return _ids(plan)


def _ids(plan: Any) -> frozenset[int]:
    return frozenset(int(column.exprId().id()) for column in each_of(plan.output()))


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
