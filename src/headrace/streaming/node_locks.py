"""Which nodes a run may run: a node that several versions share is run by one process, whichever version's run it is.

A run holds the lock of each node that it runs, until it ends; the locks are the kernel's, so that they go with the
process. Nodes that a version has taken over are its own to run only while it is live: before its cut-over they are with
the version that was live, and after a rollback they are with that one again. No Spark.
"""

import fcntl
import os
from collections.abc import Mapping

from headrace.tables.layout import PipelineLayout, version_number
from headrace.tables.storage import is_url


class NodeLocks:
    """Used with `with`; every lock is let go of at its end."""

    def __init__(self, layout: PipelineLayout, version: int, taken: Mapping[str, int]) -> None:
        self._layout = layout
        self._version = version
        self._taken = taken
        self._held: dict[str, int] = {}

    def mine(self, node: str) -> bool:
        """Takes a node for this run, if it may have it and nobody else has it."""
        if node in self._held or is_url(self._layout.root):  # no version shares nodes in an object store
            return True
        if node in self._taken and not self._live():
            return False
        path = self._layout.lock_of_node(self._taken.get(node, self._version), node)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._held[node] = descriptor
        return True

    def _live(self) -> bool:
        try:
            return version_number(os.readlink(self._layout.live_link)) == self._version
        except OSError:
            return False

    def __enter__(self) -> "NodeLocks":
        return self

    def __exit__(self, *error: object) -> None:
        while self._held:
            os.close(self._held.popitem()[1])
