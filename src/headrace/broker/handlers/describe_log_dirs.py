"""DescribeLogDirs: the log directories, and which partitions take how many bytes there.

v2 is flexible, v3 adds an error code of its own, v4 the size of the disk, v5 whether a directory is
cordoned, which none is here. A directory that is offline is there with KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Request
from headrace.broker.rights import DESCRIBE_CLUSTER
from headrace.broker.steps import FEW, ITEMS_PER_STEP, Steps, stepped, up_to_few
from headrace.broker.topics import partition_count
from headrace.log.store import LogDirectory
from headrace.protocol.error_codes import KAFKA_STORAGE_ERROR, NONE
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import DirectoryParts

PARTITIONS_PER_STEP = 100

Sizes = dict[str, list[Mapping[str, object]]]  # partitions by topic


def handle(parts: DirectoryParts, request: Request) -> Body | Steps:
    refused = parts.rights.refusal(request.session, DESCRIBE_CLUSTER)
    if refused:
        return {"error_code": refused, "results": []}
    named = up_to_few(len(topic.partitions) for topic in request.body.topics or ())
    return stepped(_answer(parts, request), max(named, partition_count(parts.topics.by_name.values(), FEW)))


def _answer(parts: DirectoryParts, request: Request) -> Generator[None, None, Body]:
    asked = None
    if request.body.topics is not None:
        asked = yield from _existing(parts, request.body.topics)
    found: dict[str, Sizes] = {directory.path: {} for directory in parts.store.directories}
    for topic in list(parts.topics.all()):
        for partition in topic.partitions:
            if partition.index % PARTITIONS_PER_STEP == 0:
                yield
            log = partition.local
            if log is None or (asked is not None and (topic.name, partition.index) not in asked):
                continue
            sizes = {"partition_index": partition.index, "partition_size": log.size_bytes}
            entry = {**sizes, "offset_lag": 0, "is_future_key": False}
            found[log.directory.path].setdefault(topic.name, []).append(entry)
    results = [_directory(directory, found[directory.path]) for directory in parts.store.directories]
    return {"error_code": NONE, "results": results}


def _existing(parts: DirectoryParts, topics: Iterable[Any]) -> Generator[None, None, set[tuple[str, int]]]:
    """The partitions of a request that there are: it may name a great many more."""
    found: set[tuple[str, int]] = set()
    for asked in topics:
        topic = parts.topics.get(asked.topic)
        count = 0 if topic is None else len(topic.partitions)
        for at, index in enumerate(asked.partitions):
            if 0 <= index < count:
                found.add((asked.topic, index))
            if at % ITEMS_PER_STEP == 0:
                yield
    return found


def _directory(directory: LogDirectory, topics: Sizes) -> Mapping[str, object]:
    if directory.error is not None:
        return {"error_code": KAFKA_STORAGE_ERROR, "log_dir": directory.path, "topics": []}
    total_bytes, usable_bytes = directory.usable()
    return {
        "error_code": NONE,
        "log_dir": directory.path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
    }


API = Api(key=35, name="DescribeLogDirs", low=1, high=5, handle=handle)
