"""What fuzzed requests are about: few topics, groups, members and producers, so that requests meet each other.

Which name or slot a request takes is decided by the seed alone. What stands in a slot (a member's id, a producer's id
and epoch, a topic's id) is learned from answers, so a replay makes the same choices with the ids of its own broker.
Nothing here sends anything.
"""

from __future__ import annotations

import random
import uuid
from typing import Any, NamedTuple

import raw

TOPICS = tuple(f"fuzz-{number}" for number in range(6))
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
ODD_TOPICS = ("", ".", "..", "fuzz.0", "fuzz_0", "a" * 249, "a" * 250, "ä", "fuzz 0", "nobody")
CLASSIC_GROUPS = tuple(f"classic-{number}" for number in range(4))
CONSUMER_GROUPS = tuple(f"consumer-{number}" for number in range(3))
TRANSACTIONAL_IDS = tuple(f"transactional-{number}" for number in range(4))
SLOTS = 3  # members of a group, plain producers, fetch sessions
PARTITIONS = 3

TOPIC_SETTINGS = {
    "cleanup.policy": ("delete", "compact", "compact,delete", "", "nonsense"),
    "compression.type": ("producer", "gzip", "zstd", "uncompressed", "lzma"),
    "retention.ms": ("-1", "1", "1000", "9223372036854775807", "-5", "x"),
    "retention.bytes": ("-1", "0", "1000"),
    "segment.bytes": ("1048576", "0", "2147483647"),
    "segment.ms": ("1", "1000"),
    "max.message.bytes": ("0", "100", "1048588", "2147483647"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "min.insync.replicas": ("1", "2"),
    "flush.messages": ("1", "9223372036854775807"),
    "index.interval.bytes": ("0", "4096"),
    "unclean.leader.election.enable": ("true",),
    "no.such.setting": ("1",),
}
# Of the broker's own only those that cannot take the bystander's records or connections away.
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": ("15000", "100"),
    "log.cleaner.threads": ("1", "2", "0"),
    "log.retention.ms": ("604800000", "-1"),
    "log.segment.bytes": ("1048576", "1073741824"),
    "log.flush.interval.messages": ("1000", "0"),
    "compression.type": ("producer", "lz4"),
    "log.index.interval.bytes": ("4096", "100"),
    "broker.id": ("7",),
    "no.such.setting": ("1",),
}


class Producer(NamedTuple):
    id: int
    epoch: int


class Member(NamedTuple):
    id: str
    generation: int


class Cast(NamedTuple):
    """Who and what one request is about; its fields agree with each other, as a client's do."""

    topic: str
    group: str
    slot: int
    transactional_id: str | None


class World:
    def __init__(self) -> None:
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.members: dict[tuple[str, int], Member] = {}
        self.producers: dict[tuple[str | None, int], Producer] = {}
        self.sessions: dict[int, tuple[int, int]] = {}

    def cast(self, rng: random.Random, groups: tuple[str, ...]) -> Cast:
        draw = rng.random()
        names = TOPICS if draw < 0.8 else INTERNAL if draw < 0.93 else ODD_TOPICS
        transactional_id = rng.choice(TRANSACTIONAL_IDS) if rng.random() < 0.7 else None
        return Cast(rng.choice(names), rng.choice(groups), rng.randrange(SLOTS), transactional_id)

    def member(self, cast: Cast) -> Member:
        return self.members.get((cast.group, cast.slot), Member("", -1))

    def producer(self, cast: Cast) -> Producer:
        slot = 0 if cast.transactional_id else cast.slot
        return self.producers.get((cast.transactional_id, slot), Producer(-1, -1))

    def learn(self, api_key: int, cast: Cast, answer: Any) -> None:
        """What later requests need to go on from this answer."""
        if api_key == raw.CREATE_TOPICS:
            for topic in answer.topics:
                if (
                    topic.error_code == 0
                    and topic.name in TOPICS
                    and isinstance(topic_id := getattr(topic, "topic_id", None), uuid.UUID)
                ):
                    self.topic_ids[topic.name] = topic_id
            return
        if getattr(answer, "error_code", 0) != 0 and api_key != JOIN_GROUP:
            return
        if api_key == JOIN_GROUP and answer.member_id:
            self.members[cast.group, cast.slot] = Member(answer.member_id, answer.generation_id)
        elif api_key == CONSUMER_GROUP_HEARTBEAT and answer.member_id:
            self.members[cast.group, cast.slot] = Member(answer.member_id, answer.member_epoch)
        elif api_key == raw.INIT_PRODUCER_ID:
            slot = 0 if cast.transactional_id else cast.slot
            self.producers[cast.transactional_id, slot] = Producer(answer.producer_id, answer.producer_epoch)
        elif api_key == END_TXN and getattr(answer, "producer_id", -1) >= 0:
            self.producers[cast.transactional_id, 0] = Producer(answer.producer_id, answer.producer_epoch)
        elif api_key == raw.FETCH and getattr(answer, "session_id", 0):
            self.sessions[cast.slot] = (answer.session_id, 1)


OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = 24, 25, 26, 27, 28
DELETE_GROUPS, OFFSET_DELETE, CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 42, 47, 68, 69
LEARNED_FROM = (JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT, raw.INIT_PRODUCER_ID, END_TXN, raw.FETCH, raw.CREATE_TOPICS)
