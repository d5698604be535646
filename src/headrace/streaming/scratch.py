"""A directory for what Spark makes and forgets: shuffles, state, a warehouse that nobody uses, Derby's log.

It is removed when the session stops. What a killed process left behind is removed by the next one: each directory
holds a lock file, which the kernel frees when its owner dies.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from typing import IO

PREFIX = "headrace-spark-"
_LOCK = "owner.lock"


class Scratch:
    def __init__(self, parent: str | None = None) -> None:
        parent = parent or tempfile.gettempdir()
        os.makedirs(parent, exist_ok=True)
        remove_orphans(parent)
        self.path, self._lock = _made(parent)

    def directory(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.makedirs(path, exist_ok=True)
        return path

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _made(parent: str) -> tuple[str, IO[str]]:
    """A directory with its lock held. Another process may take the lock between its creation and ours, and remove the
    directory as an orphan: then the lock file is linked nowhere, and another directory is made."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        with suppress(FileNotFoundError):
            lock = open(os.path.join(path, _LOCK), "w")  # noqa: SIM115 - held until close
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock.fileno()).st_nlink:
                return path, lock
            lock.close()


def remove_orphans(parent: str) -> None:
    """Directories of ours whose owner is dead. One that is just being made has no lock yet, and is left alone."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
            continue
        with suppress(OSError), open(os.path.join(entry.path, _LOCK), "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)
