"""The disk, as something that can be passed in, and a bounded set of open files.

Everything that the log does to a disk goes through `Disk`, so that tests can make it fail, fill up or tear a write.
`OpenFiles` opens a file on use and closes the one longest unused when there are too many: ten thousand partitions
need no ten thousand descriptors.
"""

import contextlib
import errno
import fcntl
import os
from collections import OrderedDict
from collections.abc import Sequence

from headrace.core.errors import OperatorError

# The disk is full, or the process has too many files open: nothing is broken, and it may pass by itself.
PASSING_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# The disk itself fails: what it holds is offline until somebody has repaired it.
BROKEN_ERRORS = (
    errno.EIO,
    errno.EROFS,
    errno.ENXIO,
    errno.ENODEV,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ESTALE,
    errno.EACCES,
    errno.EPERM,
    errno.EUCLEAN,
)
IOVEC_MAX = 1024  # what one writev takes (IOV_MAX on Linux)


class Disk:
    """The real one. A fault-injecting disk overrides what it wants to fail."""

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC) -> int:
        return os.open(path, flags, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, pieces: Sequence[bytes | bytearray | memoryview], at: int) -> None:
        """All of the pieces at `at`, or an OSError; how much was written then is not known."""
        for first in range(0, len(pieces), IOVEC_MAX):
            some = pieces[first : first + IOVEC_MAX]
            size = sum(map(len, some))
            written = os.pwritev(fd, some, at)
            if written != size:
                self._write_rest(fd, b"".join(some), written, at)
            at += size

    def _write_rest(self, fd: int, data: bytes, written: int, at: int) -> None:
        while written < len(data):
            more = os.pwrite(fd, data[written:], at + written)
            if more == 0:
                raise OSError(errno.EIO, "the disk took no more bytes")
            written += more

    def read(self, fd: int, size: int, at: int) -> bytes:
        return os.pread(fd, size, at)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_file_system(self, path: str) -> None:
        """Everything on the file system that `path` is on: for many files this is far less work than one by one."""
        import ctypes  # which a keeper never needs

        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def allocate(self, fd: int, at: int, size: int) -> None:
        """Room for that many bytes, as zeros: what is written there later cannot find the disk full."""
        os.posix_fallocate(fd, at, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def read_file(self, path: str) -> bytes | None:
        """The whole of a small file, or None if it is not there."""
        try:
            fd = self.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return self.read(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def write_file(self, path: str, data: bytes) -> None:
        """A new small file, not flushed."""
        fd = self.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            self.write(fd, [data], 0)
        finally:
            self.close(fd)

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """The old content or the new, whatever happens, never a mix."""
        temporary = path + ".tmp"
        fd = self.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            self.write(fd, [data], 0)
            if sync:
                self.sync(fd)
        finally:
            self.close(fd)
        self.rename(temporary, path)

    def sync_directory(self, path: str) -> None:
        """Makes new, renamed and removed names in a directory survive a loss of power."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class OpenFile:
    """An open descriptor. While it is pinned it is not closed under the one who uses it."""

    __slots__ = ("_disk", "doomed", "fd", "pins")

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk = disk
        self.fd = fd
        self.pins = 0
        self.doomed = False

    def unpin(self) -> None:
        self.pins -= 1
        if self.doomed and self.pins == 0:
            self._disk.close(self.fd)

    def dispose(self) -> None:
        if self.pins:
            self.doomed = True
        else:
            self._disk.close(self.fd)


class OpenFiles:
    """Descriptors by path, at most `count_max` of them plus those that are pinned."""

    def __init__(self, disk: Disk, count_max: int) -> None:
        self.disk = disk
        self._count_max = count_max
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str) -> OpenFile:
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = OpenFile(self.disk, self.disk.open(path))
        self._files[path] = file
        if len(self._files) > self._count_max:
            _, oldest = self._files.popitem(last=False)
            oldest.dispose()
        return file

    def forget(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.dispose()

    def close(self) -> None:
        for file in self._files.values():
            file.dispose()
        self._files.clear()


class DirectoryLock:
    """One process to a directory, by Kafka's `.lock` file; the kernel lets go of it when the process ends."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, ".lock")
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise OperatorError(
                f"{directory}: another process has this directory locked; stop it, or give another --data"
            ) from None

    def release(self) -> None:
        os.close(self._fd)
