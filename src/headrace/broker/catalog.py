"""What the broker knows beyond its logs: topics, cluster id, dynamic settings, producer ids handed out.

All of it is one journal, `headrace-topics.journal`, with a copy in each log directory. A change is on
disk before it is in memory, and in memory before anyone is answered. A journal of which a part is lost is
in doubt: it is not written before `heal` was told what the partition directories hold. Nothing here creates
or deletes a log.
"""

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.broker.journal import NOTHING_READ, MirroredJournal
from headrace.broker.journal_format import Entry
from headrace.core.errors import OperatorError
from headrace.core.files import Disk

JOURNAL_NAME = "headrace-topics.journal"
PRODUCER_IDS_SKIPPED = 1 << 32  # where it is not known which were handed out: more than any broker hands out
DEAD_LINES_MAX = 1000  # while running; at start, dead lines are dropped as soon as they outnumber the live ones

CLUSTER_WIDE = "cluster"  # the two layers of dynamic broker settings
THIS_BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    name: str
    id: uuid.UUID
    partition_count: int
    overrides: Mapping[str, str] = field(default_factory=dict)

    def entry(self) -> Entry:
        return {
            "op": "topic",
            "name": self.name,
            "id": self.id.hex,
            "partitions": self.partition_count,
            "config": dict(self.overrides),
        }


class Catalog:
    def __init__(self, directories: Sequence[str], disk: Disk) -> None:
        self.cluster_id = ""
        self.topics: dict[str, TopicEntry] = {}
        self.deleted: dict[uuid.UUID, str] = {}  # names of topics of which something may be left; see `delete_topics`
        self.broker_settings: dict[str, dict[str, str]] = {CLUSTER_WIDE: {}, THIS_BROKER: {}}
        self.producer_ids_end = 0  # the first producer id that no block holds yet
        self.healed_at = NOTHING_READ - 1  # the change up to which some may have been lost
        self._journal = MirroredJournal(directories, JOURNAL_NAME, disk, self._live)

    @classmethod
    def open(cls, directories: Sequence[str], disk: Disk, cluster_id: str = "") -> Self:
        """Reads the newest copy and puts the others right. `cluster_id` counts if the journal is new."""
        catalog = cls(directories, disk)
        for entry in catalog._journal.load():
            catalog._apply(entry)
        if catalog.doubt:
            catalog.cluster_id = catalog.cluster_id or cluster_id or new_cluster_id()
            return catalog
        if not catalog.cluster_id:
            catalog._record([{"op": "cluster", "id": cluster_id or new_cluster_id()}])
        if catalog._journal.line_count > 2 * len(catalog._live()):
            catalog._journal.compact()
        else:
            catalog._journal.repair()
        return catalog

    def join(self, cluster_id: str) -> None:
        """This broker is one of that cluster from now on."""
        if self.cluster_id != cluster_id:
            self._record([{"op": "cluster", "id": cluster_id}])

    def put_topics(self, topics: Iterable[TopicEntry]) -> None:
        """New topics, or new partition counts and settings of old ones, with one fsync."""
        self._record([topic.entry() for topic in topics])

    def delete_topics(self, names: Iterable[str]) -> None:
        """From here on they do not come back, with one fsync. Their ids are kept until `deletion_finished`, so that a
        start after a crash knows whose directories and offsets it is to remove."""
        self._record([{"op": "delete", "name": name, "id": self.topics[name].id.hex} for name in names])

    def deletion_finished(self, topic_id: uuid.UUID) -> None:
        """Nothing is left of it. The journal forgets it when it is next written again: to look once more is no harm."""
        self.deleted.pop(topic_id, None)

    @property
    def is_unused(self) -> bool:
        """Whether there was never a topic in it: its first line, the cluster's id, is all that was ever written."""
        return not self.topics and self._journal.sequence <= 1

    def put_broker_settings(self, layer: str, settings: Mapping[str, str]) -> None:
        self._record([{"op": "broker", "layer": layer, "config": dict(settings)}])

    def take_producer_ids(self, count: int) -> range:
        """A block of ids that nobody else gets, over restarts too."""
        first = self.producer_ids_end
        self._record([{"op": "producer_ids", "end": first + count}])
        return range(first, first + count)

    @property
    def directories_behind(self) -> set[str]:
        """Directories that missed changes before this start: they were away, or are new."""
        return set(self._journal.behind)

    @property
    def doubt(self) -> str:
        """Which file lost what, if no copy has all that was ever written; empty if one has."""
        return self._journal.doubt

    def doubts(self, directory: str) -> bool:
        """Whether topics may be unknown here only because a journal was damaged: now, or while the directory was
        away."""
        journal = self._journal
        last = journal.behind.get(directory)
        was_away = last is not None and last <= self.healed_at
        return bool(journal.doubt) or directory in journal.doubtful or was_away

    def heal(self, topics: Iterable[TopicEntry], gone: Iterable[str] = ()) -> None:
        """Topics as their directories show them, in all copies with one change; the end of a doubt."""
        healed: list[Entry] = [topic.entry() for topic in topics]
        healed += [{"op": "delete", "name": name} for name in gone]
        healed.append({"op": "producer_ids", "end": self.producer_ids_end + PRODUCER_IDS_SKIPPED})
        if self.doubt:
            healed.append({"op": "healed", "at": self._journal.sequence})
        for entry in healed:
            self._apply(entry)
        self._journal.restart()

    def close(self) -> None:
        self._journal.close()

    def _record(self, entries: list[Entry]) -> None:
        if not entries:
            return
        self._journal.append(entries)
        for entry in entries:
            self._apply(entry)
        live_max = max(DEAD_LINES_MAX, len(self.topics))
        if self._journal.line_count > len(self.topics) + live_max:
            self._journal.compact()

    def _apply(self, entry: Mapping[str, Any]) -> None:
        match entry.get("op"):
            case "topic":
                topic_id = uuid.UUID(hex=entry["id"])
                self.topics[entry["name"]] = TopicEntry(
                    name=entry["name"],
                    id=topic_id,
                    partition_count=entry["partitions"],
                    overrides=entry["config"],
                )
            case "delete":
                self.topics.pop(entry["name"], None)
                if "id" in entry:
                    self.deleted[uuid.UUID(hex=entry["id"])] = entry["name"]
            case "broker":
                self.broker_settings[entry["layer"]] = dict(entry["config"])
            case "producer_ids":
                self.producer_ids_end = entry["end"]
            case "cluster":
                self.cluster_id = entry["id"]
            case "healed":
                self.healed_at = entry["at"]
            case operation:
                remedy = "a newer Headrace wrote it: run that one"
                raise OperatorError(f"{JOURNAL_NAME}: operation {operation!r} is not known; {remedy}")

    def _live(self) -> list[Entry]:
        entries: list[Entry] = [{"op": "cluster", "id": self.cluster_id}] if self.cluster_id else []
        # Before the topics: one of the same name may have been made since.
        entries += [{"op": "delete", "name": name, "id": each.hex} for each, name in self.deleted.items()]
        entries += [topic.entry() for topic in self.topics.values()]
        for layer, settings in self.broker_settings.items():
            if settings:
                entries.append({"op": "broker", "layer": layer, "config": settings})
        if self.producer_ids_end:
            entries.append({"op": "producer_ids", "end": self.producer_ids_end})
        if self.healed_at >= 0:
            entries.append({"op": "healed", "at": self.healed_at})
        return entries


def new_cluster_id() -> str:
    """22 characters, as Kafka makes them; a dash in front would look like an option to its tools."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
