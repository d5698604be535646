"""Committing, fetching and deleting offsets, once the group has said whether it may be done.

A thin layer between the groups, which know who may do what, and the store: it writes to the journal, changes the store
when that is done, and answers. `answer` is called exactly once, with a body in kio's field names, or with the codes of
what was committed. Topics have names here; ids are the handlers' business.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from headrace.coordinator.journal_errors import response_code
from headrace.coordinator.offsets.store import Entry, OffsetStore
from headrace.coordinator.shard_journal import ShardJournal
from headrace.coordinator.topic_view import TopicPartition
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    GROUP_SUBSCRIBED_TO_TOPIC,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    UNSTABLE_OFFSET_COMMIT,
)

Body = Mapping[str, object]
Answer = Callable[[Body], None]
AnswerCodes = Callable[[list[int]], None]
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
OFFSETS_PER_STEP: Final = 32


class _Commit:
    """Offsets on their way to the journal: called when they are written, or could not be."""

    __slots__ = ("_answer", "_codes", "_fitting", "_group_id", "_producer_id", "_store")

    def __init__(
        self,
        store: OffsetStore,
        group_id: str,
        fitting: Sequence[Entry],
        codes: list[int],
        producer_id: int | None,
        answer: AnswerCodes,
    ) -> None:
        self._store = store
        self._group_id = group_id
        self._fitting = fitting
        self._codes = codes
        self._producer_id = producer_id
        self._answer = answer

    def __call__(self, error: Exception | None) -> None:
        store, group_id = self._store, self._group_id
        store.written(group_id, self._fitting)
        if error is not None:
            code = response_code(error)
            self._answer([code] * len(self._codes))
            return
        if self._producer_id is not None:
            store.pend(self._producer_id, group_id, self._fitting)
        else:
            for topic, partition, committed in self._fitting:
                store.apply(group_id, topic, partition, committed)
        self._answer(self._codes)


class OffsetRequests:
    def __init__(self, journal: ShardJournal, store: OffsetStore, metadata_length_max: int) -> None:
        self._journal = journal
        self._store = store
        self._metadata_length_max = metadata_length_max  # offset.metadata.max.bytes

    def commit(
        self,
        group_id: str,
        entries: Sequence[Entry],
        answer: AnswerCodes,
        *,
        producer: tuple[int, int] | None = None,
        refusal: int = NONE,
    ) -> None:
        """Answers with a code for each of the entries.

        `refusal`: why the group does not want them; every partition is then answered with it.

        `producer` (id, epoch): as a part of its transaction; they count when it is committed.
        """
        if refusal:
            answer([refusal] * len(entries))
            return
        codes = [NONE if self._fits(entry[2].metadata) else OFFSET_METADATA_TOO_LARGE for entry in entries]
        fitting = entries
        if OFFSET_METADATA_TOO_LARGE in codes:
            fitting = [entry for entry, code in zip(entries, codes, strict=True) if code == NONE]
        if not fitting:
            answer(codes)
            return
        try:
            records = self._store.commit_records(group_id, fitting)
        except PeerError as error:  # a name that no record can hold
            answer([error.code] * len(entries))
            return
        self._store.writing(group_id, fitting)
        producer_id = None if producer is None else producer[0]
        commit = _Commit(self._store, group_id, fitting, codes, producer_id, answer)
        self._journal.append(records, commit, producer=producer)

    def fetch(
        self, group_id: str, wanted: Iterable[tuple[str, Sequence[int]]] | None, *, require_stable: bool
    ) -> Generator[None, None, Body]:
        """The group's part of the answer, in steps. `wanted` None: every partition that has a committed offset."""
        if wanted is None:
            wanted = yield from self._committed(group_id)
        topics = []
        for topic, partitions in wanted:
            fetched = []
            for at, each in enumerate(partitions):
                fetched.append(self._fetched(group_id, topic, each, require_stable))
                if at % OFFSETS_PER_STEP == 0:
                    yield
            topics.append({"name": topic, "partitions": fetched})
        return {"group_id": group_id, "error_code": NONE, "topics": topics}

    def _committed(self, group_id: str) -> Generator[None, None, list[tuple[str, list[int]]]]:
        """The partitions that have an offset, in order."""
        by_topic: dict[str, list[int]] = {}
        for at, (topic, partition) in enumerate(self._store.all(group_id)):
            by_topic.setdefault(topic, []).append(partition)
            if at % OFFSETS_PER_STEP == 0:
                yield
        return [(topic, sorted(partitions)) for topic, partitions in sorted(by_topic.items())]

    def delete(
        self, group_id: str, partitions: Sequence[TopicPartition], subscribed: Callable[[str], bool], answer: Answer
    ) -> None:
        """A topic that a member of the group is subscribed to keeps its offsets."""
        kept = {topic for topic, _ in partitions if subscribed(topic)}
        doomed = [each for each in partitions if each[0] not in kept]
        codes = [(topic, index, GROUP_SUBSCRIBED_TO_TOPIC if topic in kept else NONE) for topic, index in partitions]
        records = self._store.delete_records(group_id, doomed)

        def done(error: Exception | None) -> None:
            if error is not None:
                answer({"error_code": response_code(error), "topics": []})
                return
            self._store.forget(group_id, doomed)
            answer({"error_code": NONE, **by_topic(codes)})

        if records:
            self._journal.append(records, done)
        else:
            answer({"error_code": NONE, **by_topic(codes)})

    def _fits(self, metadata: str) -> bool:
        """Kafka's limit is called bytes and counts UTF-16 units."""
        limit = self._metadata_length_max
        if len(metadata) * 2 <= limit:
            return True
        return len(metadata) <= limit and len(metadata.encode("utf-16-le", "surrogatepass")) // 2 <= limit

    def _fetched(self, group_id: str, topic: str, partition: int, require_stable: bool) -> Body:
        unstable = require_stable and self._store.has_pending(group_id, topic, partition)
        committed = None if unstable else self._store.get(group_id, topic, partition)
        return {
            "partition_index": partition,
            "committed_offset": NO_OFFSET if committed is None else committed.offset,
            "committed_leader_epoch": NO_EPOCH if committed is None else committed.leader_epoch,
            "metadata": "" if committed is None else committed.metadata,
            "error_code": UNSTABLE_OFFSET_COMMIT if unstable else NONE,
        }


def refused_fetch(group_id: str, code: int) -> Body:
    """A group that does not let itself be looked at: no topics, and why."""
    return {"group_id": group_id, "error_code": code, "topics": []}


def refused_delete(code: int) -> Body:
    return {"error_code": code, "topics": []}


def by_topic(codes: Iterable[tuple[str, int, int]]) -> dict[str, Any]:
    """Partitions of the same topic that follow one another are answered together."""
    topics: list[dict[str, Any]] = []
    add_by_topic(topics, codes)
    return {"topics": topics}


def add_by_topic(topics: list[dict[str, Any]], codes: Iterable[tuple[str, int, int]]) -> None:
    """The same, to what was answered before."""
    for topic, partition, code in codes:
        if not topics or topics[-1]["name"] != topic:
            topics.append({"name": topic, "partitions": []})
        topics[-1]["partitions"].append({"partition_index": partition, "error_code": code})
