"""Requests of every API and version that a broker advertises, made from the schemas.

A field gets a value that makes sense for its name, most of the time; now and then the largest, the smallest, the empty
or the absent one. Every request is one that its schema allows: a broker has to answer it.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import fuzz_world
import raw
from fuzz_world import CLASSIC_GROUPS, CONSUMER_GROUPS, PARTITIONS, Cast, World

from headrace.protocol import messages
from headrace.protocol.message_fields import SchemaField, schema_fields

HOSTILE_SHARE = 0.01  # of all fields
COHERENT_SHARE = 0.8  # of what has rules between its fields
COUNTS = (0, 1, 1, 1, 1, 1, 1, 1, 2, 3)  # of an array's items
# Waits are short, so that requests behind one are served soon; a mutated frame may still ask for any.
WAITS_MS = {
    "max_wait": (0, 0, 1, 5, -1, -(1 << 31)),
    "rebalance_timeout": (1, 10, 50, 50, 50, 0, -1),
    "session_timeout": (60, 200, 500, 500, 1000, 1000, 1000, 0, (1 << 31) - 1),
}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32, "timedelta_i64": 64, "error_code": 16}
ODD_TEXTS = ("", "\0", "x" * 300, "ä日" * 20, "%s%n", "../../etc", "-1", "y" * 32_000)
# How often an API is asked, where that is not once: those that change something, and those that carry most traffic.
WEIGHTS = {
    raw.PRODUCE: 12,
    raw.FETCH: 6,
    raw.CREATE_TOPICS: 5,
    raw.DELETE_TOPICS: 2,
    raw.CREATE_PARTITIONS: 2,
    raw.DELETE_RECORDS: 3,
    raw.ALTER_CONFIGS: 2,
    raw.INCREMENTAL_ALTER_CONFIGS: 2,
    raw.INIT_PRODUCER_ID: 4,
    fuzz_world.JOIN_GROUP: 4,
    fuzz_world.SYNC_GROUP: 3,
    fuzz_world.OFFSET_COMMIT: 4,
    fuzz_world.CONSUMER_GROUP_HEARTBEAT: 4,
    fuzz_world.ADD_PARTITIONS_TO_TXN: 4,
    fuzz_world.ADD_OFFSETS_TO_TXN: 2,
    fuzz_world.TXN_OFFSET_COMMIT: 3,
    fuzz_world.END_TXN: 4,
    fuzz_world.WRITE_TXN_MARKERS: 3,
    fuzz_world.DELETE_GROUPS: 2,
    fuzz_world.OFFSET_DELETE: 2,
}
_CONSUMER_APIS = (fuzz_world.CONSUMER_GROUP_HEARTBEAT, fuzz_world.CONSUMER_GROUP_DESCRIBE)


class Request(NamedTuple):
    api_key: int
    version: int
    cast: Cast
    payload: bytes  # without the length in front
    is_answered: bool

    @property
    def name(self) -> str:
        return f"{messages.api_name(self.api_key)} v{self.version}"


class Requests:
    """`make()` gives one after the other, the same ones for the same seed."""

    def __init__(self, world: World, rng: random.Random, served: Sequence[tuple[int, int, int]]) -> None:
        self._world = world
        self._rng = rng
        self._served = {key: range(low, high + 1) for key, low, high in served}
        self._keys = list(self._served)
        self._weights = [WEIGHTS.get(key, 1) for key in self._keys]
        self._number = 0

    def every_version(self) -> list[Request]:
        """One of each API and version."""
        return [self.make(key, version) for key, versions in self._served.items() for version in versions]

    def make(self, api_key: int | None = None, version: int | None = None) -> Request:
        # A source of its own for each: how much chance one takes depends on what was learned, and must shift no other.
        rng = random.Random(self._rng.getrandbits(64))
        if api_key is None:
            api_key = rng.choices(self._keys, self._weights)[0]
        if version is None:
            version = rng.choice(self._served[api_key])
        body, cast = self._body(api_key, version, rng)
        self._number = (self._number + 1) & 0x7FFFFFFF
        payload = messages.encode_request(api_key, version, self._number, rng.choice(("fuzz", "", "x" * 50)), body)
        return Request(api_key, version, cast, payload, api_key != raw.PRODUCE or body["acks"] != 0)

    def _body(self, api_key: int, version: int, rng: random.Random) -> tuple[dict[str, Any], Cast]:
        mixed = rng.random() < 0.1  # one protocol's request for a group of the other
        groups = CONSUMER_GROUPS if (api_key in _CONSUMER_APIS) != mixed else CLASSIC_GROUPS
        filler = Filler(self._world, rng, self._world.cast(rng, groups))
        body = {field.name: filler.value(field, "") for field in _fields(messages._schema(api_key, version, "request"))}
        filler.agree(api_key, body)
        return body, filler.cast


class Filler:
    """Fills the fields of one request."""

    def __init__(self, world: World, rng: random.Random, cast: Cast) -> None:
        self.world = world
        self.rng = rng
        self.cast = cast
        self.is_broker = False  # the settings that are asked for are the broker's

    def value(self, field: SchemaField, parent: str) -> Any:
        rng = self.rng
        if rng.random() < HOSTILE_SHARE and field.name not in WAITS_MS:
            return self._hostile(field, parent)
        if field.array:
            if field.nullable and rng.random() < 0.1:
                return None
            return tuple(self._item(field, parent) for _ in range(rng.choice(COUNTS)))
        if field.name == "transactional_id" and self.cast.transactional_id is None:
            return None if field.nullable else ""
        if field.nullable and field.name not in _SELDOM_NULL and rng.random() < 0.3:
            return None
        return self._item(field, parent)

    def _item(self, field: SchemaField, parent: str) -> Any:
        if field.kafka_type == "entity":
            return self._entity(field)
        if field.name in WAITS_MS:
            return self.rng.choice(WAITS_MS[field.name])
        choose = _BY_PARENT.get((parent, field.name)) or _BY_NAME.get(field.name)
        if choose is not None:
            return choose(self)
        return self._plain(field)

    def _entity(self, field: SchemaField) -> dict[str, Any]:
        if field.name in ("topics", "topic_data", "resources") and self.rng.random() < 0.3:
            self.cast = self.cast._replace(topic=self.world.cast(self.rng, CLASSIC_GROUPS).topic)
        made = {each.name: self.value(each, field.name) for each in _fields(field.python_type)}
        if field.name == "configs":
            settings = fuzz_world.BROKER_SETTINGS if self.is_broker else fuzz_world.TOPIC_SETTINGS
            made["name"] = self.rng.choice(list(settings))
            made["value"] = self.rng.choice(settings[made["name"]]) if self.rng.random() < 0.95 else None
        if "replication_factor" in made and self.rng.random() < COHERENT_SHARE:
            made |= {"assignments": (), "num_partitions": self.rng.choice((1, 2, PARTITIONS)), "replication_factor": 1}
        return made

    def agree(self, api_key: int, body: dict[str, Any]) -> None:
        """Makes what is asked for coherent where a server would refuse it at once."""
        rng = self.rng
        if rng.random() > COHERENT_SHARE:
            return
        if api_key == fuzz_world.CONSUMER_GROUP_HEARTBEAT:
            member = self.world.member(self.cast)
            body["rack_id"] = body["instance_id"] = body["server_assignor"] = None
            if member.generation > 0 and rng.random() < 0.8:
                body |= {"member_id": member.id, "member_epoch": rng.choice((member.generation,) * 5 + (-1,))}
            else:
                body |= {"member_id": f"member-{self.cast.slot}", "member_epoch": 0, "rebalance_timeout": 1000}
                body |= {"topic_partitions": (), "subscribed_topic_names": (self.cast.topic,)}
                if "subscribed_topic_regex" in body:
                    body["subscribed_topic_regex"] = None
        elif api_key == fuzz_world.JOIN_GROUP:
            body["protocol_type"] = "consumer"
            body["protocols"] = ({"name": "range", "metadata": self.subscription()},)
        elif api_key == raw.INIT_PRODUCER_ID and rng.random() < 0.5:
            body |= {"producer_id": -1, "producer_epoch": -1, "transaction_timeout": 60_000}

    def _plain(self, field: SchemaField) -> Any:
        rng = self.rng
        match field.kafka_type:
            case "string":
                return rng.choice(("", "fuzz", "consumer", "rack-1", "range", "Stable"))
            case "bytes" | "records":
                return rng.randbytes(rng.choice((0, 1, 30)))
            case "bool":
                return rng.random() < 0.5
            case "uuid":
                return None
            case "float64":
                return rng.random()
            case "uint16":
                return rng.randrange(1 << 16)
            case _:
                return rng.choice((0, 0, 1, 1, 2, -1))

    def _hostile(self, field: SchemaField, parent: str) -> Any:
        rng = self.rng
        if field.array:
            return None if field.nullable else tuple(self._item(field, parent) for _ in range(rng.choice((0, 50))))
        if field.nullable and rng.random() < 0.5:
            return None
        if field.kafka_type in BITS:
            top = 1 << (BITS[field.kafka_type] - 1)
            return rng.choice((0, -1, 1, top - 1, -top, rng.randrange(-top, top)))
        if field.kafka_type == "string":
            return rng.choice(ODD_TEXTS)
        if field.kafka_type in ("bytes", "records"):
            return rng.randbytes(rng.choice((0, 1, 60, 61, 300)))
        return self._item(field, parent)

    # What fields mean

    def records(self) -> bytes:
        rng = self.rng
        producer = self.world.producer(self.cast) if rng.random() < 0.5 else fuzz_world.Producer(-1, -1)
        held = [
            raw.Record(rng.randbytes(rng.choice((0, 5, 80))), rng.choice((None, b"a", b"b")), raw.now_ms())
            for _ in range(rng.choice((1, 1, 2, 5)))
        ]
        sequence = rng.choice((0, 0, 1, 2, (1 << 31) - 1)) if producer.id >= 0 else -1
        attributes = raw.TRANSACTIONAL if self.cast.transactional_id and producer.id >= 0 else 0
        lies: dict[str, int] = {}
        if rng.random() < 0.1:  # and the checksum is right
            lie = rng.choice(("count", "last_offset_delta", "max_timestamp", "base_offset", "magic", "length_error"))
            lies[lie] = rng.choice((0, 1, 3, -1, 100, 1 << 30)) if lie != "magic" else rng.choice((0, 1, 3))
            attributes |= rng.choice((0, raw.CONTROL, raw.LOG_APPEND_TIME, raw.DELETE_HORIZON, 7))
        made = raw.batch(
            held,
            codec=rng.choice(range(5)),
            attributes=attributes,
            producer=(producer.id, producer.epoch, sequence),
            **lies,
        )
        if rng.random() < 0.1:  # the checksum is then wrong
            at = rng.randrange(len(made))
            made = made[:at] + bytes([made[at] ^ (1 << rng.randrange(8))]) + made[at + 1 :]
        return made + made if rng.random() < 0.02 else made

    def resource_type(self) -> int:
        kind = self.rng.choice((2, 2, 2, 2, 2, 2, 4, 4, 4, 32, 0, 8))
        self.is_broker = kind == 4
        return kind

    def resource_name(self) -> str:
        return self.rng.choice(("1", "1", "", "", "2", "x")) if self.is_broker else self.cast.topic

    def subscription(self) -> bytes:
        """What a consumer says of itself in the classic protocol: version, topics, no data of its own."""
        name = self.cast.topic.encode()
        return b"\0\0" + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name + bytes(4)

    def session(self, which: int) -> int:
        known = self.world.sessions.get(self.cast.slot, (0, 0))
        return known[which] if self.rng.random() < 0.5 else (0, -1)[which]


Choose = Callable[[Filler], Any]


def _partition(f: Filler) -> Any:
    return f.rng.choice((0, 0, 0, 0, 1, 1, 1, 2, 2, 2, PARTITIONS, 49, -1))


def _topic(f: Filler) -> Any:
    return f.cast.topic


def _group(f: Filler) -> Any:
    return f.cast.group


def _offset(f: Filler) -> Any:
    return f.rng.choice((0, 0, 1, 5, 100, -1, -2))


def _count(f: Filler) -> Any:
    return f.rng.choice((1, 2, PARTITIONS, PARTITIONS, 5, -1, 0, 10_001, (1 << 31) - 1))


def _generation(f: Filler) -> Any:
    return f.world.member(f.cast).generation if f.rng.random() < 0.8 else f.rng.choice((-1, 0, 1))


def _member(f: Filler) -> Any:
    return f.world.member(f.cast).id if f.rng.random() < 0.8 else f.rng.choice(("", "stranger"))


def _producer_id(f: Filler) -> Any:
    return f.world.producer(f.cast).id if f.rng.random() < 0.9 else f.rng.choice((-1, 0, 1, 5))


def _producer_epoch(f: Filler) -> Any:
    return f.world.producer(f.cast).epoch if f.rng.random() < 0.9 else f.rng.choice((-1, 0, 1))


def _transactional_id(f: Filler) -> Any:
    return f.cast.transactional_id or ""


def _ms(f: Filler) -> Any:
    return f.rng.choice((1000, 1000, 0, -1))


_TEXTS_OF_REGEX = ("fuzz.*", "(", "fuzz-[0-9]", "(a*)*b", "")

_SELDOM_NULL = {"records", "member_id", "name", "topic", "subscribed_topic_names", "resource_name"}
_BY_PARENT: dict[tuple[str, str], Choose] = {
    ("protocols", "name"): lambda f: f.rng.choice(("range", "roundrobin", "")),
    ("protocols", "metadata"): Filler.subscription,
    ("assignments", "member_id"): _member,
    ("assignments", "assignment"): Filler.subscription,
}
_BY_NAME: dict[str, Choose] = {
    "acks": lambda f: f.rng.choice((-1, -1, -1, -1, 1, 1, 0, 2)),
    "broker_ids": lambda f: f.rng.choice((1, 1, 1, 2, -1)),
    "committed_metadata": lambda f: f.rng.choice((None, "", "note", "n" * 5000)),
    "committed_offset": _offset,
    "config_operation": lambda f: f.rng.choice((0, 0, 0, 1, 1, 2, 3, 9)),
    "coordinator_keys": lambda f: f.rng.choice((f.cast.group, f.cast.transactional_id or "")),
    "count": _count,
    "fetch_offset": _offset,
    "generation_id": _generation,
    "generation_id_or_member_epoch": _generation,
    "group_id": _group,
    "group_ids": _group,
    "group_instance_id": lambda f: f.rng.choice((None, None, None, "static-0", "static-1")),
    "groups": _group,
    "groups_names": _group,
    "index": _partition,
    "instance_id": lambda f: f.rng.choice((None, None, "static-0")),
    "isolation_level": lambda f: f.rng.choice((0, 0, 1, 1, 1, 2)),
    "key": lambda f: f.rng.choice((f.cast.group, f.cast.transactional_id or "")),
    "key_type": lambda f: f.rng.choice((0, 1, 2)),
    "max_bytes": lambda f: f.rng.choice((1 << 20, 1000, 0, -1)),
    "member_epoch": lambda f: f.rng.choice((f.world.member(f.cast).generation, 0, -1, -2)),
    "member_id": _member,
    "min_bytes": lambda f: f.rng.choice((0, 1, 1, 1 << 20)),
    "name": _topic,
    "num_partitions": _count,
    "offset": _offset,
    "partition": _partition,
    "partition_index": _partition,
    "partition_indexes": _partition,
    "partition_max_bytes": lambda f: f.rng.choice((1 << 20, 100, 0)),
    "partitions": _partition,
    "producer_epoch": _producer_epoch,
    "producer_id": _producer_id,
    "protocol_name": lambda f: f.rng.choice(("range", "roundrobin")),
    "protocol_type": lambda f: f.rng.choice(("consumer", "consumer", "connect", "")),
    "records": Filler.records,
    "replica_id": lambda f: f.rng.choice((-1, -1, -1, -2, 1, 7)),
    "replication_factor": lambda f: f.rng.choice((1, 1, -1, -1, 2, 0)),
    "resource_name": Filler.resource_name,
    "resource_type": Filler.resource_type,
    "server_assignor": lambda f: f.rng.choice((None, "uniform", "range", "none-such")),
    "session_epoch": lambda f: f.session(1),
    "session_id": lambda f: f.session(0),
    "subscribed_topic_names": _topic,
    "subscribed_topic_regex": lambda f: f.rng.choice((None, *_TEXTS_OF_REGEX)),
    "timeout": _ms,
    "timestamp": lambda f: f.rng.choice((-1, -2, -3, -4, -5, -6, 0, raw.now_ms())),
    "topic": _topic,
    "topic_id": lambda f: f.world.topic_ids.get(f.cast.topic),
    "topic_name": _topic,
    "topic_names": _topic,
    "transaction_timeout": lambda f: f.rng.choice((200, 1000, 60_000, 60_000, 60_000, 0, -1)),
    "transactional_id": _transactional_id,
    "transactional_id_pattern": lambda f: f.rng.choice((None, *_TEXTS_OF_REGEX)),
    "transactional_ids": _transactional_id,
    "v3_and_below_producer_epoch": _producer_epoch,
    "v3_and_below_producer_id": _producer_id,
    "v3_and_below_transactional_id": _transactional_id,
    "validate_only": lambda f: f.rng.random() < 0.3,
}


@functools.cache
def _fields(schema: type[Any]) -> tuple[SchemaField, ...]:
    return tuple(schema_fields(schema))
