"""A node's table as the place where its batches go: appended, merged by key, rewritten, or written by the user."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.streaming.assembling import call_user, stored
from headrace.streaming.declarations import BATCH_ARGUMENT, Node, TableOutput
from headrace.streaming.delta_append import DeltaAppender
from headrace.streaming.delta_writes import Stamp, append, is_written, overwrite, stamped
from headrace.streaming.expectations import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Keyed(Protocol):
    """Merges the rows of a batch by their key."""

    def write(self, frame: "DataFrame", columns: list[str], stamp: Stamp) -> None: ...


class DeltaSink:
    def __init__(self, node: Node, output: TableOutput, path: str, keyed: Keyed | None = None) -> None:
        """`keyed` merges the rows of a table with a key."""
        self._keyed = keyed
        self._node = node
        self._output = output
        self._path = path
        self._appender = DeltaAppender(path)

    def done(self, spark: "SparkSession", stamp: Stamp) -> bool:
        return is_written(spark, self._path, stamp)

    def write(self, frame: "DataFrame", stamp: Stamp) -> None:
        if self._output.mode == "complete" or stamp.has_input:
            self._write(frame, stamp)
            return
        # Spark runs such a batch to take old groups out of its state, or to close windows. It seldom gives a row, and
        # without one there is nothing to commit.
        frame = frame.persist()
        try:
            if frame.count():
                self._write(frame, stamp)
        finally:
            frame.unpersist()

    def _write(self, frame: "DataFrame", stamp: Stamp) -> None:
        output, rows = self._output, kept(frame, self._node.expectations)
        if self._keyed is not None:
            self._keyed.write(rows, stored(frame, output.leave_out).columns, stamp)
        elif output.mode == "complete":
            overwrite(stored(rows, output.leave_out), self._path, stamp, evolve=output.evolve)
        elif output.replace_where is not None and stamp.batch == 0:
            overwrite(stored(rows, output.leave_out), self._path, stamp, replace_where=output.replace_where)
        else:
            frame = stored(rows, output.leave_out)
            if output.evolve or not self._appender.append(frame, stamp):
                append(frame, self._path, stamp, evolve=output.evolve)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a for_each_batch function gets as its argument `batch`."""

    id: int
    path: Callable[[str], str]
    """The path of a table in this version's directory, for a table that the function itself writes."""


class UserSink:
    """The user's function writes; its Delta writes carry the batch's transaction."""

    def __init__(
        self,
        node: Node,
        files: frozenset[str],
        statics: "dict[str, DataFrame]",
        path_of: Callable[[str], str],
    ) -> None:
        self._node = node
        self._files = files
        self._statics = statics
        self._path_of = path_of

    def done(self, spark: "SparkSession", stamp: Stamp) -> bool:
        return False  # which tables it writes, only the function knows: each of them refuses for itself

    def write(self, frame: "DataFrame", stamp: Stamp) -> None:
        node = self._node
        # Kept, so that a function with several writes reads the log once, and rows are counted once.
        rows = kept(frame, node.expectations).persist()
        arguments = {node.inputs[0]: rows, **self._statics}
        if node.takes_batch:
            arguments[BATCH_ARGUMENT] = Batch(id=stamp.batch, path=self._path_of)  # type: ignore[assignment]
        try:
            with stamped(rows.sparkSession, stamp):
                call_user(node, self._files, lambda: node.function(**arguments))
            # A function that wrote nothing, or whose writes were all there, has not run the batch.
            rows.write.format("noop").mode("overwrite").save()
        finally:
            rows.unpersist()
