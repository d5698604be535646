"""Groups and transactions for the bare client of raw.py: one member, or one producer, that speaks exact versions.

As raw.py it retries nothing, with one exception: a coordinator that loads (Apache Kafka makes its internal topics
on first use) is asked again. It never shares code with the broker under test.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import raw
from raw import Client, ErrorCode, Topic
from waits import NEVER_MS, WAIT_S_MAX

OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 27, 61, 65, 66
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69

# What Apache Kafka 4.3.1 serves of these, and so what Headrace serves.
VERSIONS: dict[int, tuple[int, int]] = {
    OFFSET_COMMIT: (2, 10),
    OFFSET_FETCH: (1, 10),
    JOIN_GROUP: (0, 9),
    HEARTBEAT: (0, 4),
    LEAVE_GROUP: (0, 5),
    SYNC_GROUP: (0, 5),
    DESCRIBE_GROUPS: (0, 6),
    LIST_GROUPS: (0, 5),
    raw.INIT_PRODUCER_ID: (0, 5),
    ADD_PARTITIONS_TO_TXN: (0, 5),
    ADD_OFFSETS_TO_TXN: (0, 4),
    END_TXN: (0, 5),
    TXN_OFFSET_COMMIT: (0, 5),
    DELETE_GROUPS: (0, 2),
    OFFSET_DELETE: (0, 0),
    WRITE_TXN_MARKERS: (1, 2),
    DESCRIBE_PRODUCERS: (0, 0),
    DESCRIBE_TRANSACTIONS: (0, 0),
    LIST_TRANSACTIONS: (0, 2),
    CONSUMER_GROUP_HEARTBEAT: (0, 1),
    CONSUMER_GROUP_DESCRIBE: (0, 1),
}


def versions(api_key: int) -> range:
    low, high = VERSIONS[api_key]
    return range(low, high + 1)


def once_loaded(client: Client, api_key: int, version: int, body: Mapping[str, object]) -> Any:
    """The first answer that is not about a coordinator, or a transaction's markers, still on the way."""
    not_yet = {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
    }
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        answer = client.call(api_key, version, body)
        if answer.error_code not in not_yet or time.monotonic() > deadline:
            return answer
        time.sleep(0.01)


def warm_up(client: Client) -> None:
    """Returns when groups and transactions are served: Apache Kafka first makes the topics for their state."""
    for kind in (0, 1):
        body = {"key": "warm-up", "key_type": kind}
        raw.eventually(lambda body=body: client.call(raw.FIND_COORDINATOR, 2, body).error_code == 0)
    once_loaded(client, HEARTBEAT, 4, {"group_id": "warm-up", "generation_id": 1, "member_id": "nobody"})
    id_body = {"transactional_id": "warm-up", "transaction_timeout": 60000, "producer_id": -1, "producer_epoch": -1}
    assert once_loaded(client, raw.INIT_PRODUCER_ID, 5, id_body).error_code == 0


# Classic groups.


def subscription(*topics: str, held: Sequence[tuple[str, Sequence[int]]] = (), version: int = 1) -> bytes:
    """What a consumer says of itself when it joins a classic group (ConsumerProtocolSubscription)."""
    out = struct.pack(">hi", version, len(topics)) + b"".join(_text(topic) for topic in topics)
    out += struct.pack(">i", -1)
    return out + (_partitions(held) if version >= 1 else b"")


def assignment(*parts: tuple[str, Sequence[int]], version: int = 1) -> bytes:
    """What the leader of a classic group gives a consumer (ConsumerProtocolAssignment)."""
    return struct.pack(">h", version) + _partitions(parts) + struct.pack(">i", -1)


