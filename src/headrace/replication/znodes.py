"""The znodes of a cluster, in Apache Kafka's layout: where each lies, and what its bytes say. No IO.

What Kafka writes stays as Kafka writes it, so that its tools and people's eyes find what they know. What Kafka does not
have is in fields of its own, which Kafka's readers leave alone, and under `/headrace`. Fields that are not known here
are left out when a node is written again: each node has one writer, and that is us.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

from headrace.core.errors import OperatorError
from headrace.replication.image import BrokerImage, Endpoint, PartitionImage

BROKERS: Final = "/brokers"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
TOPIC_SETTINGS: Final = "/config/topics"
BROKER_SETTINGS: Final = "/config/brokers"
DEFAULT_BROKER: Final = "<default>"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
DELETED_TOPICS: Final = "/admin/delete_topics"
PRODUCER_IDS: Final = "/latest_producer_id_block"
INCARNATIONS: Final = "/headrace/brokers"

# What exists before anything else, whoever comes first: as Kafka makes it.
PERSISTENT: Final = (
    "/admin",
    DELETED_TOPICS,
    BROKERS,
    BROKER_IDS,
    TOPICS,
    "/cluster",
    "/config",
    TOPIC_SETTINGS,
    BROKER_SETTINGS,
    "/config/changes",
    "/config/clients",
    "/config/users",
    "/consumers",
    "/headrace",
    INCARNATIONS,
    "/isr_change_notification",
    "/log_dir_event_notification",
)


def broker(number: int) -> str:
    return f"{BROKER_IDS}/{number}"


def incarnation(number: int) -> str:
    return f"{INCARNATIONS}/{number}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}"


def state(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}/state"


def topic_settings(name: str) -> str:
    return f"{TOPIC_SETTINGS}/{name}"


def broker_settings(number: int | None) -> str:
    """None: the settings that hold for every broker that has no own."""
    return f"{BROKER_SETTINGS}/{DEFAULT_BROKER if number is None else number}"


def deleted_topic(name: str) -> str:
    return f"{DELETED_TOPICS}/{name}"


class ForeignError(OperatorError):
    """A znode that cannot be read: somebody else wrote it."""


def _read(path: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ForeignError(f"{path}: its {len(data)} bytes are no JSON ({error}); repair it in ZooKeeper") from error
    if not isinstance(found, dict):
        raise ForeignError(f"{path}: a {type(found).__name__} where a JSON object should be; repair it in ZooKeeper")
    return found


def _write(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


# ── brokers ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """`/brokers/ids/N`, which is there as long as the broker's session."""

    broker: BrokerImage
    protocols: Mapping[str, str] = field(default_factory=dict)  # of each listener; PLAINTEXT where none is named
    started_ms: int = 0
    offline: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # partitions whose directory has failed


def write_registration(told: Registration) -> bytes:
    own = told.broker
    protocols = {name: told.protocols.get(name, "PLAINTEXT") for name in own.endpoints}
    # Clients of old read host and port, which are those of a plaintext listener.
    plain = next((own.endpoints[name] for name, protocol in protocols.items() if protocol == "PLAINTEXT"), None)
    return _write(
        {
            "version": 5,
            "host": plain.host if plain is not None else None,
            "port": plain.port if plain is not None else -1,
            "endpoints": [f"{name}://{_host(each.host)}:{each.port}" for name, each in own.endpoints.items()],
            "listener_security_protocol_map": protocols,
            "jmx_port": -1,
            "timestamp": str(told.started_ms),
            **({"rack": own.rack} if own.rack else {}),
            "features": {},
            "incarnation": own.incarnation,
            "intact_from": own.intact_from,
            "shutting_down": own.shutting_down,
            "offline": {name: list(indexes) for name, indexes in told.offline.items()},
        }
    )


def read_registration(number: int, data: bytes) -> Registration:
    path = broker(number)
    found = _read(path, data)
    try:
        endpoints = dict(_endpoint(each) for each in found["endpoints"])
        image = BrokerImage(
            id=number,
            endpoints=endpoints,
            rack=found.get("rack") or "",
            incarnation=int(found.get("incarnation", 0)),
            intact_from=int(found.get("intact_from", 0)),
            shutting_down=bool(found.get("shutting_down", False)),
        )
        return Registration(
            broker=image,
            protocols=dict(found.get("listener_security_protocol_map", {})),
            started_ms=int(found.get("timestamp", 0)),
            offline={name: tuple(indexes) for name, indexes in found.get("offline", {}).items()},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unread(path, "a broker's registration", error) from error


def _endpoint(text: str) -> tuple[str, Endpoint]:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return name, Endpoint(host=host.strip("[]"), port=int(port))


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True, slots=True, kw_only=True)
class Footing:
    """`/headrace/brokers/N`, written at each start: its version is the incarnation. What the broker stood on tells the
    next start what may have been lost since."""

    boot_id: str  # of the machine: a new one means that what was only in its memory is gone
    directories: frozenset[str]  # the ids of the log directories that were there
    intact_from: int


def write_footing(told: Footing) -> bytes:
    return _write(
        {
            "version": 1,
            "boot_id": told.boot_id,
            "directories": sorted(told.directories),
            "intact_from": told.intact_from,
        }
    )


