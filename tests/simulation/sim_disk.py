"""A disk over a real directory that can fail, fill up, crash in the middle of an operation, and lose power.

What a loss of power takes is what no flush has covered: of each file, the bytes that the last flush did not see, or by
chance only some of them. Names (made, renamed, removed) are kept in order, as a journalling file system does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Sequence

from headrace.core.files import Disk

GROWING = (".log", ".journal", "index")


class Crash(BaseException):
    """The process is gone, in the middle of what it was doing."""


class SimDisk(Disk):
    def __init__(self, root: str, rng: random.Random, *, loses_power: bool) -> None:
        self._root = root
        self._rng = rng
        self._paths: dict[int, str] = {}
        self._safe: dict[str, bytes] = {}  # what a loss of power leaves; a file that is not here was never flushed
        self._loses_power = loses_power
        self.refusals: list[tuple[str, int]] = []  # (operation, error) to come, once each
        self.crash_in: int | None = None  # so many operations more
        self.dead = False

    # ── what the simulation does ─────────────────────────────────────────────────────────────────────────────────

    def heal(self) -> None:
        self.refusals.clear()
        self.crash_in = None

    def process_died(self) -> None:
        """Its descriptors are closed; nothing that it still does reaches the disk."""
        self.dead = True
        for fd in self._paths:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._paths.clear()

    def lose_power(self) -> None:
        for directory, _, names in sorted(os.walk(self._root)):
            for name in sorted(names):
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    now = file.read()
                safe = self._safe.get(path, b"")
                if now == safe:
                    continue
                left = self._left(name, safe, now)
                with open(path, "wb") as file:
                    file.write(left)
                self._safe[path] = left

    def _left(self, name: str, safe: bytes, now: bytes) -> bytes:
        """What a loss of power leaves of a file, of which `safe` was flushed."""
        if not name.endswith(GROWING) and self._rng.random() < 0.7:
            return self._rng.choice((safe, now))  # one small write
        if now.startswith(safe):
            return now[: self._rng.choice((len(safe), len(now), self._rng.randint(len(safe), len(now))))]
        return self._rng.choice((safe, now))

    def start_again(self) -> None:
        self.dead = False
        self.heal()

    # ── what the process does ─────────────────────────────────────────────────────────────────────────────────────

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC) -> int:
        self._live()
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        if self._paths.pop(fd, None) is not None:
            super().close(fd)

    def write(self, fd: int, pieces: Sequence[bytes | bytearray | memoryview], at: int) -> None:
        data = b"".join(pieces)
        refused = self._refused("write")
        if refused or self._crashes():
            os.pwrite(fd, data[: self._rng.randint(0, len(data))], at)  # a part of it got there
            if not refused:
                raise Crash
            raise OSError(refused, os.strerror(refused), self._paths[fd])
        os.pwrite(fd, data, at)

    def read(self, fd: int, size: int, at: int) -> bytes:
        self._live()
        return super().read(fd, size, at)

    def sync(self, fd: int) -> None:
        refused = self._refused("sync")
        if refused:
            raise OSError(refused, os.strerror(refused), self._paths[fd])
        self._maybe_crash()
        if self._loses_power:
            self._safe[self._paths[fd]] = os.pread(fd, os.fstat(fd).st_size, 0)

    def sync_file_system(self, path: str) -> None:
        self._maybe_crash()
        for directory, _, names in os.walk(path):
            for name in names:
                with open(os.path.join(directory, name), "rb") as file:
                    self._safe[file.name] = file.read()

    def sync_directory(self, path: str) -> None:
        self._maybe_crash()

    def truncate(self, fd: int, size: int) -> None:
        self._maybe_crash()
        super().truncate(fd, size)

    def rename(self, old: str, new: str) -> None:
        self._maybe_crash()
        super().rename(old, new)
        if old in self._safe:
            self._safe[new] = self._safe.pop(old)
        else:
            self._safe.pop(new, None)

    def unlink(self, path: str) -> None:
        self._maybe_crash()
        super().unlink(path)
        self._safe.pop(path, None)

    def make_directory(self, path: str) -> None:
        self._maybe_crash()
        super().make_directory(path)

    def _live(self) -> None:
        if self.dead:
            raise Crash

    def _crashes(self) -> bool:
        self._live()
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.dead = True
                return True
        return False

    def _maybe_crash(self) -> None:
        if self._crashes():
            raise Crash

    def _refused(self, operation: str) -> int:
        self._live()
        for at, (refused, code) in enumerate(self.refusals):
            if refused == operation:
                del self.refusals[at]
                return code
        return 0


FULL, BROKEN = errno.ENOSPC, errno.EIO
