"""A group of the newer protocol (KIP-848), all of its members on one thread: the broker hands out the partitions.

As in `classic_group.py`, a member that waits for something asks again after a moment instead of every five seconds.
It gives up at once what it is told to give up. Both brokers work out an assignment at most once a second, and at
once when the last one is older: joins are a second apart, or that second would be all that is measured.
"""

import struct
import time
import uuid

import flexible as f
from links import Link, Loop
from processes import MeasurementError

HEARTBEAT = (68, 1)
NOT_YET = {14, 15, 16}
ASK_S, RETRY_S, SETTLE_S_MAX = 0.002, 0.02, 60.0
REBALANCE_MS = 45_000
INTERVAL_S = 1.05  # group.consumer.assignment.interval.ms, and a little more
_LEAVES = -1


class Member:
    def __init__(self, group: "ConsumerGroup", link: Link) -> None:
        self._group, self._link = group, link
        self.id, self.epoch, self.held = str(uuid.uuid4()), 0, 0
        self._is_asking = False
        link.told = self._answered

    def join(self) -> None:
        self.epoch, self.held = 0, 0
        self._beat(struct.pack(">i", REBALANCE_MS) + f.array([f.text(self._group.topic)]), f.array([]))

    def ask(self) -> None:
        if not self._is_asking:
            self._beat(struct.pack(">i", -1) + f.NOTHING, f.NOTHING)

    def leave(self) -> None:
        self.epoch = _LEAVES
        self._beat(struct.pack(">i", -1) + f.NOTHING, f.NOTHING)

    def _beat(self, timeout_and_topics: bytes, held: bytes) -> None:
        self._is_asking = True
        body = self._group.head + f.text(self.id) + struct.pack(">i", self.epoch) + f.NOTHING + f.NOTHING
        self._link.send(f.request(*HEARTBEAT, body + timeout_and_topics + f.NOTHING + f.NOTHING + held + f.NOTHING))

    def _answered(self, data: bytes) -> None:
        self._is_asking = False
        answer = f.Answer(data)
        answer.skip(4)
        code = answer.number(2)
        message, _, epoch = answer.text(), answer.sized(), answer.number(4)
        if code in NOT_YET:
            self._group.loop.later(RETRY_S, self.join)
            return
        if code:
            raise MeasurementError(f"ConsumerGroupHeartbeat: error {code}: {message}")
        if self.epoch == _LEAVES:
            self.held = 0
            self._group.ask_all()
            return
        self.epoch = epoch
        answer.skip(4)
        if answer.number(1) >= 0:
            self._take(answer)
        elif self._group.lacks(self):
            self._group.loop.later(ASK_S, self.ask)
        self._group.is_at(epoch)

    def _take(self, answer: f.Answer) -> None:
        """Holds what it is given, nothing else, and says so at once."""
        held, self.held = [], 0
        for _ in range(answer.count()):
            start = answer.take(16)
            indexes = answer.numbers()
            answer.skip(1)
            held.append(start + f.numbers(indexes) + f.NOTHING)
            self.held += len(indexes)
        self._beat(struct.pack(">i", -1) + f.NOTHING, f.array(held))


class ConsumerGroup:
    """`size` members that have settled, and one more that is not in the group yet."""

    def __init__(self, loop: Loop, name: str, topic: str, partitions: int, size: int) -> None:
        self.loop, self.topic, self._partitions = loop, topic, partitions
        self.head = f.text(name)
        self._members = [Member(self, loop.connect()) for _ in range(size)]
        self._guest = Member(self, loop.connect())
        self._present, self._newest = self._members, 0
        for member in self._members:
            member.join()
        self._settle()

    def is_at(self, epoch: int) -> None:
        """Where one member is, all will be."""
        if epoch > self._newest:
            self._newest = epoch
            self.ask_all()

    def ask_all(self) -> None:
        for member in self._present:
            if member.epoch > 0:
                member.ask()

    def lacks(self, member: Member) -> bool:
        """Something that it will be told when it asks: the newest epoch that we know of, or partitions."""
        return member.epoch < self._newest or member.held < self._partitions // len(self._present)

    def _is_settled(self) -> bool:
        """Every partition is held, by members that all have a fair share and are in the same epoch."""
        present = self._present
        return sum(member.held for member in present) == self._partitions and not any(map(self.lacks, present))

    def _settle(self) -> None:
        doing = f"a KIP-848 group of {len(self._present)}"
        self.loop.run(self._is_settled, seconds_max=SETTLE_S_MAX, doing=doing)

    def join_one(self) -> float:
        """The seconds from a member's first request until all have their new assignment."""
        time.sleep(INTERVAL_S)
        self._present = [*self._members, self._guest]
        began = time.monotonic()
        self._guest.join()
        self._settle()
        return time.monotonic() - began

    def leave_one(self) -> float:
        time.sleep(INTERVAL_S)
        self._present = self._members
        began = time.monotonic()
        self._guest.leave()
        self._settle()
        return time.monotonic() - began

    def close(self) -> None:
        self.loop.close()
