import os
import subprocess
import sys
from pathlib import Path

from headrace.streaming.scratch import PREFIX, Scratch

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
