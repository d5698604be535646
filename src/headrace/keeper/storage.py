"""The data directory: what a start reads, what is kept, what is removed.

version-2/snapshot.<zxid>, version-2/log.<zxid>     ZooKeeper's own files
headrace.secret                                     what session passwords are made from
"""

import logging
import os
from typing import Final, NamedTuple

from headrace.core.errors import OperatorError
from headrace.core.files import DirectoryLock, Disk
from headrace.core.telemetry import event
from headrace.keeper import snapshot, txn_log
from headrace.keeper.transactions import CloseSession, OpenSession, Transaction, apply_again
from headrace.keeper.tree import Tree

_FOLDER: Final = "version-2"
_SECRET: Final = "headrace.secret"
_SECRET_BYTES: Final = 32

logger = logging.getLogger(__name__)


class Loaded(NamedTuple):
    tree: Tree
    sessions: dict[int, int]  # the time-out of each
    transactions: int  # read from logs


class Storage:
    def __init__(self, data: str, logs: str = "", disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self.data = data
        self.snapshots = os.path.join(data, _FOLDER)
        self.logs = os.path.join(logs or data, _FOLDER)
        try:
            for directory in (self.snapshots, self.logs):
                self.disk.make_directory(directory)
            self._lock = DirectoryLock(data)
        except OSError as error:
            raise OperatorError(
                f"{data}: {error.strerror}; give a directory that can be written, with --data"
            ) from error

    def secret(self) -> bytes:
        """Random, made once: who reads it could take over sessions, so nobody else may read it."""
        path = os.path.join(self.data, _SECRET)
        found = self.disk.read_file(path)
        if found is not None and len(found) == _SECRET_BYTES:
            return found
        made = os.urandom(_SECRET_BYTES)
        self.disk.replace_file(path, made)
        os.chmod(path, 0o600)
        self.disk.sync_directory(self.data)
        return made

    def load(self) -> Loaded:
        for name in os.listdir(self.snapshots):
            if name.startswith(snapshot.PREFIX) and name.endswith(snapshot.TEMPORARY):  # that a crash cut short
                self.disk.unlink(os.path.join(self.snapshots, name))
        damaged: list[tuple[int, OperatorError]] = []
        tree, sessions = self._newest_snapshot(damaged)
        count = 0
        paths = self._logs_from(tree.last_zxid)
        for path in paths:
            for entry in txn_log.read(path, self.disk):
                transaction = entry.transaction
                if transaction.zxid <= tree.last_zxid:
                    continue
                if transaction.zxid != tree.last_zxid + 1:
                    raise OperatorError(
                        f"{path}: transaction {transaction.zxid:#x} follows {tree.last_zxid:#x}: a log between them is"
                        " missing; restore it from a copy"
                    )
                _apply(tree, sessions, transaction)
                count += 1
        if damaged and tree.last_zxid < damaged[0][0]:
            raise damaged[0][1]  # an older snapshot, and no logs that lead from it to this one
        if paths:
            txn_log.settle(paths[-1], self.disk)
        tree.take_events()
        return Loaded(tree, sessions, count)

    def _newest_snapshot(self, damaged: list[tuple[int, OperatorError]]) -> tuple[Tree, dict[int, int]]:
        """An older one does if the newest is damaged, as long as the logs since then are there."""
        for zxid, name in sorted(self._named(self.snapshots, snapshot.PREFIX), reverse=True):
            try:
                return snapshot.read(os.path.join(self.snapshots, name), zxid, self.disk)
            except OperatorError as error:
                damaged.append((zxid, error))
                event(logger, logging.WARNING, "damaged snapshot left out", reason=str(error))
        logs = sorted(self._named(self.logs, txn_log.PREFIX))
        whole = bool(logs) and logs[0][0] == 1
        if damaged and not whole:
            raise damaged[0][1]
        tree = Tree()
        if not damaged and (whole or not logs):
            # As ZooKeeper does, which takes logs without any snapshot for a damaged directory, and does not start.
            snapshot.write(self.snapshots, 0, tree.nodes, {}, self.disk)
        return tree, {}

    def _logs_from(self, zxid: int) -> list[str]:
        """The logs that may hold transactions behind this one: the last that begins at or before it, and later ones."""
        found = sorted(self._named(self.logs, txn_log.PREFIX))
        earlier = [name for first, name in found if first <= zxid + 1]
        later = [name for first, name in found if first > zxid + 1]
        return [os.path.join(self.logs, name) for name in earlier[-1:] + later]

    def _named(self, directory: str, prefix: str) -> list[tuple[int, str]]:
        found = [(txn_log.log_zxid(name, prefix), name) for name in os.listdir(directory)]
        return [(zxid, name) for zxid, name in found if zxid >= 0]

    def purge(self, keep: int) -> list[str]:
        """Removes all but the newest snapshots, and the logs that only the removed ones need; their paths."""
        found = sorted(self._named(self.snapshots, snapshot.PREFIX), reverse=True)
        removed = [os.path.join(self.snapshots, name) for _, name in found[keep:]]
        if removed and len(found) >= keep:
            needed = set(self._logs_from(found[keep - 1][0]))
            for _, name in self._named(self.logs, txn_log.PREFIX):
                path = os.path.join(self.logs, name)
                if path not in needed:
                    removed.append(path)
        for path in removed:
            self.disk.unlink(path)
        return removed

    def close(self) -> None:
        self._lock.release()


def _apply(tree: Tree, sessions: dict[int, int], transaction: Transaction) -> None:
    body = transaction.body
    if isinstance(body, OpenSession):
        sessions[transaction.session] = body.timeout_ms
    elif isinstance(body, CloseSession):
        sessions.pop(transaction.session, None)
    apply_again(tree, transaction)
