"""What would make a node's result depend on where batches end, found in its declaration and its plan.

A result must follow from the log and the code, so that a replay gives the same. What cannot is refused here, with the
choices; what leaves it to the user's own code (the time of the batch, custom state, any one of several rows) is noted,
so that `check` shows it. Tables whose rows change are the business of `changing`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.streaming.declarations import Mode, Node, PipelineError, TableOutput, TopicOutput
from headrace.streaming.plans import operators, updates_rows
from headrace.streaming.spark_internals.plan import uses_batch_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail"})
_CUSTOM_STATE = frozenset({"FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState",
                           "TransformWithStateInPySpark", "TransformWithStateInPandas"})  # fmt: skip
_ANY_OF_SEVERAL = frozenset({"Deduplicate", "DeduplicateWithinWatermark"})


def refuse_dependent(node: Node, frame: "DataFrame", mode: Mode) -> None:
    """`frame` streams."""
    output = node.output
    if mode != "complete":
        for plan in operators(frame):
            if plan.isStreaming() and plan.nodeName() in _LIMITS:
                raise PipelineError(
                    node.place,
                    f"{node.name}: limits a stream, so that which rows it takes depends on the batches; keep all rows "
                    f"in a table, and declare {node.name} with @hr.materialized over it",
                )
    if not (isinstance(output, TableOutput) and mode == "update" and updates_rows(frame)):
        return
    if not output.key:
        raise PipelineError(
            node.place,
            f"{node.name}: mode='update' appends a row again each time that an aggregate or custom state updates it, "
            f"as often as there are batches; add key= to merge rows as they change, or mode='complete', or a watermark",
        )
    if output.order_by:
        raise PipelineError(
            node.place,
            f"{node.name}: order_by={', '.join(output.order_by)!r} on rows that an aggregate or custom state updates: "
            f"how many rows of a key there are to choose from depends on the batches. Remove order_by=, since the last "
            f"row of a state has seen all before it; or order the rows below the state, in a keyed table of their own",
        )
    for each in node.expectations:
        if each.action in ("drop", "quarantine"):
            raise PipelineError(
                node.place,
                f"{node.name}: expectation {each.name!r} takes rows out that an aggregate or custom state updates, so "
                f"that a row which no longer passes would stay in the table as it was; use hr.warn or hr.fail, or "
                f'delete="not ({each.predicate})", or expect it of what {node.name} reads',
            )


def dependence_notes(node: Node, frame: "DataFrame", mode: Mode) -> Iterator[str]:
    plans = list(operators(frame))
    if uses_batch_time(frame):
        yield "uses the time of the batch (current_timestamp and its like), which is another one in a replay"
    if not all(plan.deterministic() for plan in plans):
        yield "uses what may differ in a replay (rand, uuid, first, last, collect_list); max_by finds the last value"
    names = {str(plan.nodeName()) for plan in plans if plan.isStreaming()}
    if names & _CUSTOM_STATE:
        yield "custom state: its function must give the same in whatever batches the rows of a group come"
    if names & _ANY_OF_SEVERAL:
        yield "dropDuplicates keeps any one of several rows; if they differ, use a table with key= and order_by="
    if isinstance(node.output, TopicOutput) and mode == "update" and updates_rows(frame):
        yield "a record for each update of a row: how many there are depends on the batches, the last one does not"
