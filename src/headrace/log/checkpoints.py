"""The small text files of a log directory, in Kafka's formats: text in, values out, and back.

Offset checkpoints (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`replication-offset-checkpoint`), `partition.metadata` and `meta.properties`. Nothing here touches a disk. A
file that cannot be read is never taken for an empty one: that would silently bring back deleted records.
"""

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from headrace.core.errors import OperatorError

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"

_REMEDIES = {
    RECOVERY_POINT_FILE: "delete it: every log is then checked from its start, once",
    LOG_START_FILE: "restore it from a backup, or delete it: what DeleteRecords removed may then come back",
    HIGH_WATERMARK_FILE: "delete it: it is written again from the logs",
    LEADER_EPOCH_FILE: "delete it: it is written again from the log's batches",
    PARTITION_METADATA_FILE: "write the topic's id into it, as in the files of the topic's other partitions",
    META_PROPERTIES_FILE: "restore it from a backup, or copy cluster.id and node.id from another directory",
}
_VERSION = 0
_META_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    cluster_id: str
    node_id: int
    directory_id: UUID | None = None


def text_of(data: bytes, file: str) -> str:
    """What a file says, if it is text at all. `file` is the path that a complaint names."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        what = f"byte {error.start} of {len(data)}, 0x{data[error.start]:02x}, is not text"
        raise OperatorError(f"{file}: {what}; {_remedy(file)}") from None


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> str:
    return encode_lines([f"{topic} {index} {offset}" for (topic, index), offset in offsets.items()])


def decode_offsets(text: str, file: str) -> dict[tuple[str, int], int]:
    """Offset by (topic, partition). `file` is the path that a complaint names."""
    offsets = {}
    for number, line in decode_lines(text, file):
        fields = line.split()
        if len(fields) != 3:
            raise malformed(file, number, line, "`topic partition offset`")
        index, offset = (_integer(field, file, number, line) for field in fields[1:])
        if index < 0 or offset < 0:
            raise malformed(file, number, line, "a partition and an offset from 0 up")
        offsets[fields[0], index] = offset
    return offsets


def encode_partition_metadata(topic_id: UUID) -> str:
    return f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}"  # Kafka ends it without a line feed


def decode_partition_metadata(text: str, file: str) -> UUID:
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, separator, value = line.partition(":")
        if not separator:
            raise malformed(file, number, line, "`name: value`")
        values[name.strip()] = number, line, value.strip()
    number, line, version = values.get("version", (1, "", ""))
    if version != str(_VERSION):
        raise malformed(file, number, line, f"`version: {_VERSION}`")
    number, line, topic_id = values.get("topic_id", (2, "", ""))
    return _uuid(topic_id, file, number, line)


def encode_meta_properties(properties: MetaProperties) -> str:
    lines = [
        f"version={_META_VERSION}",
        f"cluster.id={properties.cluster_id}",
        f"node.id={properties.node_id}",
    ]
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_text(properties.directory_id)}")
    return "\n".join(lines) + "\n"


def decode_meta_properties(text: str, file: str) -> MetaProperties:
    """Version 1 (KRaft) and 0, which called the node's id `broker.id`."""
    values = {}
    number = 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, separator, value = stripped.partition("=")
        if not separator:
            raise malformed(file, number, line, "`name=value`")
        values[name.strip()] = (
            number,
            line,
            value.strip().replace("\\", ""),
        )  # Java escapes = and : in a value
    missing = number + 1, "", ""
    at, line, version = values.get("version", (0, "", "0"))
    if version not in ("0", str(_META_VERSION)):
        raise malformed(file, at, line, f"`version={_META_VERSION}`")
    at, line, cluster_id = values.get("cluster.id", missing)
    if not cluster_id:
        raise malformed(file, at, line, "`cluster.id=…`")
    at, line, node_id = values.get("broker.id" if version == "0" else "node.id", missing)
    node = _integer(node_id, file, at, line or "no node.id")
    directory_id = None
    if "directory.id" in values:
        at, line, directory = values["directory.id"]
        directory_id = _uuid(directory, file, at, line)
    return MetaProperties(cluster_id=cluster_id, node_id=node, directory_id=directory_id)


def encode_lines(lines: list[str]) -> str:
    """Kafka's checkpoint format: version, count, one entry per line."""
    return "\n".join([str(_VERSION), str(len(lines)), *lines]) + "\n"


def decode_lines(text: str, file: str) -> Iterator[tuple[int, str]]:
    """The numbered entries of a checkpoint. An empty file has none: Kafka makes it before its first write."""
    lines = text.splitlines()
    if not lines:
        return
    if lines[0].strip() != str(_VERSION):
        raise malformed(file, 1, lines[0], f"version {_VERSION}")
    if len(lines) == 1:
        raise malformed(file, 2, "", "the number of entries")
    count = _integer(lines[1], file, 2, lines[1])
    if count != len(lines) - 2:
        raise malformed(file, 2, lines[1], f"the number of entries that follow, {len(lines) - 2}")
    yield from enumerate(lines[2:], 3)


def uuid_text(value: UUID) -> str:
    """Kafka's form of an id: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """The inverse of `uuid_text`; ValueError if it is not one."""
    if len(text) != 22:
        raise ValueError(f"{text!r} has {len(text)} characters; an id has 22")
    value = UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    if uuid_text(value) != text:
        raise ValueError(f"{text!r} ends in bits that no id has")
    return value


def malformed(file: str, number: int, line: str, expected: str) -> OperatorError:
    return OperatorError(f"{file}, line {number}: {line[:100]!r} is not {expected}; {_remedy(file)}")


def _remedy(file: str) -> str:
    return _REMEDIES.get(os.path.basename(file), "restore it from a backup")


def _integer(text: str, file: str, number: int, line: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise malformed(file, number, line, "a number where one belongs") from None


def _uuid(text: str, file: str, number: int, line: str) -> UUID:
    try:
        return uuid_from_text(text)
    except ValueError:
        raise malformed(file, number, line, "an id of 22 base64 characters") from None
