"""Appending batches to a Delta table, each in one commit that says which batch it was.

Delta's own writer asks the table before each write whether the batch is there already, and to answer makes the table's
state from its log again: that is half of the time of a small batch. Here the table is asked only when somebody else
has written to it since our last commit, or when there was none yet and the table is not new. What is committed is the
same: the files, the transaction id, the offsets.
"""

import functools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.streaming.delta_writes import Stamp, append, holds_no_batch, stamped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_OPTIONS_OF_WRITE = 8  # of Delta's record of a write, behind the mode; all optional, for its history only


class Appender:
    """One table, one writer of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last: dict[str, int] = {}  # the batch that we wrote last, by its transaction id
        self._version: int | None = None  # of the table, after that
        self._schema: tuple[str, StructType] | None = None

    def append(self, frame: "DataFrame", stamp: Stamp) -> bool:
        """False when the table has other columns than the frame: whether that may be, Delta's own writer decides."""
        return self.append_parts([(frame, stamp)])

    def append_parts(self, parts: "Sequence[tuple[DataFrame, Stamp]]") -> bool:
        """The parts of one batch in one commit, each under its own transaction id; those that are there are left out.
        False, as for `append`, when one of them has other columns than the table."""
        (first, stamp), *_ = parts
        spark: Any = first.sparkSession
        delta = spark._jvm.org.apache.spark.sql.delta
        transaction = delta.DeltaLog.forTable(spark._jsparkSession, self._path).startTransaction()
        schema = str(transaction.metadata().schemaString())
        if not all(self._same_columns(frame, schema) for frame, _ in parts):
            return False
        left = [part for part in parts if not self._is_there(transaction, part[1])]
        if not left:
            return True
        with stamped(spark, stamp):
            frame: Any = functools.reduce(lambda one, other: one.unionAll(other), [frame for frame, _ in left])
            actions = transaction.writeFiles(frame._jdf)
            now = spark._jvm.scala.Option.apply(spark._jvm.java.lang.System.currentTimeMillis())
            for _, each in left:
                if each.transactional:
                    actions = actions.prepended(delta.actions.SetTransaction(each.app_id, each.batch, now))
            self._version = int(transaction.commit(actions, _appended(spark)))
        self._last |= {each.app_id: each.batch for _, each in left}
        return True

    def _is_there(self, transaction: Any, stamp: Stamp) -> bool:
        if not stamp.transactional:
            return False
        batch = self._last.get(stamp.app_id)
        if batch is not None and stamp.batch <= batch:
            return True
        snapshot = transaction.snapshot()
        if holds_no_batch(snapshot, self._path) or (batch is not None and int(snapshot.version()) == self._version):
            return False
        return int(transaction.txnVersion(stamp.app_id)) >= stamp.batch

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
    if evolve or not Appender(path).append(frame, stamp):
        append(frame, path, stamp, evolve=evolve)


def _appended(spark: Any) -> Any:
    none = spark._jvm.scala.Option.empty()
    mode = spark._jvm.org.apache.spark.sql.SaveMode.Append
    return spark._jvm.org.apache.spark.sql.delta.DeltaOperations.Write(mode, *[none] * _OPTIONS_OF_WRITE)
