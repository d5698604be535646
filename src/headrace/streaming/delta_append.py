"""Appending batches to a Delta table, each in one commit that says which batch it was.

Delta's own writer asks the table before each write whether the batch is there already, and to answer makes the table's
state from its log again: that is half of the time of a small batch. Here the table is asked only when somebody else
has written to it since our last commit, or when there was none yet and the table is not new. What is committed is the
same: the files, the transaction id, the offsets.
"""

import functools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.streaming.delta_writes import Stamp, append, holds_no_batch, stamped
from headrace.streaming.spark_internals.classes import MissingError
from headrace.streaming.spark_internals.delta import TableCommit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class DeltaAppender:
    """One table, one writer of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last: dict[str, int] = {}  # the batch that we wrote last, by its transaction id
        self._version: int | None = None  # of the table, after that
        self._schema: tuple[str, StructType] | None = None

    def append(self, frame: "DataFrame", stamp: Stamp) -> bool:
        """False when Delta's own writer must write it: the table has other columns than the frame, and whether that
        may be is for it to decide; or this Delta lets nobody else commit."""
        return self.append_parts([(frame, stamp)])

    def append_parts(self, parts: "Sequence[tuple[DataFrame, Stamp]]") -> bool:
        """The parts of one batch in one commit, each under its own transaction id; those that are there are left out.
        False as for `append`."""
        (first, stamp), *_ = parts
        spark = first.sparkSession
        try:
            commit = TableCommit(spark, self._path)
            if not all(self._same_columns(frame, commit.schema_text) for frame, _ in parts):
                return False
            left = [part for part in parts if not self._is_there(commit, part[1])]
            if not left:
                return True
            frame = functools.reduce(lambda one, other: one.unionAll(other), [frame for frame, _ in left])
            batches = [(each.app_id, each.batch) for _, each in left if each.transactional]
            with stamped(spark, stamp):
                self._version = commit.append(frame, batches)
        except MissingError:
            return False
        self._last |= {each.app_id: each.batch for _, each in left}
        return True

    def _is_there(self, commit: TableCommit, stamp: Stamp) -> bool:
        if not stamp.transactional:
            return False
        batch = self._last.get(stamp.app_id)
        if batch is not None and stamp.batch <= batch:
            return True
        version = commit.version
        if holds_no_batch(version, self._path) or (batch is not None and version == self._version):
            return False
        return commit.last_batch(stamp.app_id) >= stamp.batch

    def _same_columns(self, frame: "DataFrame", text: str) -> bool:
        from pyspark.sql.types import StructType

        if self._schema is None or self._schema[0] != text:
            self._schema = (text, StructType.fromJson(json.loads(text)))
        return _columns(self._schema[1]) == _columns(frame.schema)


def _columns(schema: "StructType") -> list[tuple[str, str]]:
    """Without what they say of nulls: Delta itself checks what the table forbids, and the rest may be either."""
    return [(column.name, column.dataType.simpleString()) for column in schema.fields]


def append_first(frame: "DataFrame", path: str, stamp: Stamp, *, evolve: bool) -> None:
    """The first batch of a table that is new."""
    if evolve or not DeltaAppender(path).append(frame, stamp):
        append(frame, path, stamp, evolve=evolve)
