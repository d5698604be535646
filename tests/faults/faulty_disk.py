"""A disk that does as it is told: fails, hangs, or is full.

Faults are given by a part of the path: `disk.fail("/bad/", on=("sync",))`. What it lets through is really
done, so a test can look at the files afterwards. It never fails what it was not told to.
"""

from __future__ import annotations

import errno
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from waits import WAIT_S_MAX

from headrace.core.files import Disk

EVERYTHING = ("open", "write", "read", "sync", "truncate", "rename", "unlink", "make_directory")
HANG_S_MAX = 2 * WAIT_S_MAX  # whatever waits for it gives up before


class Fault:
    """One thing that goes wrong: an error code, or 0 for what hangs."""

    def __init__(self, path_part: str, on: frozenset[str], code: int, times: float) -> None:
        self.path_part = path_part
        self.on = on
        self.code = code
        self.times = times
        self.reached = threading.Event()
        self.released = threading.Event()

    def hits(self, operation: str, path: str) -> bool:
        return self.times > 0 and operation in self.on and self.path_part in path


class FaultyDisk(Disk):
    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._paths: dict[int, str] = {}
        self._room_bytes: int | None = None
        self._lock = threading.Lock()  # the broker writes from several threads

    # What a test says

    def fail(
        self, path_part: str, *, on: Sequence[str] = EVERYTHING, code: int = errno.EIO, times: float = math.inf
    ) -> None:
        """From now on these operations on paths that contain `path_part` raise OSError, so many times."""
        with self._lock:
            self._faults.append(Fault(path_part, frozenset(on), code, times))

    @contextmanager
    def hanging(self, path_part: str, *, on: Sequence[str]) -> Iterator[threading.Event]:
        """These operations do not return before this context ends; the event tells that one of them hangs."""
        fault = Fault(path_part, frozenset(on), 0, math.inf)
        with self._lock:
            self._faults.append(fault)
        try:
            yield fault.reached
        finally:
            with self._lock:
                self._faults.remove(fault)
            fault.released.set()

    def fill_after(self, bytes_more: int | None) -> None:
        """So many more bytes fit; None: there is no bound any more."""
        with self._lock:
            self._room_bytes = bytes_more

    # What the broker does

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC) -> int:
        self._check("open", path)
        fd = super().open(path, flags)
        with self._lock:
            self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._paths.pop(fd, None)
        super().close(fd)

    def write(self, fd: int, pieces: Sequence[bytes | bytearray | memoryview], at: int) -> None:
        self._check("write", self._paths.get(fd, ""))
        size = sum(map(len, pieces))
        with self._lock:
            room = self._room_bytes
            grows = max(0, at + size - os.fstat(fd).st_size)
            full = room is not None and grows > room
            if room is not None and not full:
                self._room_bytes = room - grows
        if full:
            # As a real one: it takes what fits, and then says no.
            super().write(fd, [b"".join(pieces)[: room or 0]], at)
            self._refuse(errno.ENOSPC, self._paths.get(fd, ""))
        super().write(fd, pieces, at)

    def read(self, fd: int, size: int, at: int) -> bytes:
        self._check("read", self._paths.get(fd, ""))
        return super().read(fd, size, at)

    def sync(self, fd: int) -> None:
        self._check("sync", self._paths.get(fd, ""))
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._check("truncate", self._paths.get(fd, ""))
        super().truncate(fd, size)

    def rename(self, old: str, new: str) -> None:
        self._check("rename", old)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._check("unlink", path)
        super().unlink(path)

    def make_directory(self, path: str) -> None:
        self._check("make_directory", path)
        super().make_directory(path)

    def _check(self, operation: str, path: str) -> None:
        with self._lock:
            fault = next((each for each in self._faults if each.hits(operation, path)), None)
            if fault is None:
                return
            fault.times -= 1
        fault.reached.set()
        if fault.code:
            self._refuse(fault.code, path)
        elif not fault.released.wait(HANG_S_MAX):
            raise AssertionError(f"{operation} of {path} was left hanging for {HANG_S_MAX:g} s")

    def _refuse(self, code: int, path: str) -> None:
        raise OSError(code, os.strerror(code), path)
