"""What a streaming query counted in the batch that it is writing. Its public progress says so only when the batch has
ended, which is too late: what was bad must be put aside as part of the batch. Without it a batch fails, rather than
pass over records that could not be parsed.
"""

from typing import TYPE_CHECKING, Any

from headrace.streaming.spark_internals.classes import reached
from headrace.streaming.spark_internals.plan import each_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DROPPED_BY_WATERMARK = "numRowsDroppedByWatermark"  # Spark's name of the metric


def observed(query: "StreamingQuery") -> dict[str, str]:
    """The values that `DataFrame.observe` collected so far: a JSON object for each name."""
    found = {}
    with reached():
        metrics = _execution(query).observedMetrics().iterator()
        while metrics.hasNext():
            entry = metrics.next()
            found[str(entry._1())] = str(entry._2().json())
    return found


def dropped_late(query: "StreamingQuery") -> tuple[int, int | None]:
    """Rows that came behind the watermark, as Spark's state operators counted them, and the watermark in milliseconds
    of an operator that dropped some."""
    late, watermark_ms = 0, None
    with reached():
        work = [_execution(query).executedPlan()]
        while work:
            plan = work.pop()
            metric = plan.metrics().get(DROPPED_BY_WATERMARK)
            if metric.isDefined() and (dropped := int(metric.get().value())) > 0:
                late += dropped
                watermark = plan.eventTimeWatermarkForLateEvents()
                watermark_ms = int(watermark.get()) if watermark.isDefined() else watermark_ms
            work.extend(each_of(plan.children()))
    return late, watermark_ms


def _execution(query: Any) -> Any:
    return query._jsq.streamingQuery().lastExecution()