def read_footing(number: int, data: bytes) -> Footing:
    path = incarnation(number)
    found = _read(path, data)
    try:
        return Footing(
            boot_id=str(found["boot_id"]),
            directories=frozenset(map(str, found["directories"])),
            intact_from=int(found["intact_from"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unread(path, "what a broker stood on", error) from error


# ── topics ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`/brokers/topics/T`: which brokers have which partitions."""

    id: uuid.UUID
    replicas: tuple[tuple[int, ...], ...]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # by the number of the partition
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def ended(self, index: int, replicas: tuple[int, ...]) -> Assignment:
        """The reassignment of one partition is over: these are its replicas."""
        return replace(
            self,
            replicas=(*self.replicas[:index], replicas, *self.replicas[index + 1 :]),
            adding={each: brokers for each, brokers in self.adding.items() if each != index},
            removing={each: brokers for each, brokers in self.removing.items() if each != index},
        )


def write_assignment(told: Assignment) -> bytes:
    def lists(by_index: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
        return {str(index): list(brokers) for index, brokers in by_index.items() if brokers}

    return _write(
        {
            "removing_replicas": lists(told.removing),
            "partitions": lists(dict(enumerate(told.replicas))),
            "topic_id": base64.urlsafe_b64encode(told.id.bytes).rstrip(b"=").decode(),
            "adding_replicas": lists(told.adding),
            "version": 3,
        }
    )


def read_assignment(name: str, data: bytes) -> Assignment:
    path = topic(name)
    found = _read(path, data)

    def lists(key: str) -> dict[int, tuple[int, ...]]:
        return {int(index): tuple(map(int, brokers)) for index, brokers in found.get(key, {}).items()}

    try:
        by_index = lists("partitions")
        if sorted(by_index) != list(range(len(by_index))):
            raise ValueError(f"partitions {sorted(by_index)} are not counted from 0")
        text = found.get("topic_id")
        if text is None:
            raise ValueError("it has no topic_id, as topics of Kafka before 2.8 have none")
        return Assignment(
            id=uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")),
            replicas=tuple(by_index[index] for index in range(len(by_index))),
            adding=lists("adding_replicas"),
            removing=lists("removing_replicas"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unread(path, "an assignment of replicas", error) from error


def write_state(told: PartitionImage, controller_epoch: int) -> bytes:
    return _write(
        {
            "controller_epoch": controller_epoch,
            "leader": told.leader,
            "version": 1,
            "leader_epoch": told.leader_epoch,
            "isr": list(told.isr),
            "leader_incarnation": told.leader_incarnation,
            "isr_incarnations": [told.isr_incarnation(each) for each in told.isr],
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """`/brokers/topics/T/partitions/P/state`, with the version of the node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_incarnation: int
    isr_incarnations: tuple[int, ...]
    controller_epoch: int
    version: int


def read_state(name: str, index: int, data: bytes, version: int) -> PartitionState:
    path = state(name, index)
    found = _read(path, data)
    try:
        isr = tuple(map(int, found["isr"]))
        incarnations = tuple(map(int, found.get("isr_incarnations", ())))
        return PartitionState(
            leader=int(found["leader"]),
            leader_epoch=int(found["leader_epoch"]),
            isr=isr,
            leader_incarnation=int(found.get("leader_incarnation", 0)),
            isr_incarnations=incarnations if len(incarnations) == len(isr) else (0,) * len(isr),
            controller_epoch=int(found["controller_epoch"]),
            version=version,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unread(path, "a partition's state", error) from error


# ── settings, controller, ids ────────────────────────────────────────────────────────────────────────────────────


def write_settings(values: Mapping[str, str]) -> bytes:
    return _write({"version": 1, "config": dict(values)})


def read_settings(path: str, data: bytes) -> dict[str, str]:
    values = _read(path, data).get("config", {})
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
        raise ForeignError(f"{path}: its config is not an object of strings; repair it in ZooKeeper")
    return values


def write_controller(number: int, now_ms: int) -> bytes:
    return _write({"version": 2, "brokerid": number, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def read_controller(data: bytes) -> int:
    number = _read(CONTROLLER, data).get("brokerid")
    if not isinstance(number, int):
        raise ForeignError(f"{CONTROLLER}: brokerid {number!r} is not the number of a broker; repair it in ZooKeeper")
    return number


def read_controller_epoch(data: bytes) -> int:
    if not data.isdigit():
        raise ForeignError(f"{CONTROLLER_EPOCH}: {data!r} is not a number; repair it in ZooKeeper")
    return int(data)


def write_cluster_id(cluster_id: str) -> bytes:
    return _write({"version": "1", "id": cluster_id})


def read_cluster_id(data: bytes) -> str:
    found = _read(CLUSTER_ID, data).get("id")
    if not isinstance(found, str) or quote(found, safe="") != found:
        raise ForeignError(f"{CLUSTER_ID}: {found!r} is not a cluster id; repair it in ZooKeeper")
    return found


def write_producer_ids(number: int, first: int, last: int) -> bytes:
    return _write({"version": 1, "broker": number, "block_start": str(first), "block_end": str(last)})


def read_producer_ids_end(data: bytes) -> int:
    """The last id that was given to any broker."""
    found = _read(PRODUCER_IDS, data)
    try:
        return int(found["block_end"])
    except (KeyError, TypeError, ValueError) as error:
        raise _unread(PRODUCER_IDS, "a block of producer ids", error) from error


def _unread(path: str, what: str, error: Exception) -> ForeignError:
    return ForeignError(f"{path}: this is not {what} ({error or type(error).__name__}); repair it in ZooKeeper")
