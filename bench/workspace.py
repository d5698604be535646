"""The directory that holds the brokers' data while the benchmark runs, and the disk under it.

Whatever a workload wrote is removed before the next one, and the disk is given time to come to rest: pages
that wait to be written slow down whoever comes next, whichever broker that is. So does memory that this machine has
never used, where it is a virtual one: a page's first use costs the host a fault, ten times the copy itself.
"""

import contextlib
import fcntl
import mmap
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import wire
from processes import MeasurementError

FREE_BYTES_MIN = 10_000_000_000
DIRTY_BYTES_MAX = 200_000_000
REST_S_MAX = 20.0
RENAME_S_MAX = 30.0
TOUCHED_SHARE = 0.85  # of the memory that is free
TOUCH_STEP_BYTES = 64 << 20


class Workspace:
    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """One benchmark at a time; the data is gone afterwards, the log of measurements stays."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SystemExit("bench: another run uses bench/.work; wait for its end") from None
            self._clear()
            try:
                yield
            finally:
                self._clear()

    def fresh(self, name: str) -> Path:
        """A directory for a broker's data that does not exist yet."""
        self.check_space()
        path = self.path / name
        self.remove(name)
        return path

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path / name, ignore_errors=True)

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free

    def check_space(self) -> None:
        free = self.free_bytes()
        if free < FREE_BYTES_MIN:
            raise SystemExit(
                f"bench: {free / 1e9:.1f} GB are free on the disk of bench/.work, at least "
                f"{FREE_BYTES_MIN / 1e9:.0f} GB are needed; make room and run again"
            )

    def _clear(self) -> None:
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)


def remove_topics(port: int, data: Path, *, keep: tuple[str, ...] = ()) -> None:
    """Deletes every topic but those to keep, and frees its space at once.

    A broker keeps the renamed files of a deleted topic for a minute. Nobody reads them any more, so they are
    cut to nothing here: otherwise the next workload would run against the write-back of the last one.
    """
    names = [name for name in wire.topics(port) if name not in keep]
    if names:
        wire.delete_topics(port, names)
    deadline = time.monotonic() + RENAME_S_MAX
    while left := [path for path in _partitions(data) if path.name.rpartition("-")[0] in names]:
        if time.monotonic() > deadline:
            raise MeasurementError(f"{left[0].name}: not deleted within {RENAME_S_MAX:g} s")
        time.sleep(0.05)
    for path in _partitions(data):
        if path.name.endswith("-delete"):
            with contextlib.suppress(FileNotFoundError):  # its minute is over
                for segment in path.glob("*.log"):
                    os.truncate(segment, 0)


def _partitions(data: Path) -> list[Path]:
    return [path for path in data.iterdir() if path.is_dir()]


def stored_bytes(data: Path, topic: str) -> int:
    logs = (segment for path in data.glob(f"{topic}-*") for segment in path.glob("*.log"))
    return sum(segment.stat().st_size for segment in logs)


def rest() -> None:
    """Waits until hardly anything is left to be written to the disk."""
    deadline = time.monotonic() + REST_S_MAX
    while _unwritten_bytes() > DIRTY_BYTES_MAX and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(0.3)


def touch_memory() -> float:
    """Uses most of the free memory once and gives it back, so that no broker pays for a page's first use. Gigabytes."""
    size = int(_meminfo_bytes("MemAvailable") * TOUCHED_SHARE) // TOUCH_STEP_BYTES * TOUCH_STEP_BYTES
    child = os.fork()
    if child == 0:
        pages = memoryview(mmap.mmap(-1, size))
        ones = b"1" * (TOUCH_STEP_BYTES // mmap.PAGESIZE)
        for at in range(0, size, TOUCH_STEP_BYTES):
            pages[at : at + TOUCH_STEP_BYTES : mmap.PAGESIZE] = ones
        os._exit(0)
    os.waitpid(child, 0)
    return size / 1e9


def _unwritten_bytes() -> int:
    return _meminfo_bytes("Dirty") + _meminfo_bytes("Writeback")


def _meminfo_bytes(name: str) -> int:
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields[name].split()[0]) * 1024
