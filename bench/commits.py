"""Offset commits at full speed: the members of a classic group, each for the one partition that it was given.

The group is set up here, and `commit_load.c` commits: in Python a commit costs the client 18 µs and more, which is all
that either broker's rate would then show (1 s / 18 µs = 56,000 commits a second).
"""

import json
import struct
import tempfile

import flexible as f
from classic_group import ClassicGroup
from links import Loop
from native_load import built
from processes import call

COMMIT = (8, 9)
LATE_S_MAX = 40.0
_OFFSET_FROM_END = 8 + 4 + 1 + 3  # the offset, its epoch, empty metadata, no tags three times


class Commits:
    def __init__(self, loop: Loop, name: str, topic: str, size: int) -> None:
        """Sets the group up; nothing of that is measured."""
        self._loop, self._topic = loop, topic
        self._group = ClassicGroup(loop, name, topic, partitions=size, size=size)
        self._load = built("commit_load.c")

    def run(self, seconds: float) -> dict[str, float]:
        with tempfile.NamedTemporaryFile(prefix="commits-") as frames:
            for number, member in enumerate(self._group.members):
                frames.write(self._frame(member.identity, number))
            frames.flush()
            words = ["127.0.0.1", str(self._loop.port), str(seconds), str(_OFFSET_FROM_END), frames.name]
            printed = call([str(self._load), *words], seconds_max=seconds + LATE_S_MAX)
        figures: dict[str, float] = json.loads(printed)
        return figures

    def _frame(self, identity: bytes, partition: int) -> bytes:
        one = struct.pack(">iqi", partition, 0, -1) + f.text("") + f.NOTHING
        topic = f.text(self._topic) + f.array([one]) + f.NOTHING
        return bytes(f.request(*COMMIT, identity + f.NOTHING + f.array([topic]) + f.NOTHING))

    def close(self) -> None:
        self._loop.close()
