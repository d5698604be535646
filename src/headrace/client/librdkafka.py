"""Java's client settings as librdkafka knows them.

Most have the same name in both. Here are those that do not, those that mean nothing outside a JVM, and the ones
whose default differs in a way that a user of Kafka's tools would notice. A setting that
neither knows gets a warning.
"""

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from headrace.client.errors import ClientError

Client = TypeVar("Client")

# Java's name: librdkafka's.
_RENAMED = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "group.consumer.assignor": "group.remote.assignor",
}
# Of a JVM, or of how the Java client is built inside: nothing here could follow them.
_JAVA_ONLY = frozenset(
    {
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "max.block.ms",
        "default.api.timeout.ms",
        "max.poll.records",
        "exclude.internal.topics",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "auto.include.jmx.reporter",
        "enable.metrics.push",
        "interceptor.classes",
        "security.providers",
        "send.buffer.bytes",
        "receive.buffer.bytes",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
    }
)
_INLINE = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
    "StickyAssignor": "roundrobin",  # librdkafka has no eager sticky one
}
METADATA_MS_MAX = 3_600_000  # librdkafka's bound
_JAAS = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')
_UNKNOWN = re.compile(r'No such configuration property: "([^"]*)"')


def translated(properties: Mapping[str, str]) -> dict[str, Any]:
    """Settings for librdkafka; what is only Java's is left out."""
    found: dict[str, Any] = {}
    for key, value in properties.items():
        if key == "buffer.memory":
            found["queue.buffering.max.kbytes"] = max(1, _number(key, value) // 1024)
        elif key in ("send.buffer.bytes", "receive.buffer.bytes"):
            found[_RENAMED[key]] = max(0, _number(key, value))  # Java's -1, the system's default, is 0 here
        elif key == "metadata.max.age.ms":
            # librdkafka's setting of that name is only how long what it knows stays true.
            found["topic.metadata.refresh.interval.ms"] = min(max(1, _number(key, value)), METADATA_MS_MAX)
        elif key == "partition.assignment.strategy":
            names = [each.strip().rpartition(".")[2] for each in value.split(",")]
            found[key] = ",".join(_ASSIGNORS.get(name, name) for name in names)
        elif key == "sasl.jaas.config":
            found |= jaas_credentials(value)
        elif key == "ssl.endpoint.identification.algorithm":
            found[key] = value or "none"
        elif key == "partitioner.class":
            found["partitioner"] = _partitioner(value)
        elif key.startswith(("ssl.truststore.", "ssl.keystore.")):
            continue
        elif key not in _JAVA_ONLY:
            found[_RENAMED.get(key, key)] = value
    return found | _stores(properties)


def jaas_credentials(text: str) -> dict[str, str]:
    """User and password of a `PlainLoginModule` or `ScramLoginModule` line; other modules are refused."""
    module = text.split(None, 1)[0] if text.split() else ""
    if not module.endswith(("PlainLoginModule", "ScramLoginModule")):
        raise ClientError(
            f"sasl.jaas.config={module or text!r}: only PlainLoginModule and ScramLoginModule are understood"
        )
    held = {name: re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in _JAAS.findall(text)}
    if "username" not in held or "password" not in held:
        raise ClientError('sasl.jaas.config: must hold username="…" and password="…"')
    return {"sasl.username": held["username"], "sasl.password": held["password"]}


def _stores(properties: Mapping[str, str]) -> dict[str, str]:
    """Certificates and keys: PEM as it is, and what Java keeps in stores of its own."""
    found = {}
    trust = properties.get("ssl.truststore.location")
    if trust:
        from headrace.client.key_stores import PEM, kind_of, trusted

        if kind_of(trust, "ssl.truststore.location") == PEM:
            found["ssl.ca.location"] = trust
        else:
            password = properties.get("ssl.truststore.password")
            found["ssl.ca.pem"] = trusted(trust, password, "ssl.truststore.location")
    for key, name in _INLINE.items():
        if key in properties:
            from headrace.client.key_stores import tidied

            found[name] = tidied(properties[key])
    own = properties.get("ssl.keystore.location")
    if own:
        found |= _own_store(own, properties)
    return found


def _own_store(path: str, properties: Mapping[str, str]) -> dict[str, str]:
    from headrace.client.key_stores import JKS, PEM, kind_of

    kind = kind_of(path, "ssl.keystore.location")
    if kind == JKS:
        raise ClientError(
            f"ssl.keystore.location={path}: a key in JKS cannot be read; turn it into PKCS12 with "
            "`keytool -importkeystore -deststoretype PKCS12`"
        )
    if kind == PEM:
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    return {"ssl.keystore.location": path, "ssl.keystore.password": properties.get("ssl.keystore.password", "")}


def _partitioner(value: str) -> str:
    name = value.rpartition(".")[2]
    known = {"RoundRobinPartitioner": "random", "DefaultPartitioner": "murmur2_random"}
    if name not in known:
        raise ClientError(f"partitioner.class={value}: Java classes cannot be loaded; known are {', '.join(known)}")
    return known[name]


def _number(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ClientError(f"{key}={value}: must be a number") from None


def make_client(name: str, make: Callable[[dict[str, Any]], Client], settings: dict[str, Any]) -> Client:
    """Makes a client of librdkafka; settings that it does not know are named on stderr and left out, as Java does."""
    from confluent_kafka import KafkaException

    settings = dict(settings)
    while True:
        try:
            return make(settings)
        except KafkaException as error:
            why = error.args[0].str() if error.args else str(error)
            unknown = _UNKNOWN.search(why)
            if unknown is None or unknown[1] not in settings:
                raise ClientError(f"{name}: {why}") from error
            print(f"{name}: warning: the setting {unknown[1]} is not known here and has no effect", file=sys.stderr)
            del settings[unknown[1]]
        except TypeError as error:
            raise ClientError(f"{name}: {error}") from error


def producer_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """What a producer is made with: Java's defaults where librdkafka's would put records elsewhere or twice."""
    settings: dict[str, Any] = {"partitioner": "murmur2_random", "log_level": 0, **translated(properties)}
    waits_for_all = str(settings.get("acks", "all")) in ("all", "-1")
    if waits_for_all and int(settings.get("retries", 1)) > 0 and not {*_SAFE} & {*settings}:
        settings["enable.idempotence"] = "true"
    return settings


_SAFE = ("enable.idempotence", "max.in.flight", "max.in.flight.requests.per.connection")


def consumer_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        "isolation.level": "read_uncommitted",
        "allow.auto.create.topics": "true",
        "log_level": 0,
        **translated(properties),
    }
