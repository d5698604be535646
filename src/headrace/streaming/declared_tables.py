"""Arguments of `@hr.table` and its kin as values, and what does not go together among them. No Spark."""

from collections.abc import Iterable
from datetime import timedelta

from headrace.streaming.declarations import MODES, Mode, PipelineError, SourceLine, TableOutput
from headrace.streaming.declared_values import one_of
from headrace.streaming.durations import duration
from headrace.streaming.sql_text import problem

Names = str | Iterable[str]


def check_table(place: SourceLine, output: TableOutput) -> None:
    predicates = {"delete": output.delete, "truncate": output.truncate, "replace_where": output.replace_where}
    for name, predicate in predicates.items():
        if predicate is not None and (why := problem(predicate)) is not None:
            raise PipelineError(place, f"table: {name}={predicate!r}: {why}")
    if output.mode == "complete" and output.key:
        raise PipelineError(place, "table: mode='complete' rewrites the table, so a key has no use; remove one of them")
    if output.delete is not None and not output.key:
        raise PipelineError(place, "table: delete= removes rows by their key; add key=")
    _check_changes(place, output)
    if output.key and output.mode == "append" and output.delete is None:
        return
    if output.order_by and not output.key:
        raise PipelineError(place, "table: order_by= decides among rows of one key; add key=")
    if output.replace_where is not None and (output.key or output.mode == "complete"):
        raise PipelineError(place, "table: replace_where= is for appended rows; drop key= and mode='complete'")
    if output.into is not None and output.partition_by:
        raise PipelineError(place, "table: into= writes another node's table, which has its own partition_by; drop it")


def _check_changes(place: SourceLine, output: TableOutput) -> None:
    if output.truncate is not None and not (output.key and output.order_by):
        raise PipelineError(place, "table: truncate= removes what is older by order_by=; add key= and order_by=")
    if output.history and (not output.key or len(output.order_by) != 1):
        raise PipelineError(place, "table: history=True needs key= and one column in order_by=, which dates versions")
    if output.history and output.truncate is not None:
        raise PipelineError(place, "table: history=True and truncate= do not go together; remove one of them")
    one_of(place, "nulls", output.nulls, ("null", "unchanged"))
    if output.nulls == "unchanged" and not (output.key and output.order_by):
        raise PipelineError(place, "table: nulls='unchanged' puts changes of a key together; add key= and order_by=")
    if output.nulls == "unchanged" and (output.history or output.truncate is not None or output.evolve):
        raise PipelineError(
            place,
            "table: nulls='unchanged' does not go together with history=, truncate= and evolve=; drop it",
        )
    for name, columns in (("key", output.key), ("partition_by", output.partition_by)):
        if wrong := [column for column in output.leave_out if column in columns]:
            raise PipelineError(place, f"table: leave_out={wrong[0]!r} is a column of {name}=; keep it")


def length_of(place: SourceLine, name: str, value: str | timedelta | None) -> timedelta | None:
    try:
        return None if value is None else duration(value)
    except ValueError as error:
        raise PipelineError(place, f"{name}={error}") from error


def mode_of(place: SourceLine, mode: Mode | None) -> Mode | None:
    if mode is not None:
        one_of(place, "mode", mode, MODES)
    return mode


def names_of(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
