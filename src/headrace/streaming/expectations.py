"""What rows must satisfy: counted in the pass that writes them. How the counts are kept, `tables.expectations` knows.

A predicate that is null is not true, so the row fails it. `fail` raises inside the query, before anything is written;
`drop` and `quarantine` leave rows out of what is written; `warn` only counts.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.streaming.declarations import Expectation
from headrace.streaming.progress import CAN_BE_PARSED
from headrace.tables.expectations import BatchOutcome, Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBSERVED = "headrace.expected"
# Found again in the text of Spark's exception, to tell this failure from all others.
FAILED_MARK = "headrace expectation failed: "
ROW_CHARS_MAX = 500
VALUE_CHARS_MAX = 80


def observe(frame: "DataFrame", expectations: tuple[Expectation, ...]) -> "DataFrame":
    """Counts rows and failures under OBSERVED, and raises on the first row that a `fail` does not hold for. Where
    nothing is expected, nothing is counted: that would cost a copy of each row."""
    from pyspark.sql import functions as F

    if not expectations:
        return frame
    counts = [F.count(F.lit(1)).alias("rows")]
    counts += [F.count_if(~holds(each)).alias(f"e{index}") for index, each in enumerate(expectations)]
    left_out = [~holds(each) for each in expectations if each.action == "quarantine"]
    counts.append((F.count_if(_any(left_out)) if left_out else F.count_if(F.lit(False))).alias("quarantined"))
    counted = frame.observe(OBSERVED, *counts)
    for each in expectations:
        if each.action == "fail":
            row = F.substring(F.to_json(F.struct(*[F.col(_quoted(name)) for name in dict.fromkeys(frame.columns)])),
                              1, ROW_CHARS_MAX)  # fmt: skip
            message = F.concat(F.lit(f"{FAILED_MARK}{each.name} ({each.predicate}) in "), row)
            counted = counted.where(F.when(holds(each), True).otherwise(F.raise_error(message).cast("boolean")))
    return counted


def kept(frame: "DataFrame", expectations: tuple[Expectation, ...]) -> "DataFrame":
    """Without the rows that are dropped or go to quarantine."""
    for each in expectations:
        if each.action in ("drop", "quarantine"):
            frame = frame.where(holds(each))
    return frame


def quarantined(frame: "DataFrame", expectations: tuple[Expectation, ...]) -> "tuple[DataFrame, Column]":
    """The rows that go to quarantine, and an expression of the reason."""
    from pyspark.sql import functions as F

    rules = [each for each in expectations if each.action == "quarantine"]
    names = [F.when(~holds(each), _reason(frame, each)) for each in rules]
    # A row that is dropped as well is in neither place: it was declared to go.
    for each in expectations:
        if each.action == "drop":
            frame = frame.where(holds(each))
    return frame.where(_any([~holds(each) for each in rules])), F.array_join(F.array_compact(F.array(*names)), "; ")


def _reason(frame: "DataFrame", expectation: Expectation) -> "Column":
    """`positive (amount > 0): amount is -1.0`"""
    from pyspark.sql import functions as F

    words = set(re.findall(r"\w+", re.sub(r"'[^']*'", "", expectation.predicate.lower())))
    said = [
        F.concat(
            F.lit(f"{name} is "),
            F.coalesce(F.substring(F.col(_quoted(name)).cast("string"), 1, VALUE_CHARS_MAX), F.lit("null")),
        )
        for name in dict.fromkeys(frame.columns)
        if name.lower() in words
    ]
    what = F.lit(f"{expectation.name} ({expectation.predicate})")
    return F.concat(what, F.lit(": "), F.concat_ws(", ", *said)) if said else what


def holds(expectation: Expectation) -> "Column":
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(expectation.predicate).cast("boolean"), F.lit(False))


def outcome_of(
    batch: int,
    metrics: Mapping[str, Mapping[str, Any]],
    expectations: tuple[Expectation, ...],
    unparsed: int,
    late: int = 0,
    extra: Mapping[str, int] = MappingProxyType({}),
) -> BatchOutcome:
    """Of one batch: rows that the function returned, records that could not be parsed, failures by expectation, rows
    that came behind the watermark, records with fields that the schema does not have."""
    row = metrics.get(OBSERVED, {})
    by_name = {
        each.name: Outcome(action=each.action, failed=row.get(f"e{index}", 0))
        for index, each in enumerate(expectations)
    }
    if unparsed:
        by_name[CAN_BE_PARSED] = Outcome(action="quarantine", failed=unparsed)
    return BatchOutcome(
        batch=batch,
        at=datetime.now(UTC),
        rows=row.get("rows", 0),
        unparsed=unparsed,
        quarantined=row.get("quarantined", 0),
        late=late,
        extra=extra,
        expectations=by_name,
    )


def _any(columns: "list[Column]") -> "Column":
    result = columns[0]
    for column in columns[1:]:
        result = result | column
    return result


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
