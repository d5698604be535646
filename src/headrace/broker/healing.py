"""Which topics there are, by the partition directories: what completes a catalog whose journal lost a part.

A topic is created in the journal before its directories, and its directories are gone before it is deleted there, so
a directory that exists is of a topic that exists. Its `partition.metadata` has the topic's id. A topic's own settings
are nowhere else: an adopted topic therefore keeps everything until somebody sets its retention again, and an internal
one gets the settings that it is made with. This module decides; it reads and writes nothing.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.broker.catalog import TopicEntry
from headrace.broker.topic_config import internal_overrides
from headrace.coordinator.placing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.core.settings.broker import BrokerSettings

KEPT_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}


class FoundLog(NamedTuple):
    topic: str
    partition: int
    id: uuid.UUID | None  # of its topic; not every version of Kafka writes it down


def heal(known: Mapping[str, TopicEntry], found: Iterable[FoundLog], settings: BrokerSettings) -> list[TopicEntry]:
    """The topics that are missing from `known` or are other ones there, as these logs show them."""
    by_topic: dict[str, list[FoundLog]] = defaultdict(list)
    for log in sorted(found, key=lambda each: (each.topic, each.partition)):
        by_topic[log.topic].append(log)
    healed = []
    for name, logs in by_topic.items():
        old = known.get(name)
        entry = _entry(name, logs, old, settings)
        if entry != old:
            healed.append(entry)
    return healed


def _entry(name: str, logs: list[FoundLog], old: TopicEntry | None, settings: BrokerSettings) -> TopicEntry:
    ids = Counter(log.id for log in logs if log.id is not None)
    count = logs[-1].partition + 1
    if old is not None and ids[old.id] >= max(ids.values(), default=0):
        grown = max(count, old.partition_count)
        return TopicEntry(name=name, id=old.id, partition_count=grown, overrides=old.overrides)
    topic_id = ids.most_common(1)[0][0] if ids else uuid.uuid4()
    return TopicEntry(name=name, id=topic_id, partition_count=count, overrides=_overrides(name, settings))


def _overrides(name: str, settings: BrokerSettings) -> dict[str, str]:
    if name == OFFSETS_TOPIC:
        return internal_overrides(settings.offsets_topic_segment_bytes)
    if name == TRANSACTIONS_TOPIC:
        return internal_overrides(settings.transaction_state_log_segment_bytes)
    return dict(KEPT_FOREVER)
