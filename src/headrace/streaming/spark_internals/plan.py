"""The plan that Spark made of a function, and what Spark's own rules say of it. Reading only: no job starts.

A plan and its expressions are Java objects; `plans` and its neighbours walk them.
"""

import io
import re
import tempfile
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from headrace.streaming.spark_errors import first_line
from headrace.streaming.spark_internals.classes import answer, java_class, java_session, reached

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CATALYST = "org.apache.spark.sql.catalyst"
# As `explain` writes them: what Spark counts among the values that are the same for a whole batch.
_BATCH_TIME = re.compile(r"\b(?:current_\w+|localtimestamp|now|user|session_user)\(")
_AGGREGATE = "AggregateExpression"


def analysed(frame: "DataFrame") -> Any:
    """The operators that Spark understood, not yet optimised. Without them nobody can tell whether a function's result
    depends on its batches, so nothing may go on: `MissingError`."""
    found: Any = frame
    with reached():
        return found._jdf.queryExecution().analyzed()


def each_of(seq: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [seq.apply(index) for index in range(seq.size())]


def refusal(frame: "DataFrame", mode: str) -> str | None:
    """Why Spark runs no stream of it in an output mode; None if it does."""
    return answer(lambda: _checked(frame, mode), lambda: _tried(frame, mode))


def _checked(frame: "DataFrame", mode: str) -> str | None:
    session = frame.sparkSession
    checker = java_class(session, f"{_CATALYST}.analysis.UnsupportedOperationChecker")
    modes = java_class(session, "org.apache.spark.sql.streaming.OutputMode")
    java_mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    plan = analysed(frame)
    with reached():
        try:
            checker.checkForStreaming(plan, java_mode)
        except Exception as error:
            if type(error).__name__ == "AnalysisException":
                return _reason(error)
            raise
    return None


def _tried(frame: "DataFrame", mode: str) -> str | None:
    """Spark says the same when the stream is started; what it then reads goes nowhere."""
    with tempfile.TemporaryDirectory(prefix="headrace-mode-") as checkpoint:
        writer = frame.writeStream.outputMode(mode).format("noop").option("checkpointLocation", checkpoint)
        try:
            query = writer.start()
        except Exception as error:
            return _reason(error)
        query.stop()
    return None


def _reason(error: Exception) -> str:
    return first_line(error).split(";")[0]


def uses_batch_time(frame: "DataFrame") -> bool:
    """Whether current_timestamp or its like is in it."""
    return answer(lambda: _has_current(frame), lambda: _explains_current(frame))


def _has_current(frame: "DataFrame") -> bool:
    pattern = java_class(frame.sparkSession, f"{_CATALYST}.trees.TreePattern").CURRENT_LIKE()
    return bool(analysed(frame).containsPattern(pattern))


def _explains_current(frame: "DataFrame") -> bool:
    """A text in a plan may look like a call: then this says yes where Spark's own pattern says no."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        frame.explain(extended=True)
    return _BATCH_TIME.search(printed.getvalue()) is not None


def holds_aggregate(session: "SparkSession", expression: Any) -> bool:
    """Whether an expression has an aggregate function in it."""
    name = f"{_CATALYST}.expressions.aggregate.{_AGGREGATE}"
    return answer(
        lambda: bool(java_class(session, name).containsAggregate(expression)), lambda: _has_aggregate(expression)
    )


def _has_aggregate(expression: Any) -> bool:
    if str(expression.getClass().getSimpleName()) == _AGGREGATE:
        return True
    return any(_has_aggregate(child) for child in each_of(expression.children()))


def rows_of(session: "SparkSession", plan: Any) -> "DataFrame":
    """The rows of a part of a plan. Without it nobody can tell which rows came late: `late="quarantine"` cannot be
    used, and late rows are only counted."""
    from pyspark.sql import DataFrame

    with reached():
        dataset = java_class(session, "org.apache.spark.sql.classic.Dataset").ofRows(java_session(session), plan)
    return DataFrame(dataset, session)
