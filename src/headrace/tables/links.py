"""The disk as the catalog uses it: links that are swapped in one rename, trees that are removed, a lock with a wait.

Everything that the catalog changes goes through `LinkDisk`, so that a test can end the process at any step of it.
"""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from headrace.core.errors import OperatorError
from headrace.core.files import Disk

LOCK_WAIT_SECONDS_MAX = 30.0
_LOCK_POLL_SECONDS = 0.02


class LockedError(OperatorError):
    """Somebody else is changing the catalogs of this directory."""


class LinkDisk(Disk):
    def read_link(self, path: str) -> str | None:
        """What a symbolic link holds; None if there is none, or something else."""
        try:
            return os.readlink(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINVAL, errno.ENOTDIR):
                return None
            raise

    def link_time_ms(self, path: str) -> int:
        return os.lstat(path).st_mtime_ns // 1_000_000

    def swap_link(self, target: str, path: str, *, time_ms: int | None = None) -> None:
        """Makes `path` a link to `target`, or turns it to `target`, in one step; the link itself bears the time."""
        temporary = path + ".tmp"
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(target, temporary)
        if time_ms is not None:
            os.utime(temporary, ns=(time_ms * 1_000_000, time_ms * 1_000_000), follow_symlinks=False)
        self.rename(temporary, path)

    def remove_tree(self, path: str) -> None:
        """What cannot be removed, because somebody still writes into it, is tried again at the next change."""
        shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def locked(self, path: str, wait_seconds_max: float = LOCK_WAIT_SECONDS_MAX) -> Iterator[None]:
        """Waits for others that change the catalogs of this directory; the kernel lets go when a process ends."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            deadline = time.monotonic() + wait_seconds_max
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise LockedError(
                            f"{path}: locked by another process for {wait_seconds_max:.0f} s; "
                            "let its cut-over end, then try again"
                        ) from None
                    time.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(fd)
