"""A group of the classic protocol, all of its members on one thread.

Real members learn of a rebalance from a heartbeat every three seconds, which would be all that is measured. Here
they ask as soon as there is something to learn, and again after a millisecond while there is not.
"""

import struct
import time
from collections.abc import Sequence

import flexible as f
from links import Link, Loop, Told
from processes import MeasurementError

JOIN, HEARTBEAT, LEAVE, SYNC = (11, 9), (12, 4), (13, 5), (14, 5)  # keys and versions
NOT_YET = {14, 15, 16}  # the coordinator loads, is not known, is another one: Kafka makes its topic on first use
REBALANCE, ID_REQUIRED = 27, 79
ASK_S, RETRY_S, SETTLE_S_MAX = 0.001, 0.02, 60.0
SESSION_MS = 45_000


class Member:
    def __init__(self, group: "ClassicGroup", link: Link) -> None:
        self._group, self._link = group, link
        self.id, self.generation, self.assignment = "", -1, b""
        self.is_stable = False  # holds an assignment, and knows of no rebalance
        self._is_asking = False

    def join(self) -> None:
        self.is_stable = self._is_asking = False
        self._link.told = self._joined
        self._link.send(f.request(*JOIN, self._group.join_head + f.text(self.id) + self._group.join_tail))

    def _joined(self, data: bytes) -> None:
        answer = f.Answer(data)
        answer.skip(4)
        code = answer.number(2)
        generation = answer.number(4)
        answer.sized()
        answer.sized()
        leader, _, member_id = answer.text(), answer.skip(1), answer.text()
        if code in NOT_YET:
            self._group.loop.later(RETRY_S, self.join)
        elif code == ID_REQUIRED:
            self.id = member_id
            self.join()
            self._group.ask_all()
        elif code:
            raise MeasurementError(f"JoinGroup: error {code}")
        else:
            self.generation = generation
            self._sync(_member_ids(answer) if leader == self.id else [])

    def _sync(self, ids: Sequence[str]) -> None:
        """The leader gives everyone a share, and the others ask for theirs."""
        if ids:
            self._group.is_led(self.generation, len(ids))
        given = zip(ids, self._group.shares(len(ids)), strict=True)
        body = self.identity + f.NOTHING + f.text("consumer") + f.text("range")
        body += f.array(f.text(to) + f.sized(share) + f.NOTHING for to, share in given) + f.NOTHING
        self._link.told = self._synced
        self._link.send(f.request(*SYNC, body))

    def _synced(self, data: bytes) -> None:
        answer = f.Answer(data)
        answer.skip(4)
        code = answer.number(2)
        if code == REBALANCE:
            self.join()
            return
        if code:
            raise MeasurementError(f"SyncGroup: error {code}")
        answer.sized()
        answer.sized()
        self.assignment = answer.sized()
        self.is_stable = True
        self._group.is_given(self)

    def ask(self) -> None:
        """Whether there is a rebalance."""
        if self.is_stable and not self._is_asking:
            self._is_asking = True
            self._link.told = self._asked
            self._link.send(f.request(*HEARTBEAT, self.identity + f.NOTHING + f.NOTHING))

    def _asked(self, data: bytes) -> None:
        code = int.from_bytes(data[9:11], "big")
        self._is_asking = False
        if code == REBALANCE:
            self.join()
        elif code:
            raise MeasurementError(f"Heartbeat: error {code}")
        elif not self._group.is_settled():
            self._group.loop.later(ASK_S, self.ask)

    def leave(self) -> None:
        body = f.text(self._group.name) + f.array([f.text(self.id) + f.NOTHING + f.NOTHING + f.NOTHING]) + f.NOTHING
        self.id, self.is_stable = "", False
        self._link.told = self._left
        self._link.send(f.request(*LEAVE, body))

    def _left(self, data: bytes) -> None:
        code = int.from_bytes(data[9:11], "big")
        if code:
            raise MeasurementError(f"LeaveGroup: error {code}")
        self._group.ask_all()

    @property
    def identity(self) -> bytes:
        return f.text(self._group.name) + struct.pack(">i", self.generation) + f.text(self.id)

    def send(self, frame: bytes | bytearray) -> None:
        self._link.send(frame)

    def tell(self, told: Told) -> None:
        self._link.told = told


class ClassicGroup:
    """`size` members that have settled, and one more that is not in the group yet."""

    def __init__(self, loop: Loop, name: str, topic: str, partitions: int, size: int) -> None:
        self.loop, self.name, self._topic, self._partitions = loop, name, topic, partitions
        subscription = struct.pack(">hih", 1, 1, len(topic)) + topic.encode() + struct.pack(">ii", -1, 0)
        self.join_head = f.text(name) + struct.pack(">ii", SESSION_MS, SESSION_MS)
        protocol = f.text("range") + f.sized(subscription) + f.NOTHING
        self.join_tail = f.NOTHING + f.text("consumer") + f.array([protocol]) + f.NOTHING + f.NOTHING
        self._shares: dict[int, list[bytes]] = {}
        self.members = [Member(self, loop.connect()) for _ in range(size)]
        self._guest = Member(self, loop.connect())
        self._wanted, self._generation, self._given = size, -1, 0
        for count in (size, size + 1):
            self._shares[count] = self._cut(count)
        for member in self.members:
            member.join()
        self._settle()

    def _cut(self, count: int) -> list[bytes]:
        """The partitions in as many assignments, as `range` gives them."""
        found, at = [], 0
        for number in range(count):
            size = self._partitions // count + (number < self._partitions % count)
            indexes = range(at, at + size)
            head = struct.pack(">hih", 1, 1, len(self._topic)) + self._topic.encode()
            found.append(head + struct.pack(f">i{size}ii", size, *indexes, -1))
            at += size
        return found

    def shares(self, count: int) -> list[bytes]:
        if count not in self._shares:  # while the group comes together
            self._shares[count] = self._cut(count) if count else []
        return self._shares[count]

    # What the members tell.

    def is_led(self, generation: int, count: int) -> None:
        if count == self._wanted:
            self._generation, self._given = generation, 0

    def is_given(self, member: Member) -> None:
        if member.generation == self._generation:
            self._given += 1
        else:
            member.ask()  # not all are in yet

    def ask_all(self) -> None:
        for member in self.members:
            member.ask()

    def is_settled(self) -> bool:
        return self._given == self._wanted

    def _settle(self) -> None:
        self.loop.run(self.is_settled, seconds_max=SETTLE_S_MAX, doing=f"a group of {self._wanted}")
        present = [*self.members, self._guest][: self._wanted]
        if sorted(member.assignment for member in present) != sorted(self._shares[self._wanted]):
            raise MeasurementError(f"the assignments of a group of {self._wanted} are not those that were given")

    # What is measured.

    def join_one(self) -> float:
        """The seconds from a member's first request until all have their new assignment."""
        self._wanted, self._generation, self._given = len(self.members) + 1, -1, 0
        began = time.monotonic()
        self._guest.join()
        self._settle()
        return time.monotonic() - began

    def leave_one(self) -> float:
        self._wanted, self._generation, self._given = len(self.members), -1, 0
        began = time.monotonic()
        self._guest.leave()
        self._settle()
        return time.monotonic() - began

    def close(self) -> None:
        self.loop.close()


def _member_ids(answer: f.Answer) -> list[str]:
    found = []
    for _ in range(answer.count()):
        found.append(answer.text())
        answer.sized()
        answer.sized()
        answer.skip(1)
    return found
