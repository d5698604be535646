"""Members of groups: of the classic protocol, of the consumer protocol (KIP-848), and one who assigns itself.

A member owns its partitions from the answer that gives them to it until it gives them up, is told that it is out, or
has heard nothing good for as long as a session lasts: nobody else may own them meanwhile. What it commits it takes from
what was committed before, so that offsets never go back.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from typing import Any

from sim_client import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    Client,
    Life,
    Partition,
)
from sim_history import Commit, check

from headrace.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_MEMBER_EPOCH,
    ILLEGAL_GENERATION,
    KAFKA_STORAGE_ERROR,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNSTABLE_OFFSET_COMMIT,
)

SESSION_MS = 6_000
REBALANCE_MS = 8_000  # not below the session: else a member may be replaced before it must know
CONSUMER_SESSION_MS = 8_000
CONSUMER_REBALANCE_MS = 10_000
PASSING = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, KAFKA_STORAGE_ERROR)
REFUSED = (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH, FENCED_MEMBER_EPOCH)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription(topics: list[str]) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(_text, topics)) + struct.pack(">i", -1)


def assignment(partitions: list[Partition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    out = struct.pack(">hi", 0, len(topics))
    for topic, indexes in topics.items():
        out += _text(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return out + struct.pack(">i", -1)


def read_assignment(data: bytes) -> set[Partition]:
    found: set[Partition] = set()
    if not data:
        return found
    (count,) = struct.unpack_from(">i", data, 2)
    at = 6
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (number,) = struct.unpack_from(">i", data, at)
        found |= {(topic, index) for index in struct.unpack_from(f">{number}i", data, at + 4)}
        at += 4 + 4 * number
    return found


def by_topic(partitions: list[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        topics[topic].append(index)
    return topics


def fetch_offsets(client: Client, group: str, partitions: list[Partition], *, stable: bool = False) -> Life:
    """Offset and note of each; None if the client should not go on."""
    world = client.world
    for _ in range(60):
        asked_at = world.offsets.tick()
        topics = [{"name": name, "partition_indexes": indexes} for name, indexes in by_topic(partitions).items()]
        if client.rng.random() < 0.5:
            body = {"groups": [{"group_id": group, "topics": topics}], "require_stable": stable}
            answer = yield from client.call(OFFSET_FETCH, 8, body)
            answer = None if answer is None else answer.groups[0]
        else:
            answer = yield from client.call(
                OFFSET_FETCH, 7, {"group_id": group, "topics": topics, "require_stable": stable}
            )
        if answer is not None:
            codes = {answer.error_code} | {each.error_code for topic in answer.topics for each in topic.partitions}
            allowed = {NONE, UNSTABLE_OFFSET_COMMIT, *PASSING}
            check(codes <= allowed, f"{client.name}: OffsetFetch of {group}: errors {codes}")
            if codes == {NONE}:
                found = {}
                for topic in answer.topics:
                    for each in topic.partitions:
                        partition = (topic.name, each.partition_index)
                        world.offsets.read(group, partition, asked_at, each.committed_offset, each.metadata or "")
                        found[partition] = (each.committed_offset, each.metadata)
                return found
        yield from client.pause(client.rng.randint(20, 300))
    return None


class Committer(Client):
    """What all who commit offsets do."""

    group = ""

    def __init__(self, world, name: str) -> None:
        super().__init__(world, name)
        self._commit_count = 0

    def commit(self, version: int, member: dict[str, object], offsets: dict[Partition, int]) -> Life:
        """The error code; None if it is not known."""
        history = self.world.offsets
        self._commit_count += 1
        note = f"{self.name}#{self._commit_count}"
        commits: dict[Partition, Commit] = {
            each: history.began(self.group, each, offset, note) for each, offset in offsets.items()
        }
        topics = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": offsets[name, index],
                        "committed_metadata": note,
                    }
                    for index in indexes
                ],
            }
            for name, indexes in by_topic(list(offsets)).items()
        ]
        answer = yield from self.call(OFFSET_COMMIT, version, {"group_id": self.group, **member, "topics": topics})
        if answer is None:
            for commit in commits.values():
                history.unknown(commit, may_still_come=True)
            return None
        code = NONE
        for topic in answer.topics:
            for each in topic.partitions:
                partition, code = (topic.name, each.partition_index), each.error_code
                if code == NONE:
                    history.acknowledged(commits[partition])
                elif code in PASSING:
                    history.unknown(commits[partition], may_still_come=False)
                else:
                    check(code in REFUSED, f"{self.name}: OffsetCommit: error {code}")
                    history.refused(self.group, partition, commits[partition])
        return code


class ManualCommitter(Committer):
    """Assigns itself, and commits what it likes: also back."""

    group = "manual"
    stragglers = True

    def life(self) -> Life:
        while not self.ending:
            if self.rng.random() < 0.3:
                yield from fetch_offsets(self, self.group, self.world.partitions)
            else:
                chosen = self.rng.sample(self.world.partitions, self.rng.randint(1, 2))
                member = {"generation_id_or_member_epoch": -1, "generation_id": -1, "member_id": ""}
                yield from self.commit(
                    self.rng.choice((2, 5, 7, 8, 9)), member, {each: self.rng.randint(0, 1000) for each in chosen}
                )
            yield from self.pause(self.rng.randint(1, 400))


class Member(Committer):
    session_ms = SESSION_MS

    def __init__(self, world, name: str, group: str) -> None:
        super().__init__(world, name)
        self.group = group
        self.member_id = ""
        self.epoch = -1  # or generation
        self.owned: set[Partition] = set()
        self.valid_until = 0
        self.positions: dict[Partition, int] = {}

    def own(self, partitions: set[Partition], until_ms: int) -> None:
        for gone in set(self.positions) - partitions:
            del self.positions[gone]
        self.owned = partitions
        self.valid_until = until_ms
        self.world.ownership.owns(self.group, self.name, partitions, until_ms, self.now_ms)

    def give_up(self) -> None:
        self.own(set(), self.now_ms)

    def commit_some(self) -> Life:
        """What it has got on with; as a zombie too, if it is one."""
        missing = sorted(self.owned - set(self.positions))
        if missing:
            found = yield from fetch_offsets(self, self.group, missing)
            if found is None:
                return NONE
            self.positions.update({each: max(offset, 0) for each, (offset, _) in found.items()})
        chosen = sorted(self.owned)
        chosen = self.rng.sample(chosen, self.rng.randint(0, len(chosen)))
        if not chosen:
            return NONE
        for each in chosen:
            self.positions[each] += self.rng.randint(0, 3)
        member = {"generation_id_or_member_epoch": self.epoch, "generation_id": self.epoch, "member_id": self.member_id}
        newest = self.world.ownership.newest[self.group]
        epoch = self.epoch
        others = self.world.ownership.others(self.group, self.name, chosen, self.now_ms)
        code = yield from self.commit(self.commit_version(), member, {each: self.positions[each] for each in chosen})
        check(code != NONE or not others, f"{self.name} committed {chosen} of {self.group}, which {others} own")
        if code == NONE and isinstance(self, ClassicMember):
            check(epoch >= newest, f"{self.name} committed in generation {epoch} of {self.group}, which is at {newest}")
        return code

    def commit_version(self) -> int:
        return 9


class ClassicMember(Member):
    def commit_version(self) -> int:
        return self.rng.choice((2, 5, 7, 8, 9))

    def life(self) -> Life:
        yield from self.find_coordinator(self.group)
        while not self.ending:
            self.give_up()
            if (yield from self._join()):
                yield from self._live()
            else:
                yield from self.pause(self.rng.randint(10, 500))
        self.give_up()

    def _join(self) -> Life:
        version = self.rng.choice((2, 3, 5, 6, 7, 9))
        body = {
            "group_id": self.group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(["a", "b"])}],
        }
        newest = self.world.ownership.newest[self.group]
        answer = yield from self.call(JOIN_GROUP, version, body)
        if answer is None:
            return False
        code = answer.error_code
        if code in (MEMBER_ID_REQUIRED, NONE):
            self.member_id = answer.member_id
        elif code == UNKNOWN_MEMBER_ID:
            self.member_id = ""
        else:
            check(code in (*PASSING, REBALANCE_IN_PROGRESS), f"{self.name}: JoinGroup: error {code}")
        if code != NONE:
            return False
        self.epoch = answer.generation_id
        check(self.epoch >= newest, f"{self.name}: joined generation {self.epoch} of {self.group}, after {newest}")
        shares = self._share([each.member_id for each in answer.members]) if answer.leader == self.member_id else []
        return (yield from self._sync(shares))

    def _share(self, member_ids: list[str]) -> list[dict[str, object]]:
        """As the range assignor does; eager: all of it anew."""
        owners = sorted(member_ids)
        shares: dict[str, list[Partition]] = {each: [] for each in owners}
        for topic, indexes in by_topic(self.world.partitions).items():
            for at, index in enumerate(indexes):
                shares[owners[at * len(owners) // max(len(indexes), len(owners))]].append((topic, index))
        return [{"member_id": each, "assignment": assignment(parts)} for each, parts in shares.items()]

    def _sync(self, shares: list[dict[str, object]]) -> Life:
        sent_at = self.now_ms
        body = {
            "group_id": self.group,
            "generation_id": self.epoch,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": shares,
        }
        answer = yield from self.call(SYNC_GROUP, self.rng.choice((1, 3, 4, 5)), body)
        if answer is None:
            return False
        code = answer.error_code
        if code == UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code != NONE:
            allowed = (*PASSING, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID)
            check(code in allowed, f"{self.name}: SyncGroup: error {code}")
            return False
        given = read_assignment(bytes(answer.assignment))
        self.world.ownership.assigned(self.group, self.epoch, self.member_id, given)
        self.own(given, sent_at + SESSION_MS)
        return True

    def _live(self) -> Life:
        """In one generation."""
        while not self.ending:
            yield from self.pause(self.rng.randint(200, 1_500))
            fate = self.rng.random()
            if fate < 0.04:
                yield from self._leave()
                return
            if fate < 0.08:  # it dies, and another is started in its place
                self.give_up()
                self.give_up_link()
                self.member_id = ""
                yield from self.pause(self.rng.choice((100, 7_000)))
                return
            if fate < 0.12:
                yield from self.pause(self.rng.choice((4_000, 9_000)))  # it hangs, and goes on as if nothing had been
            if fate < 0.5:
                yield from self.commit_some()
                continue
            sent_at = self.now_ms
            body: dict[str, Any] = {"group_id": self.group, "generation_id": self.epoch, "member_id": self.member_id}
            answer = yield from self.call(HEARTBEAT, self.rng.choice((0, 3, 4)), body)
            if answer is None or answer.error_code in PASSING:
                continue
            if answer.error_code == NONE:
                self.own(self.owned, sent_at + SESSION_MS)
                continue
            if answer.error_code == UNKNOWN_MEMBER_ID:
                self.member_id = ""
            allowed = (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID)
            check(answer.error_code in allowed, f"{self.name}: Heartbeat: error {answer.error_code}")
            return

    def _leave(self) -> Life:
        self.give_up()
        version = self.rng.choice((1, 3, 4, 5))
        who: dict[str, object] = {"member_id": self.member_id}
        body = {"group_id": self.group, **(who if version < 3 else {"members": [who]})}
        yield from self.call(LEAVE_GROUP, version, body)
        self.member_id = ""
        yield from self.pause(self.rng.randint(10, 3_000))


class ConsumerMember(Member):
    session_ms = CONSUMER_SESSION_MS

    def life(self) -> Life:
        yield from self.find_coordinator(self.group)
        self._new_life()
        while not self.ending:
            yield from self._beat(self.epoch)
            yield from self.pause(self.rng.randint(100, 1_200))
            fate = self.rng.random()
            if fate < 0.03:
                self.give_up()
                yield from self._beat(-1)
                self._new_life()
            elif fate < 0.06:
                self.give_up_link()
                self._new_life()
                yield from self.pause(self.rng.choice((100, 9_000)))
            elif fate < 0.4 and self.epoch > 0:
                if fate < 0.1:
                    yield from self.pause(
                        self.rng.choice((5_000, 11_000))
                    )  # it hangs, and goes on as if nothing had been
                code = yield from self.commit_some()
                if code in (UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH):
                    self._fenced()
        self.give_up()

    def _new_life(self) -> None:
        self.give_up()
        self.member_id = str(uuid.UUID(int=self.rng.getrandbits(128)))
        self.epoch = 0
        self._assignor = self.rng.choice((None, "uniform", "range"))

    def _fenced(self) -> None:
        self.give_up()
        self.epoch = 0

    def _beat(self, epoch: int) -> Life:
        sent_at = self.now_ms
        ids = self.world.topic_ids
        owned = by_topic(list(self.owned))
        body = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "rebalance_timeout": CONSUMER_REBALANCE_MS,
            "subscribed_topic_names": ["a", "b"],
            "server_assignor": self._assignor,
            "topic_partitions": [{"topic_id": ids[name], "partitions": indexes} for name, indexes in owned.items()],
        }
        answer = yield from self.call(CONSUMER_GROUP_HEARTBEAT, 1, body)
        if answer is None or answer.error_code in PASSING or epoch < 0:
            return
        if answer.error_code in (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID):
            self._fenced()
            return
        check(answer.error_code == NONE, f"{self.name}: ConsumerGroupHeartbeat: {answer}")
        epoch = answer.member_epoch
        check(epoch >= self.epoch, f"{self.name}: its epoch went from {self.epoch} to {epoch}")
        self.epoch = epoch
        given = self.owned
        if answer.assignment is not None:
            names = {topic_id: name for name, topic_id in ids.items()}
            given = {
                (names[each.topic_id], index)
                for each in answer.assignment.topic_partitions
                for index in each.partitions
            }
        self.own(given, sent_at + CONSUMER_SESSION_MS)