def _partitions(parts: Sequence[tuple[str, Sequence[int]]]) -> bytes:
    out = struct.pack(">i", len(parts))
    for topic, indexes in parts:
        out += _text(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return out


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


class Member:
    """One member of a classic group, on a connection of its own: a join blocks the connection that sent it."""

    def __init__(self, bootstrap: str, group: str, **fields: object) -> None:
        self.client, self.group = Client(bootstrap), group
        self.id, self.generation, self.instance = "", -1, fields.get("group_instance_id")
        self.fields: dict[str, object] = {
            "session_timeout": NEVER_MS,
            "rebalance_timeout": NEVER_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription("none")}],
        } | fields

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.socket.close()

    def send_join(self, version: int = 9, **fields: object) -> None:
        body = {"group_id": self.group, "member_id": self.id} | self.fields | fields
        self.client.send(JOIN_GROUP, version, body)

    def read_join(self) -> Any:
        answer = self.client.read()
        if answer.error_code == 0:
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def ask_for_id(self, version: int = 9, **fields: object) -> None:
        """From version 4 on a member without an id is first given one."""
        self.send_join(version, **fields)
        answer = self.client.read()
        assert answer.error_code == ErrorCode.member_id_required, answer
        self.id = answer.member_id

    def join(self, version: int = 9, **fields: object) -> Any:
        if version >= 4 and not self.id and self.instance is None:
            self.ask_for_id(version, **fields)
        self.send_join(version, **fields)
        return self.read_join()

    @property
    def identity(self) -> dict[str, object]:
        return {
            "group_id": self.group,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "generation_id": self.generation,
        }

    def send_sync(self, version: int = 5, given: Mapping[str, bytes] | None = None, **fields: object) -> None:
        parts = [{"member_id": to, "assignment": what} for to, what in (given or {}).items()]
        body = {"protocol_type": "consumer", "protocol_name": "range", "assignments": parts}
        self.client.send(SYNC_GROUP, version, self.identity | body | fields)

    def sync(self, version: int = 5, given: Mapping[str, bytes] | None = None, **fields: object) -> Any:
        self.send_sync(version, given, **fields)
        return self.client.read()

    def settle(self) -> Member:
        """Alone in the group: joined, and given its assignment."""
        assert self.join().error_code == 0
        synced = self.sync(given={self.id: b"all"}, protocol_type=self.fields["protocol_type"])
        assert (synced.error_code, synced.assignment) == (0, b"all")
        return self

    def heartbeat(self, version: int = 4, **fields: object) -> Any:
        return self.client.call(HEARTBEAT, version, self.identity | fields).error_code

    def await_rebalance(self) -> None:
        """Until a heartbeat tells of it: another connection's request may be read later than ours."""
        raw.eventually(lambda: self.heartbeat() == ErrorCode.rebalance_in_progress)

    def leave(self, version: int = 5, **fields: object) -> Any:
        """The member's own error; the older versions have only that of the whole."""
        one = {"member_id": self.id, "group_instance_id": self.instance, "reason": "the test ends"} | fields
        answer = self.client.call(LEAVE_GROUP, version, {"group_id": self.group, "members": [one]} | one)
        if version < 3 or answer.error_code:
            return answer.error_code
        return answer.members[0].error_code


# Committed offsets.


class Offset(NamedTuple):
    """error, offset, leader epoch, metadata"""

    error: int
    offset: int
    epoch: int
    metadata: str | None


def commit(
    client: Client,
    version: int,
    group: str,
    topic: Topic,
    offsets: Mapping[int, int],
    *,
    metadata: str | None = "",
    epoch: int = -1,
    **fields: object,
) -> list[int]:
    """The partitions' errors; without fields as an application commits that is in no group."""
    parts = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "committed_metadata": metadata,
        }
        for index, offset in offsets.items()
    ]
    nobody = {"generation_id_or_member_epoch": -1, "member_id": "", "retention_time": -1}
    body = {"group_id": group, "topics": [topic.ref | {"partitions": parts}]} | nobody | fields
    answer = client.call(OFFSET_COMMIT, version, body)
    (about,) = answer.topics
    assert (about.topic_id == topic.id) if version >= 10 else (about.name == topic.name)
    errors = {each.partition_index: each.error_code for each in about.partitions}
    assert errors.keys() == offsets.keys()
    return [errors[index] for index in offsets]


