"""Appending batches to a Delta table, each in one commit that says which batch it was.

Delta's own writer asks the table before each write whether the batch is there already, and to answer makes the table's
state from its log again: that is half of the time of a small batch. Here the table is asked only when somebody else
has written to it since our last commit, or when there was none yet. What is committed is the same: the files, the
transaction id, the offsets.
"""

import json
from typing import TYPE_CHECKING, Any

from headrace.streaming.delta_writes import Stamp, stamped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_OPTIONS_OF_WRITE = 8  # of Delta's record of a write, behind the mode; all optional, for its history only


class Appender:
    """One table, one writer of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last: tuple[int, int] | None = None  # the batch that we wrote last, and the table's version then
        self._schema: tuple[str, StructType] | None = None

    def append(self, frame: "DataFrame", stamp: Stamp) -> bool:
        """False when the table has other columns than the frame: whether that may be, Delta's own writer decides."""
        spark: Any = frame.sparkSession
        delta = spark._jvm.org.apache.spark.sql.delta
        transaction = delta.DeltaLog.forTable(spark._jsparkSession, self._path).startTransaction()
        if not self._same_columns(frame, str(transaction.metadata().schemaString())):
            return False
        if stamp.transactional and self._is_there(transaction, stamp):
            return True
        with stamped(spark, stamp):
            actions = transaction.writeFiles(frame._jdf)
            if stamp.transactional:
                option = spark._jvm.scala.Option
                now = option.apply(spark._jvm.java.lang.System.currentTimeMillis())
                actions = actions.prepended(delta.actions.SetTransaction(stamp.app_id, stamp.batch, now))
            version = transaction.commit(actions, _appended(spark))
        self._last = (stamp.batch, int(version))
        return True

    def _is_there(self, transaction: Any, stamp: Stamp) -> bool:
        if self._last is not None:
            batch, version = self._last
            if stamp.batch <= batch:
                return True
            if int(transaction.snapshot().version()) == version:
                return False
        return int(transaction.txnVersion(stamp.app_id)) >= stamp.batch

    def _same_columns(self, frame: "DataFrame", text: str) -> bool:
        from pyspark.sql.types import StructType

        if self._schema is None or self._schema[0] != text:
            self._schema = (text, StructType.fromJson(json.loads(text)))
        table = [(column.name, column.dataType) for column in self._schema[1].fields]
        return table == [(column.name, column.dataType) for column in frame.schema.fields]


def _appended(spark: Any) -> Any:
    none = spark._jvm.scala.Option.empty()
    mode = spark._jvm.org.apache.spark.sql.SaveMode.Append
    return spark._jvm.org.apache.spark.sql.delta.DeltaOperations.Write(mode, *[none] * _OPTIONS_OF_WRITE)
