import errno
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core import files
from headrace.core.errors import OperatorError
from headrace.core.files import DirectoryLock, Disk, OpenFiles


class CountingDisk(Disk):
    """Knows which descriptors are open."""

    def __init__(self) -> None:
        self.opened: set[int] = set()

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC) -> int:
        fd = super().open(path, flags)
        self.opened.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self.opened.remove(fd)
        super().close(fd)


@pytest.fixture
def disk():
    counting = CountingDisk()
    yield counting
    for fd in list(counting.opened):
        counting.close(fd)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_more_pieces_than_one_writev_takes_are_written_in_order(disk, tmp_path):
    pieces = [i.to_bytes(3, "big") for i in range(2 * files.IOVEC_MAX + 5)]
    fd = disk.open(str(tmp_path / "f"))
    disk.write(fd, [b"head"], 0)
    disk.write(fd, pieces, 4)
    assert (tmp_path / "f").read_bytes() == b"head" + b"".join(pieces)


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.binary(max_size=20), min_size=1, max_size=12),
    iovec_max=st.integers(1, 5),
    taken=st.integers(1, 30),
)
def test_a_write_that_the_kernel_cuts_short_is_finished(pieces, iovec_max, taken):
    written = bytearray(600)

    def pwritev(fd, some, at):
        return pwrite(fd, b"".join(some), at)

    def pwrite(fd, data, at):
        part = bytes(data)[:taken]
        written[at : at + len(part)] = part
        return len(part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "IOVEC_MAX", iovec_max)
        patch.setattr(os, "pwritev", pwritev)
        patch.setattr(os, "pwrite", pwrite)
        Disk().write(3, pieces, 7)
    whole = b"".join(pieces)
    assert written == bytes(7) + whole + bytes(600 - 7 - len(whole))


def test_a_disk_that_takes_no_more_bytes_is_an_error_and_not_a_loop(monkeypatch):
    monkeypatch.setattr(os, "pwritev", lambda fd, some, at: 1)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="took no more") as caught:
        Disk().write(3, [b"abc"], 0)
    assert caught.value.errno == errno.EIO


def test_a_replaced_file_has_the_old_content_or_the_new(disk, tmp_path):
    path = str(tmp_path / "f")
    disk.replace_file(path, b"old")
    assert disk.read_file(path) == b"old"

    class Torn(CountingDisk):
        def write(self, fd, pieces, at):
            super().write(fd, [b"".join(pieces)[:2]], at)
            raise OSError(errno.ENOSPC, "full")

    torn = Torn()
    with pytest.raises(OSError, match="full"):
        torn.replace_file(path, b"new and longer")
    assert disk.read_file(path) == b"old"
    assert not torn.opened
    disk.replace_file(path, b"n")
    assert disk.read_file(path) == b"n"
    assert os.listdir(tmp_path) == ["f"]
    assert not disk.opened


def test_a_replaced_file_is_synced_before_it_gets_its_name(disk, tmp_path):
    done = []

    class Order(Disk):
        def sync(self, fd):
            done.append("sync")

        def rename(self, old, new):
            done.append("rename")

    Order().replace_file(str(tmp_path / "f"), b"x")
    assert done == ["sync", "rename"]
    Order().replace_file(str(tmp_path / "f"), b"x", sync=False)
    assert done == ["sync", "rename", "rename"]


def test_what_is_not_there_reads_as_none_and_is_removed_without_complaint(disk, tmp_path):
    assert disk.read_file(str(tmp_path / "missing")) is None
    assert not os.path.exists(tmp_path / "missing")
    disk.unlink(str(tmp_path / "missing"))


def test_the_names_in_a_directory_can_be_synced(disk, tmp_path):
    disk.sync_directory(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        disk.sync_directory(str(tmp_path / "missing"))


# ── open files ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_file_longest_unused_is_closed_when_there_are_too_many(disk, tmp_path):
    open_files = OpenFiles(disk, 2)
    a, b, c = (str(tmp_path / name) for name in "abc")
    first = open_files.get(a)
    second = open_files.get(b)
    assert open_files.get(a) is first
    open_files.get(c)
    assert second.fd not in disk.opened
    assert open_files.get(a) is first
    assert len(open_files) == len(disk.opened) == 2


def test_a_pinned_file_stays_open_until_the_last_pin_is_gone(disk, tmp_path):
    open_files = OpenFiles(disk, 1)
    path = str(tmp_path / "a")
    pinned = open_files.get(path)
    pinned.pins += 2
    open_files.get(str(tmp_path / "b"))
    os.pwrite(pinned.fd, b"still here", 0)
    pinned.unpin()
    assert os.pread(pinned.fd, 100, 0) == b"still here"
    fd = pinned.fd
    pinned.unpin()
    assert fd not in disk.opened
    assert open_files.get(path) is not pinned


@pytest.mark.parametrize("end", ["forget", "close"])
def test_a_forgotten_or_closed_file_is_closed_once_nobody_pins_it(disk, tmp_path, end):
    open_files = OpenFiles(disk, 8)
    path = str(tmp_path / "a")
    pinned, other = open_files.get(path), open_files.get(str(tmp_path / "b"))
    pinned.pins += 1
    if end == "close":
        open_files.close()
        assert other.fd not in disk.opened
        assert len(open_files) == 0
    else:
        open_files.forget(path)
        open_files.forget(path)
        assert other.fd in disk.opened
    assert pinned.fd in disk.opened
    pinned.unpin()
    assert pinned.fd not in disk.opened


def test_unpinning_a_file_that_is_still_in_use_leaves_it_open(disk, tmp_path):
    open_files = OpenFiles(disk, 8)
    file = open_files.get(str(tmp_path / "a"))
    file.pins += 1
    file.unpin()
    assert file.fd in disk.opened


@settings(max_examples=40, deadline=None)
@given(count_max=st.integers(1, 4), steps=st.lists(st.tuples(st.sampled_from("gpuf"), st.integers(0, 6)), max_size=40))
def test_open_descriptors_never_exceed_the_bound_and_the_pinned(tmp_path_factory, count_max, steps):
    root = tmp_path_factory.getbasetemp()
    disk = CountingDisk()
    open_files = OpenFiles(disk, count_max)
    pinned = []
    for step, number in steps:
        path = str(root / f"open-{number}")
        if step in "gp":
            file = open_files.get(path)
            assert file.fd in disk.opened
            if step == "p":
                file.pins += 1
                pinned.append(file)
        elif step == "u" and pinned:
            pinned.pop(number % len(pinned)).unpin()
        elif step == "f":
            open_files.forget(path)
        assert all(file.fd in disk.opened for file in pinned)
        assert len(disk.opened) <= count_max + len({file.fd for file in pinned})
    open_files.close()
    for file in pinned:
        file.unpin()
    assert not disk.opened


# ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_is_locked_for_one_broker_at_a_time(tmp_path):
    lock = DirectoryLock(str(tmp_path))
    with pytest.raises(OperatorError, match="another process"):
        DirectoryLock(str(tmp_path))
    lock.release()
    DirectoryLock(str(tmp_path)).release()


def test_the_lock_of_a_killed_broker_is_free(tmp_path):
    script = (
        "import os, signal, sys; from headrace.core.files import DirectoryLock\n"
        "DirectoryLock(sys.argv[1]); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == -9
    DirectoryLock(str(tmp_path)).release()