def fetch_offsets(
    client: Client, version: int, group: str, topics: Mapping[Topic, Sequence[int]] | None, **fields: object
) -> Any:
    """The group's part of the answer, whose shape changes with version 8."""
    asked = topics and [topic.ref | {"partition_indexes": list(indexes)} for topic, indexes in topics.items()]
    one = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": asked} | fields
    answer = client.call(OFFSET_FETCH, version, one | {"groups": [one]})
    if version < 8:
        return answer
    (found,) = answer.groups
    assert found.group_id == group
    return found


def committed(client: Client, version: int, group: str, topic: Topic, partition: int = 0, **fields: object) -> Offset:
    """What is committed for one partition."""
    found = fetch_offsets(client, version, group, {topic: [partition]}, **fields)
    assert getattr(found, "error_code", 0) == 0, found
    (part,) = found.topics[0].partitions
    epoch = getattr(part, "committed_leader_epoch", -1)
    return Offset(part.error_code, part.committed_offset, epoch, part.metadata)


# Groups of the new protocol.


class ConsumerMember:
    """One member of a group whose assignment the broker makes (KIP-848). It acknowledges only when told to."""

    def __init__(self, client: Client, group: str, *, version: int = 1, member_id: str | None = None) -> None:
        self.client, self.group, self.version, self.epoch = client, group, version, 0
        # From version 1 on the member makes its own id.
        self.id = (str(uuid.uuid4()) if version >= 1 else "") if member_id is None else member_id
        self.assigned: dict[uuid.UUID, list[int]] = {}

    def join(self, *topics: str, **fields: object) -> Any:
        named = {"subscribed_topic_names": list(topics)} if topics else {}
        first = {"rebalance_timeout": NEVER_MS, "topic_partitions": []}
        return self.heartbeat(**(first | named | fields))

    def heartbeat(self, **fields: object) -> Any:
        body = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self.epoch,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        }
        answer = self.client.call(CONSUMER_GROUP_HEARTBEAT, self.version, body | fields)
        if answer.error_code == 0:
            self.id, self.epoch = answer.member_id or self.id, answer.member_epoch
            if answer.assignment is not None:
                parts = answer.assignment.topic_partitions
                self.assigned = {each.topic_id: sorted(each.partitions) for each in parts}
        return answer

    def acknowledge(self) -> Any:
        """Tells the coordinator that the member holds what it was given, and nothing else."""
        held = [{"topic_id": topic, "partitions": indexes} for topic, indexes in self.assigned.items()]
        return self.heartbeat(topic_partitions=held)

    def leave(self) -> Any:
        return self.heartbeat(member_epoch=-1)

    def partitions(self, topic: Topic) -> list[int]:
        return self.assigned.get(topic.id, [])


# Transactions.


