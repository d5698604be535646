"""What a pipeline's file calls, all in one place: `hr.topic`, `@hr.table`, `@hr.view`, `@hr.to_topic` and their kin."""

from headrace.streaming.declarations import PipelineError, SourceLine, collected
from headrace.streaming.declare_nodes import for_each_batch, materialized, table, to_topic, view
from headrace.streaming.declare_sources import changes, static, stream, topic
from headrace.streaming.rules import drop, fail, quarantine, warn

__all__ = [
    "changes",
    "drop",
    "fail",
    "for_each_batch",
    "materialized",
    "pipeline",
    "quarantine",
    "static",
    "stream",
    "table",
    "to_topic",
    "topic",
    "view",
    "warn",
]


def pipeline(name: str) -> None:
    """Names the pipeline; without it, it has the name of its file.

    >>> import headrace as hr
    >>> hr.pipeline("shop")
    """
    declared = collected()
    if declared is not None:
        if declared.pipeline not in (None, name):
            raise PipelineError(SourceLine.of_caller(), f"pipeline {name!r}: it is named {declared.pipeline!r} already")
        declared.pipeline = name
