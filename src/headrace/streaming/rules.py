"""What a node expects of its rows, as a pipeline's file says it: `hr.warn`, `hr.drop`, `hr.quarantine`, `hr.fail`.

Only the words; what becomes of the rows is in `expectations`. No Spark.
"""

from collections.abc import Iterable, Mapping

from headrace.streaming.declarations import Action, Expectation, Output, PipelineError, SourceLine, TableOutput
from headrace.streaming.sql_text import problem


class Rule:
    """An expectation that has no name yet: what `hr.warn`, `hr.drop`, `hr.quarantine` and `hr.fail` return."""

    def __init__(self, action: Action, predicate: str) -> None:
        if not isinstance(predicate, str) or not predicate.strip():
            raise PipelineError(
                SourceLine.of_caller(), f"hr.{action}({predicate!r}): give a SQL predicate, such as 'amount > 0'"
            )
        if (why := problem(predicate)) is not None:
            raise PipelineError(SourceLine.of_caller(), f"hr.{action}({predicate!r}): {why}")
        self.action = action
        self.predicate = predicate


def warn(predicate: str) -> Rule:
    """Rows for which the predicate is not true are counted and kept.

    >>> import headrace as hr
    >>> expect = {"customer is known": hr.warn("customer is not null")}
    """
    return Rule("warn", predicate)


def drop(predicate: str) -> Rule:
    """Rows for which the predicate is not true are counted and left out.

    >>> import headrace as hr
    >>> expect = {"not a test": hr.drop("customer <> 'test'")}
    """
    return Rule("drop", predicate)


def quarantine(predicate: str) -> Rule:
    """Rows for which the predicate is not true go to the node's quarantine table instead.

    >>> import headrace as hr
    >>> expect = {"amount is positive": hr.quarantine("amount > 0")}
    """
    return Rule("quarantine", predicate)


def fail(predicate: str) -> Rule:
    """A row for which the predicate is not true stops the node before its batch is written.

    >>> import headrace as hr
    >>> expect = {"has an id": hr.fail("id is not null")}
    """
    return Rule("fail", predicate)


ORDER_IS_KNOWN = "order is known"


def order_expected(output: Output) -> tuple[Expectation, ...]:
    """A row without an order cannot be placed among the others of its key: it is put aside, not dropped."""
    if not isinstance(output, TableOutput) or not output.order_by:
        return ()
    known = " and ".join(f"`{name.replace('`', '``')}` is not null" for name in output.order_by)
    return (Expectation(name=ORDER_IS_KNOWN, predicate=known, action="quarantine"),)


Expect = Mapping[str, Rule] | Iterable[Rule] | Rule


def expectations_of(place: SourceLine, node: str, expect: Expect | None) -> tuple[Expectation, ...]:
    if expect is None:
        return ()
    if isinstance(expect, Rule):
        expect = [expect]
    pairs = list(expect.items()) if isinstance(expect, Mapping) else [(getattr(e, "predicate", ""), e) for e in expect]
    for name, rule in pairs:
        if not isinstance(rule, Rule):
            raise PipelineError(
                place, f"{node}: expectation {name!r} is {rule!r}; use hr.warn, hr.drop, hr.quarantine or hr.fail"
            )
    return tuple(Expectation(name=name, predicate=rule.predicate, action=rule.action) for name, rule in pairs)
