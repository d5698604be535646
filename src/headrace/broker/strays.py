"""Logs that the catalog does not know, found at start.

Without a catalog, or where its journal is damaged, they are adopted: the directories are the best witness that is left
(`healing`). With a whole journal, a log is either what a crash left of a topic that was being deleted, and goes the way
of the rest of it; or its topic was deleted while its directory was away, and it is set aside under a name that ends in
`-stray`, as Kafka does it, and never deleted: only a person can tell that it is not needed.
"""

import logging
import os
import uuid

from headrace.broker.catalog import Catalog, TopicEntry
from headrace.broker.healing import KEPT_FOREVER, FoundLog, heal
from headrace.broker.topic_names import is_legal
from headrace.core.errors import OperatorError
from headrace.core.settings.broker import BrokerSettings
from headrace.log import checkpoints
from headrace.log.partition_log import PartitionLog
from headrace.log.store import LogStore

STRAY_SUFFIX = "-stray"
NAMES_SHOWN_MAX = 20  # of topics, in one line of the log

_log = logging.getLogger(__name__)


def sort_out(catalog: Catalog, store: LogStore, settings: BrokerSettings) -> None:
    """Removes what is left of deleted topics; sets strays aside; adopts what may be unknown only because a journal was
    lost or damaged."""
    is_new = catalog.is_unused
    behind = catalog.directories_behind
    deleted_names = set(catalog.deleted.values())
    in_doubt: list[PartitionLog] = []
    for log in list(store.logs.values()):
        if log.topic in deleted_names and _was_deleted(log, catalog, store):
            if log.directory.path in behind:
                set_aside(log, store)
            else:
                _log.info("%s is of a topic that was deleted: it is removed", log.path)
                store.delete(log)
            continue
        if is_new or catalog.doubts(log.directory.path):
            in_doubt.append(log)
            continue
        known = catalog.topics.get(log.topic)
        # A topic of the same name may have been made again meanwhile. Only a directory that missed changes
        # can hold the old one's logs: reading every log's id at every start would cost much for nothing.
        if (
            known is None
            or log.index >= known.partition_count
            or (log.directory.path in behind and topic_id_of(log, store) not in (None, known.id))
        ):
            set_aside(log, store)
    if in_doubt or catalog.doubt:
        _adopt(in_doubt, catalog, store, settings)


def _was_deleted(log: PartitionLog, catalog: Catalog, store: LogStore) -> bool:
    """By its id: a topic of the same name may have been made since."""
    topic_id = topic_id_of(log, store)
    if topic_id is None:
        return log.topic not in catalog.topics and not catalog.doubts(log.directory.path)
    return topic_id in catalog.deleted


def _adopt(logs: list[PartitionLog], catalog: Catalog, store: LogStore, settings: BrokerSettings) -> None:
    found = [FoundLog(log.topic, log.index, topic_id_of(log, store)) for log in logs if is_legal(log.topic)]
    healed = heal(catalog.topics, found, settings)
    gone: list[str] = []
    if catalog.doubt and store.is_complete:
        held = {topic for topic, _ in store.logs}
        gone = [name for name in catalog.topics if name not in held]
    if not healed and not gone and not catalog.doubt:
        return
    for entry in healed:
        _log.warning("%s", _adoption(entry, catalog.topics.get(entry.name)))
    if catalog.doubt:
        _log.warning(
            "%s; restored from the partition directories: %d topics adopted (%s), %d without a directory taken out"
            " (%s); check the settings of topics and of the broker that were changed since, the file is written again",
            catalog.doubt,
            len(healed),
            _listed([entry.name for entry in healed]),
            len(gone),
            _listed(gone),
        )
    catalog.heal(healed, gone)


def _adoption(entry: TopicEntry, old: TopicEntry | None) -> str:
    if old is not None and old.id == entry.id:
        return (
            f"topic {entry.name}: has {entry.partition_count} partitions by its directories, not {old.partition_count}"
        )
    adopted = f"topic {entry.name}: its {entry.partition_count} partitions are adopted from their directories"
    if entry.overrides.items() >= KEPT_FOREVER.items():
        return f"{adopted}; its own settings are lost, and nothing of it expires until its retention is set again"
    return adopted


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMES_SHOWN_MAX])
    return f"{shown}, …" if len(names) > NAMES_SHOWN_MAX else shown or "none"


def topic_id_of(log: PartitionLog, store: LogStore) -> uuid.UUID | None:
    path = os.path.join(log.path, checkpoints.PARTITION_METADATA_FILE)
    data = store.files.disk.read_file(path)
    if data is None:
        return None
    try:
        return checkpoints.decode_partition_metadata(checkpoints.text_of(data, path), path)
    except OperatorError as error:  # empty, as after a loss of power: the other partitions tell, or the catalog
        _log.warning("a damaged file is ignored: %s", error)
        return None


def set_aside(log: PartitionLog, store: LogStore) -> None:
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
