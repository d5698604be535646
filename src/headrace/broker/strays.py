"""Logs that the catalog does not know, found at start.

Without any topic in the catalog they are adopted: the data directory is Kafka's own, or the journal was
lost. With topics in it, a stray log is of a topic that was deleted while its directory was away; it is
set aside under a name that ends in `-stray`, as Kafka does it, and never deleted: only a person can tell
that it is not needed.
"""

import logging
import os
import uuid
from collections.abc import Iterable

from headrace.broker.catalog import Catalog, TopicEntry
from headrace.broker.topic_names import is_legal
from headrace.log import checkpoints
from headrace.log.partition_log import PartitionLog
from headrace.log.store import LogStore

STRAY_SUFFIX = "-stray"

_log = logging.getLogger(__name__)


def sort_out(catalog: Catalog, store: LogStore) -> list[TopicEntry]:
    """Sets strays aside, and returns the topics to adopt."""
    if not catalog.topics:
        return _adopt(store)
    behind = catalog.directories_behind
    for log in list(store.logs.values()):
        known = catalog.topics.get(log.topic)
        # A topic of the same name may have been made again meanwhile. Only a directory that missed changes
        # can hold the old one's logs: reading every log's id at every start would cost much for nothing.
        if (
            known is None
            or log.index >= known.partition_count
            or (log.directory.path in behind and topic_id_of(log, store) not in (None, known.id))
        ):
            _set_aside(log, store)
    return []


def topic_id_of(log: PartitionLog, store: LogStore) -> uuid.UUID | None:
    path = os.path.join(log.path, checkpoints.PARTITION_METADATA_FILE)
    data = store.files.disk.read_file(path)
    return None if data is None else checkpoints.decode_partition_metadata(checkpoints.text_of(data, path), path)


def _adopt(store: LogStore) -> list[TopicEntry]:
    counts: dict[str, int] = {}
    ids: dict[str, uuid.UUID] = {}
    for log in _by_name(store.logs.values()):
        if not is_legal(log.topic):
            continue
        counts[log.topic] = max(counts.get(log.topic, 0), log.index + 1)
        if log.topic not in ids and (found := topic_id_of(log, store)) is not None:
            ids[log.topic] = found
    for name, count in counts.items():
        _log.warning("topic %s with %d partitions was not in the catalog; its logs are adopted", name, count)
    return [
        TopicEntry(name=name, id=ids.get(name) or uuid.uuid4(), partition_count=count) for name, count in counts.items()
    ]


def _by_name(logs: Iterable[PartitionLog]) -> list[PartitionLog]:
    return sorted(logs, key=lambda log: (log.topic, log.index))


def _set_aside(log: PartitionLog, store: LogStore) -> None:
    aside = f"{log.path[: -len(log.name)]}{log.topic[:150]}-{log.index}.{uuid.uuid4().hex}{STRAY_SUFFIX}"
    del store.logs[log.topic, log.index]
    log.directory.log_count -= 1
    for segment in log.segments:
        segment.forget_files()
    try:
        store.files.disk.rename(log.path, aside)
    except OSError as error:
        _log.error("%s is of no topic here and could not be set aside: %s", log.path, error)
        return
    _log.warning("%s is of no topic here; set aside as %s: delete it if it is not needed", log.path, aside)
