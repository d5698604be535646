"""Whether a keyed table over tables that change can be kept up to date from their changes alone, told from its plan.

The function over the rows that changed (as they were and as they are) must give every key whose row may be another now.
That holds where a row of the result comes from single rows of the inputs (selecting, filtering, inner joins, explode,
unions) and where the result groups such rows by the key. It does not hold above an aggregate, where a filter over
a part of a group says nothing of the whole group; for outer and anti joins, where a row is there because another is
not; for limits and windows. Whatever is not known to hold is refused.
"""

from typing import TYPE_CHECKING, Any

from headrace.streaming.plans import made_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWWISE = frozenset({"Project", "Filter", "SubqueryAlias", "Join", "Union", "Generate", "Sort", "View"})
_GROUPING = frozenset({"Aggregate", "Distinct"})
_ABOVE_GROUPS = frozenset({"Project", "SubqueryAlias", "Sort"})
_JOINS = frozenset({"INNER", "CROSS", "LEFT SEMI"})


def obstacle(frame: "DataFrame", key: tuple[str, ...], inputs: int) -> str | None:
    """Why it cannot be; None if it can. `frame` is of plain DataFrames, `inputs` of them."""
    found: Any = frame
    root = found._jdf.queryExecution().analyzed()
    leaves, work = 0, [root]
    while work:
        plan = work.pop()
        name, children = str(plan.nodeName()), plan.children()
        if children.size() == 0:
            leaves += 1
            continue
        why = _step(plan, name)
        if why is not None:
            return why
        work.extend(children.apply(index) for index in range(children.size()))
    if leaves != inputs:
        return "it reads a table twice"
    return _above_groups(frame, root, key)


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


def _above_groups(frame: "DataFrame", root: Any, key: tuple[str, ...]) -> str | None:
    """What stands above an aggregate, and whether the key is of what it groups by."""
    jvm: Any = frame.sparkSession._jvm
    output = root.output()
    columns = [output.apply(index) for index in range(output.size())]
    wanted = {column.exprId().id() for column in columns if column.name() in key}
    plan = root
    while str(plan.nodeName()) in _ABOVE_GROUPS:
        if str(plan.nodeName()) == "Project":
            wanted = made_of(plan.projectList(), wanted)
        plan = plan.children().apply(0)
    if str(plan.nodeName()) == "Aggregate":
        functions = jvm.org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
        expressions = plan.aggregateExpressions()
        for each in (expressions.apply(index) for index in range(expressions.size())):
            if each.exprId().id() in wanted and functions.containsAggregate(each):
                return "its key is the result of an aggregate"
    rest = [plan.children().apply(index) for index in range(plan.children().size())]
    if str(plan.nodeName()) not in _GROUPING:
        rest = [plan]
    while rest:
        below = rest.pop()
        if str(below.nodeName()) in _GROUPING:
            return "it filters, joins or groups what was grouped before"
        rest.extend(below.children().apply(index) for index in range(below.children().size()))
    return None
