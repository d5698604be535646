"""Offset commits at full speed: the members of a classic group, each for the one partition that it was given."""

import struct
import time
from collections.abc import Callable

import flexible as f
from classic_group import ClassicGroup, Member
from links import Loop
from processes import MeasurementError

COMMIT = (8, 9)
LATE_S_MAX = 30.0
_OFFSET = struct.Struct(">q")
_OFFSET_FROM_END = 8 + 4 + 1 + 3  # the offset, its epoch, empty metadata, no tags three times


class Commits:
    def __init__(self, loop: Loop, name: str, topic: str, size: int) -> None:
        """Sets the group up; nothing of that is measured."""
        self._loop, self._topic = loop, topic
        self._group = ClassicGroup(loop, name, topic, partitions=size, size=size)
        self._done, self._pending, self._until = 0, 0, 0.0

    def run(self, seconds: float) -> dict[str, float]:
        began = time.monotonic()
        self._until = began + seconds
        for number, member in enumerate(self._group.members):
            self._pending += 1
            member.tell(self._teller(member, number))
        self._loop.run(lambda: not self._pending, seconds_max=seconds + LATE_S_MAX, doing="commits")
        return {"records": self._done, "per_s": self._done / (time.monotonic() - began)}

    def _teller(self, member: Member, partition: int) -> Callable[[bytes], None]:
        """Sends the first commit, and then one after each answer, for a later offset."""
        one = struct.pack(">iqi", partition, 0, -1) + f.text("") + f.NOTHING
        topic = f.text(self._topic) + f.array([one]) + f.NOTHING
        frame = bytearray(f.request(*COMMIT, member.identity + f.NOTHING + f.array([topic]) + f.NOTHING))
        at, offset, now = len(frame) - _OFFSET_FROM_END, 0, time.monotonic

        def told(data: bytes) -> None:
            nonlocal offset
            if data[-5] or data[-4]:  # the partition's error is in front of three ends
                raise MeasurementError(f"OffsetCommit: error {int.from_bytes(data[-5:-3], 'big')}")
            self._done += 1
            if now() >= self._until:
                self._pending -= 1
                return
            offset += 100
            _OFFSET.pack_into(frame, at, offset)
            member.send(frame)

        member.send(frame)
        return told

    def close(self) -> None:
        self._loop.close()
