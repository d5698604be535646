import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from headrace.streaming import scratch as scratch_module
from headrace.streaming.scratch import PREFIX, Scratch, remove_orphans

HOLDER = """
import sys
from headrace.streaming.scratch import Scratch
scratch = Scratch(sys.argv[1])
print(scratch.path, flush=True)
sys.stdin.read()
"""


def test_it_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path / "made"))
    Path(scratch.directory("warehouse"), "file").write_text("x")
    scratch.close()
    assert os.listdir(tmp_path / "made") == []


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_uses_is_not(tmp_path: Path) -> None:
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        dead, live = (holder.stdout.readline().decode().strip() for holder in holders if holder.stdout)
        holders[0].kill()
        holders[0].wait()
        assert os.path.isdir(dead)
        mine = Scratch(str(tmp_path))
        assert {entry.path for entry in os.scandir(tmp_path)} == {live, mine.path}
        mine.close()
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


def test_directories_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"{PREFIX}just-being-made").mkdir()
    Scratch(str(tmp_path)).close()
    assert sorted(os.listdir(tmp_path)) == [f"{PREFIX}just-being-made", "theirs"]


def test_a_directory_removed_before_its_lock_was_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Racing:
        """The lock as another process sees it between its creation and the owner's flock."""

        LOCK_EX, LOCK_NB = fcntl.LOCK_EX, fcntl.LOCK_NB
        raced = 0

        def flock(self, lock: IO[str], how: int) -> None:
            if how == fcntl.LOCK_EX and not self.raced:
                self.raced += 1
                remove_orphans(str(tmp_path))
            fcntl.flock(lock, how)

    racing = Racing()
    monkeypatch.setattr(scratch_module, "fcntl", racing)
    scratch = Scratch(str(tmp_path))
    assert racing.raced == 1
    assert [entry.path for entry in os.scandir(tmp_path)] == [scratch.path]
    remove_orphans(str(tmp_path))
    assert os.path.isdir(scratch.path)
    scratch.close()
