"""What the plan that Spark made of a function tells about it: its operators and groups. Reading only, no job."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Operators whose state gives a row again, changed, when more of its group comes.
_UPDATING = ("Aggregate", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState",
             "TransformWithStateInPySpark", "TransformWithStateInPandas")  # fmt: skip


def operators(frame: "DataFrame") -> Iterator[Any]:
    """The operators of the analysed plan, from the last one down."""
    found: Any = frame
    work = [found._jdf.queryExecution().analyzed()]
    while work:
        plan = work.pop()
        yield plan
        children = plan.children()
        work.extend(children.apply(index) for index in range(children.size()))


def updates_rows(frame: "DataFrame") -> bool:
    """Whether state gives rows again as they change, rather than each row once."""
    return any(plan.isStreaming() and plan.nodeName() in _UPDATING for plan in operators(frame))


def groups_outside(frame: "DataFrame", key: tuple[str, ...]) -> tuple[str, ...]:
    """What the last aggregate groups by and the key does not hold: then a key has several groups, and several rows."""
    found: Any = frame
    plan = found._jdf.queryExecution().analyzed()
    output = plan.output()
    columns = [output.apply(index) for index in range(output.size())]
    wanted = {column.exprId().id() for column in columns if column.name() in key}
    while str(plan.nodeName()) in ("Project", "SubqueryAlias"):
        if str(plan.nodeName()) == "Project":
            wanted = made_of(plan.projectList(), wanted)
        plan = plan.children().apply(0)
    if str(plan.nodeName()) != "Aggregate":
        return ()
    held = wanted | made_of(plan.aggregateExpressions(), wanted)
    groups = plan.groupingExpressions()
    every = [groups.apply(index) for index in range(groups.size())]
    return tuple(str(each.sql()) for each in every if not references(each) <= held)


def made_of(expressions: Any, wanted: set[int]) -> set[int]:
    """The columns that the wanted ones among named expressions are made of."""
    found: set[int] = set()
    for each in (expressions.apply(index) for index in range(expressions.size())):
        if each.exprId().id() in wanted:
            found |= references(each)
    return found


def references(expression: Any) -> set[int]:
    used = expression.references().toSeq()
    return {used.apply(index).exprId().id() for index in range(used.size())}
