"""Delta's log in the JVM: a table's state without a job, and a commit of several transaction ids at once.

The public API gives the same answers more slowly, but for the commit: without it each part of a batch is a commit of
its own, written by Delta's own writer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.streaming.spark_internals.classes import answer, java_class, java_session, reached
from headrace.tables.object_store import delta_options
from headrace.tables.storage import is_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

NO_TABLE = -1  # the version of a table that is not there, as Delta counts
_DELTA = "org.apache.spark.sql.delta"
_OPTIONS_OF_WRITE = 8  # of Delta's record of a write, behind the mode; all optional, for its history only


class TableState(Protocol):
    """A table as it was at one moment."""

    @property
    def version(self) -> int:
        """`NO_TABLE` where there is none."""

    def has_property(self, key: str) -> bool: ...

    def batch(self, app_id: str) -> int | None:
        """The last transaction number of an application; None for none."""


def table_id(session: "SparkSession", path: str) -> str:
    """What Delta calls the table, wherever it lies."""
    return answer(lambda: str(_log(session, path).tableId()), lambda: str(_detail(session, path)["id"]))


def table_state(session: "SparkSession", path: str) -> TableState:
    """The table as it is now."""
    return answer(lambda: _from_log(session, path), lambda: _PublicState(session, path))


def _from_log(session: "SparkSession", path: str) -> TableState:
    none = java_class(session, "scala.Option").empty()
    return _LogState(_log(session, path).update(False, none, none))


class _LogState:
    def __init__(self, found: Any) -> None:
        self._found = found
        self.version = int(found.version())

    def has_property(self, key: str) -> bool:
        return bool(self._found.metadata().configuration().contains(key))

    def batch(self, app_id: str) -> int | None:
        """Delta makes the table's state from its log in two jobs for the first such question of a version."""
        found = self._found.transactions().get(app_id)
        return int(found.get()) if found.isDefined() else None


class _PublicState:
    def __init__(self, session: "SparkSession", path: str) -> None:
        self._session, self._path = session, path
        self.version = self._version()

    def _version(self) -> int:
        from delta.tables import DeltaTable

        if not is_delta(self._path):
            return NO_TABLE
        (last,) = DeltaTable.forPath(self._session, self._path).history(1).collect()
        return int(last["version"])

    def has_property(self, key: str) -> bool:
        return self.version != NO_TABLE and key in _detail(self._session, self._path)["properties"]

    def batch(self, app_id: str) -> int | None:
        if self.version == NO_TABLE:
            return None
        from deltalake import DeltaTable

        options = delta_options(self._path)
        return DeltaTable(self._path, version=self.version, storage_options=options).transaction_version(app_id)


class TableCommit:
    """One commit to be made, on the table as it was when this was made; Delta refuses it if somebody else's
    contradicts it. A `MissingError` says that Delta's own writer must make the commit."""

    def __init__(self, session: "SparkSession", path: str) -> None:
        self._session = session
        self._transaction = _log(session, path).startTransaction()
        self._option = java_class(session, "scala.Option")
        self._action = java_class(session, f"{_DELTA}.actions.SetTransaction")
        self._write = java_class(session, f"{_DELTA}.DeltaOperations.Write")
        self._mode = java_class(session, "org.apache.spark.sql.SaveMode")
        self._system = java_class(session, "java.lang.System")
        self.schema_text = str(self._transaction.metadata().schemaString())
        self.version = int(self._transaction.snapshot().version())

    def last_batch(self, app_id: str) -> int:
        """-1 for none."""
        return int(self._transaction.txnVersion(app_id))

    def append(self, frame: "DataFrame", batches: Sequence[tuple[str, int]]) -> int:
        """Writes the rows with the transaction ids and numbers of `batches`; the version that has them. After a
        `MissingError` nothing is committed."""
        found: Any = frame
        with reached():
            actions = self._transaction.writeFiles(found._jdf)
            now = self._option.apply(self._system.currentTimeMillis())
            for app_id, batch in batches:
                actions = actions.prepended(self._action(app_id, batch, now))
            operation = self._write(self._mode.Append, *[self._option.empty()] * _OPTIONS_OF_WRITE)
            return int(self._transaction.commit(actions, operation))


def _log(session: "SparkSession", path: str) -> Any:
    with reached():
        return java_class(session, f"{_DELTA}.DeltaLog").forTable(java_session(session), path)


def _detail(session: "SparkSession", path: str) -> "Row":
    from delta.tables import DeltaTable

    (found,) = DeltaTable.forPath(session, path).detail().collect()
    return found