class TransactionalProducer:
    """One transactional id. Older versions name what a transaction writes to beforehand; newer ones just write."""

    def __init__(self, client: Client, transactional_id: str = "", *, timeout_ms: int = NEVER_MS) -> None:
        self.client, self.name, self.timeout_ms = client, transactional_id or raw.fresh_name("txn"), timeout_ms
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, version: int = 5, **fields: object) -> Any:
        body = {"transactional_id": self.name, "transaction_timeout": self.timeout_ms}
        fresh = {"producer_id": -1, "producer_epoch": -1}
        answer = once_loaded(self.client, raw.INIT_PRODUCER_ID, version, body | fresh | fields)
        if answer.error_code == 0:
            self.take(answer.producer_id, answer.producer_epoch)
        return answer

    def started(self) -> TransactionalProducer:
        answer = self.init()
        assert answer.error_code == 0, answer
        return self

    def take(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch, self.sequences = producer_id, epoch, {}

    @property
    def identity(self) -> dict[str, object]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add_partitions(self, version: int, topic: Topic, *partitions: int, **fields: object) -> list[int]:
        """The partitions' errors; asked again while the former transaction's end is still being written."""
        deadline = time.monotonic() + WAIT_S_MAX
        while True:
            errors = self.add_partitions_once(version, topic, *partitions, **fields)
            if ErrorCode.concurrent_transactions not in errors or time.monotonic() > deadline:
                return errors
            time.sleep(0.01)

    def add_partitions_once(self, version: int, topic: Topic, *partitions: int, **fields: object) -> list[int]:
        one = self.identity | {"topics": [{"name": topic.name, "partitions": list(partitions)}]} | fields
        older = {f"v3_and_below_{key}": value for key, value in one.items()}
        answer = self.client.call(ADD_PARTITIONS_TO_TXN, version, older | {"transactions": [one]})
        if version < 4:
            results = answer.results_by_topic_v3_and_below
        else:
            assert answer.error_code == 0, answer
            (about,) = answer.results_by_transaction
            assert about.transactional_id == self.name
            results = about.topic_results
        (result,) = results
        assert result.name == topic.name
        assert sorted(each.partition_index for each in result.results_by_partition) == sorted(partitions)
        by_index = {each.partition_index: each.partition_error_code for each in result.results_by_partition}
        return [by_index[index] for index in partitions]

    def batch(self, topic: Topic, *what: bytes, partition: int = 0) -> bytes:
        first = self.sequences.get((topic.name, partition), 0)
        self.sequences[topic.name, partition] = first + len(what)
        stamp = (self.producer_id, self.epoch, first)
        return raw.batch(raw.values(*what), attributes=raw.TRANSACTIONAL, producer=stamp)

    def produce(self, version: int, topic: Topic, *what: bytes, partition: int = 0) -> Any:
        """The one partition's answer."""
        body = raw.produce_body((topic, partition, self.batch(topic, *what, partition=partition)))
        deadline = time.monotonic() + WAIT_S_MAX
        while True:
            answer = self.client.call(raw.PRODUCE, version, body | {"transactional_id": self.name})
            found = answer.responses[0].partition_responses[0]
            if found.error_code != ErrorCode.concurrent_transactions or time.monotonic() > deadline:
                return found
            time.sleep(0.01)

    def add_offsets(self, version: int, group: str, **fields: object) -> Any:
        body = self.identity | {"group_id": group} | fields
        return once_loaded(self.client, ADD_OFFSETS_TO_TXN, version, body).error_code

    def commit_offsets(
        self, version: int, group: str, topic: Topic, offsets: Mapping[int, int], **fields: object
    ) -> list[int]:
        parts = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": "in a transaction"}
            for index, offset in offsets.items()
        ]
        nobody = {"group_id": group, "generation_id": -1, "member_id": ""}
        body = self.identity | nobody | {"topics": [topic.ref | {"partitions": parts}]} | fields
        answer = self.client.call(TXN_OFFSET_COMMIT, version, body)
        (about,) = answer.topics
        assert about.name == topic.name
        return [each.error_code for each in about.partitions]

    def end(self, version: int = 5, *, commit: bool, **fields: object) -> Any:
        body = self.identity | {"committed": commit} | fields
        answer = once_loaded(self.client, END_TXN, version, body)
        if version >= 5 and answer.error_code == 0:
            self.take(answer.producer_id, answer.producer_epoch)
        return answer


class DescribedTransaction(NamedTuple):
    error: int
    name: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    epoch: int
    topics: dict[str, list[int]]


def describe_transaction(client: Client, name: str) -> DescribedTransaction:
    """Read by hand: kio refuses the time -1, which a transaction has that is not open."""
    client.send_frame(raw.encode_request(DESCRIBE_TRANSACTIONS, 0, 1, {"transactional_ids": [name]}))
    frame, at = client.read_frame(), 9  # correlation id, no tags, throttle time

    def number(layout: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(layout, frame, at)
        at += struct.calcsize(layout)
        return int(value)

    def text() -> str:
        nonlocal at
        size = number(">B") - 1
        at += size
        return frame[at - size : at].decode()

    assert number(">B") - 1 == 1
    head = (number(">h"), text(), text(), number(">i"), number(">q"), number(">q"), number(">h"))
    topics = {}
    for _ in range(number(">B") - 1):
        topic = text()
        topics[topic] = [number(">i") for _ in range(number(">B") - 1)]
        number(">B")
    assert (number(">B"), number(">B"), at) == (0, 0, len(frame))
    return DescribedTransaction(*head, topics)
