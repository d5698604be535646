"""`BrokerSettings`: every setting of a broker, in one frozen object that is checked when it is made.

Each field carries its Kafka keys, type, bounds and help; `server.properties`, the environment, flags, the
reference and DescribeConfigs are all derived from the fields. Defaults are Apache Kafka 4.3's, except where
the help says otherwise. A setting that exists in Kafka keeps its name; Headrace's own begin with `headrace.`.
"""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.core.cluster_keys import CLUSTER_KEYS
from headrace.core.errors import OperatorError
from headrace.core.listeners import PLAINTEXT, PROTOCOLS, WILDCARDS, ListenerAddress, check_listeners
from headrace.core.settings.groups import GroupAndLogSettings
from headrace.core.settings.reading import (
    GivenSetting,
    environment_source,
    flags_source,
    known_keys,
    properties_source,
    read,
)
from headrace.core.settings.types import LONG_MAX, Alias, Kind, format_value, refuse, setting, setting_of
from headrace.core.settings.view import KafkaItem, describe_fields, kafka_items

__all__ = ["BrokerSettings", "GivenSetting", "KafkaItem", "Kind", "flags_source", "kafka_items"]

_log = logging.getLogger(__name__)
_BOOLEAN, _STRING, _LONG, _LIST = Kind.BOOLEAN, Kind.STRING, Kind.LONG, Kind.LIST


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerSettings(GroupAndLogSettings):
    # Who and where
    node_id: int = setting(1, "node.id", "The id of this broker.", low=0, aliases=(Alias(key="broker.id", low=0),))
    broker_rack: str = setting(
        "", "broker.rack", "The broker's rack, as clients are told.", _STRING, null_by_default=True
    )
    host: str = setting("127.0.0.1", "host.name", "The address to listen on; from listeners.", _STRING)
    port: int = setting(9092, "port", "The port to listen on; 0 picks a free one. From listeners.", low=0, high=65535)
    advertised_host: str = setting(
        "", "advertised.host.name", "The host that clients are told; empty: the one listened on.", _STRING
    )
    advertised_port: int = setting(
        0, "advertised.port", "The port that clients are told; 0: the one listened on.", low=0, high=65535
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        tuple(PROTOCOLS.split(",")),
        "listener.security.protocol.map",
        "The security protocol of each listener's name; PLAINTEXT is the one that is served.",
        _LIST,
    )
    inter_broker_listener_name: str = setting(
        "",
        "inter.broker.listener.name",
        "The listener that other brokers use; empty: PLAINTEXT, or else the first one.",
        _STRING,
        null_by_default=True,
    )
    log_dirs: tuple[str, ...] = setting(
        ("./headrace-data",),
        "log.dirs",
        "The directories that hold the data; partitions are spread over them.",
        _LIST,
        aliases=(Alias(key="log.dir", kind=_LIST, describe=False),),
    )
    metrics_host: str = setting("127.0.0.1", "headrace.metrics.host", "Where /metrics and /health listen.", _STRING)
    metrics_port: int = setting(
        -1,
        "headrace.metrics.port",
        "Port of /metrics and /health; -1: off, 0: a free one.",
        low=-1,
        high=65535,
    )

    # Topics
    num_partitions: int = setting(
        1, "num.partitions", "Partitions of a topic that is created without a number of them.", low=1
    )
    default_replication_factor: int = setting(
        1,
        "default.replication.factor",
        "Replicas of a topic that is created without a number of them; one broker keeps 1.",
        low=1,
    )
    auto_create_topics_enable: bool = setting(
        True, "auto.create.topics.enable", "Make a topic when it is first written to or asked for.", _BOOLEAN
    )
    delete_topic_enable: bool = setting(True, "delete.topic.enable", "Let clients delete topics.", _BOOLEAN)
    min_insync_replicas: int = setting(
        1,
        "min.insync.replicas",
        "Replicas that must have a record before acks=all is answered.",
        low=1,
        dynamic=True,
    )
    unclean_leader_election_enable: bool = setting(
        False,
        "unclean.leader.election.enable",
        "Let a replica that lags become leader.",
        _BOOLEAN,
        dynamic=True,
    )
    # Connections and requests
    socket_request_max_bytes: int = setting(
        100 << 20, "socket.request.max.bytes", "The largest request; a larger one ends the connection.", low=1
    )
    socket_send_buffer_bytes: int = setting(
        -1,
        "socket.send.buffer.bytes",
        "SO_SNDBUF; -1 (our default; Kafka: 102400): the system sizes it.",
        low=-1,
    )
    socket_receive_buffer_bytes: int = setting(
        -1,
        "socket.receive.buffer.bytes",
        "SO_RCVBUF; -1 (our default; Kafka: 102400): the system sizes it.",
        low=-1,
    )
    socket_listen_backlog_size: int = setting(
        1024, "socket.listen.backlog.size", "Connections that may wait to be accepted (Kafka's default: 50).", low=1
    )
    max_connections: int = setting(
        (1 << 31) - 1, "max.connections", "The most connections at a time.", low=0, dynamic=True
    )
    max_connections_per_ip: int = setting(
        (1 << 31) - 1, "max.connections.per.ip", "The most connections from one address.", low=0, dynamic=True
    )
    connections_max_idle_ms: int = setting(
        600_000,
        "connections.max.idle.ms",
        "Silence after which a connection is closed.",
        _LONG,
        low=1,
        unlimited=-1,
    )
    queued_max_request_bytes: int = setting(
        64 << 20,
        "queued.max.request.bytes",
        "Memory that clients take: requests, unread answers and group members (Kafka's default has no bound).",
        _LONG,
        low=1,
        unlimited=-1,
    )
    in_flight_requests_max: int = setting(
        64, "headrace.connection.in.flight.requests.max", "Unanswered requests a connection may have.", low=1
    )
    in_flight_bytes_max: int = setting(
        16 << 20, "headrace.connection.in.flight.bytes.max", "Unanswered bytes a connection may have.", low=1
    )
    fetch_max_bytes: int = setting(55 << 20, "fetch.max.bytes", "The most a fetch returns.", low=1024)
    max_incremental_fetch_session_cache_slots: int = setting(
        1000, "max.incremental.fetch.session.cache.slots", "Fetch sessions kept.", low=0
    )
    max_request_partition_size_limit: int = setting(
        2000,
        "max.request.partition.size.limit",
        "Partitions that one DescribeTopicPartitions returns.",
        low=1,
    )
    open_files_max: int = setting(1024, "headrace.log.open.files.max", "Segment files kept open at a time.", low=16)

    # From listeners and advertised.listeners. `host`, `port` and what they are told as are of the first listener.
    listeners: tuple[ListenerAddress, ...] = ()
    advertised_listeners: tuple[ListenerAddress, ...] = ()

    # The Kafka keys that somebody gave, as written: DescribeConfigs tells them from defaults.
    given: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            described = setting_of(each)
            value = getattr(self, each.name)
            if described and (problem := described.problem(value)):
                raise refuse("", described.key, format_value(value), problem, described.limit())
        if not self.log_dirs or not all(self.log_dirs):
            raise OperatorError("log.dirs= names no directory; give at least one")
        if len(set(self.log_dirs)) != len(self.log_dirs):
            raise OperatorError(f"log.dirs={','.join(self.log_dirs)} names a directory twice; name each once")
        check_listeners(self.served(), self.advertised_listeners, self.inter_broker_listener_name)
        # Whoever compares with these needs no case of its own for "no bound".
        for name in ("connections_max_idle_ms", "queued_max_request_bytes"):
            if getattr(self, name) == -1:
                object.__setattr__(self, name, LONG_MAX)

    @classmethod
    def from_properties(cls, text: str, source: str) -> tuple[Self, list[str]]:
        """Settings from the text of a `server.properties`, with warnings for people; `source` is its name."""
        return cls.from_sources(properties=text, source=source)

    @classmethod
    def from_sources(
        cls,
        *,
        properties: str = "",
        source: str = "server.properties",
        environ: Mapping[str, str] | None = None,
        flags: Iterable[GivenSetting] = (),
        values: Mapping[str, Any] | None = None,
    ) -> tuple[Self, list[str]]:
        """Settings from everywhere: `values` (by field name) over flags over environment over the file."""
        known = (*known_keys(dataclasses.fields(cls)), *CLUSTER_KEYS)
        variables, warnings = environment_source(environ or {}, known)
        return cls._read([list(flags), variables, properties_source(properties, source)], values or {}, {}, warnings)

    def altered(self, changes: Mapping[str, str], source: str) -> tuple[Self, list[str]]:
        """These settings with some Kafka keys changed, as a dynamic broker setting does it."""
        flags = [GivenSetting(key, text, source) for key, text in changes.items()]
        unchanged = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return self._read([flags], {}, unchanged, [])

    @classmethod
    def _read(
        cls,
        sources: Sequence[Sequence[GivenSetting]],
        values: Mapping[str, Any],
        base: Mapping[str, Any],
        warnings: list[str],
    ) -> tuple[Self, list[str]]:
        reading = read(dataclasses.fields(cls), sources)
        if reading.without_meaning:
            _log.debug("accepted, without meaning on one embedded node: %s", ", ".join(reading.without_meaning))
        given = {**base.get("given", {}), **reading.given}
        return cls(**{**base, **reading.values, **values, "given": given}), warnings + reading.warnings

    @classmethod
    def describe(cls) -> list[tuple[str, str, str, str]]:
        """The reference: (key, type, default, help) of every setting."""
        return describe_fields(dataclasses.fields(cls))

    def served(self) -> tuple[ListenerAddress, ...]:
        """The listeners for clients; at least one."""
        first, *others = self.listeners or (ListenerAddress(PLAINTEXT, "", 0),)
        return (first._replace(host=self.host, port=self.port), *others)

    def told(self, bound_ports: Mapping[str, int]) -> tuple[ListenerAddress, ...]:
        """What clients are told of them, with the ports that they are bound to. The host of one that listens on every
        interface is known only when a client has come in by it."""
        served = self.served()
        shown = {each.name: each for each in self.advertised_listeners or [each._replace(port=0) for each in served]}
        if self.advertised_host or self.advertised_port:
            first = shown.get(served[0].name, served[0])
            host, port = self.advertised_host or first.host, self.advertised_port or first.port
            shown[first.name] = first._replace(host=host, port=port)
        return tuple(
            [
                ListenerAddress(name, shown[name].host or host, shown[name].port or bound_ports[name])
                for name, host, _ in served
                if name in shown
            ]
        )

    def advertised(self, bound_ports: Mapping[str, int], local_host: str = "") -> tuple[str, int]:
        """The first address that clients are told. `local_host` is the address that a client reached us at: the one
        sure answer when every interface is listened on."""
        told = self.told(bound_ports)[0]
        return (local_host if told.host in WILDCARDS and local_host else told.host), told.port

    @property
    def inter_broker_listener(self) -> str:
        """By which name other brokers look for this one."""
        names = [each.name for each in self.served()]
        return self.inter_broker_listener_name or (PLAINTEXT if PLAINTEXT in names else names[0])
