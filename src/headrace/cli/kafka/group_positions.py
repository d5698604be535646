"""Where a member of a group stands in each partition that it was given, so that all of it is committed.

librdkafka stores a position only behind a record that was read, and commits only what was stored. Kafka's Java
consumer commits its position in every assigned partition, also where nothing has come yet. Without that, a group that
begins at the end forgets where the end was, and misses what is written while it is away.

A position is at first what the group has committed, else what auto.offset.reset says. It is looked up here when the
partition is assigned, and librdkafka begins there. Then it is behind the last record that was shown, and at the end of
a partition behind the markers of transactions, too. What was fetched and not shown never moves it.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

    from headrace.client.offsets import PartitionName

LOOKUP_S_MAX = 5.0  # for each of two questions; without an answer the position is known with the first record
SETTLE_S_MAX = 2.0
_POLL_S = 0.1
_EARLIEST, _LATEST = -2, -1  # as ListOffsets and librdkafka write them
_RESETS = dict.fromkeys(("smallest", "earliest", "beginning"), _EARLIEST) | dict.fromkeys(
    ("largest", "latest", "end"), _LATEST
)
# What a consumer must be made with.
SETTINGS = {"enable.auto.offset.store": False, "enable.partition.eof": True}

Rebalanced = Callable[["Consumer", "list[TopicPartition]"], None]


class GroupPositions:
    """`subscribe`, then `shown(messages)` for whatever has been dealt with. librdkafka commits at its own times."""

    def __init__(self, consumer: "Consumer", settings: Mapping[str, Any]) -> None:
        self._consumer = consumer
        self.commits = str(settings.get("enable.auto.commit", "true")).lower() == "true"
        self.assigned: set[PartitionName] = set()
        self.from_beginning: set[str] = set()  # topics that are newer than the reader: all in them has come since
        self._positions: dict[PartitionName, int] = {}
        self._reset = _RESETS.get(str(settings.get("auto.offset.reset", "latest")).lower())
        self._incremental = (
            str(settings.get("group.protocol")).lower() == "consumer"
            or settings.get("partition.assignment.strategy") == "cooperative-sticky"
        )

    def subscribe(
        self, topics: list[str], on_assign: Rebalanced | None = None, on_revoke: Rebalanced | None = None
    ) -> None:
        def assigned(consumer: "Consumer", partitions: "list[TopicPartition]") -> None:
            self._assign(partitions)
            if on_assign is not None:
                on_assign(consumer, partitions)

        def revoked(consumer: "Consumer", partitions: "list[TopicPartition]") -> None:
            for each in partitions:
                self.assigned.discard((each.topic, each.partition))
                self._positions.pop((each.topic, each.partition), None)
            if on_revoke is not None:
                on_revoke(consumer, partitions)

        # After this librdkafka commits what is stored for the partitions that are taken away.
        self._consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def shown(self, messages: "Iterable[Message]") -> None:
        """Records that were dealt with, and ends of partitions that were reached, in the order in which they came."""
        if not self.commits:
            return
        ends: dict[PartitionName, int] = {}
        for each in messages:
            if each.error() is None:
                ends[_place(each)] = (each.offset() or 0) + 1
            elif is_end(each):
                ends[_place(each)] = each.offset() or 0
        self._store(ends)

    def settle(self) -> None:
        """Steps over the markers behind the last record that was shown, when no further one is wanted.

        The answer that held the record says only that something is behind it; the next one says what.
        """
        from confluent_kafka import TopicPartition

        waiting = set()
        for each in self._consumer.position([TopicPartition(*place) for place in self._positions]):
            place = (each.topic, each.partition)
            _, end = self._consumer.get_watermark_offsets(each, cached=True)
            # Where librdkafka is ahead of this position, a record was taken from it and not shown.
            if each.offset == self._positions[place] < end:
                waiting.add(place)
        deadline = time.monotonic() + SETTLE_S_MAX
        while waiting and time.monotonic() < deadline:
            message = self._consumer.poll(_POLL_S)
            if message is None or _place(message) not in waiting:
                continue
            waiting.remove(_place(message))
            if is_end(message):
                self.shown([message])

    def _assign(self, partitions: "list[TopicPartition]") -> None:
        if not self._incremental:
            self.assigned.clear()
            self._positions.clear()
        self.assigned |= {(each.topic, each.partition) for each in partitions}
        if not partitions:
            return
        starts = self._starts(partitions)
        (self._consumer.incremental_assign if self._incremental else self._consumer.assign)(starts)
        self._store({(each.topic, each.partition): each.offset for each in starts if each.offset >= 0})

    def _starts(self, partitions: "list[TopicPartition]") -> "list[TopicPartition]":
        """The partitions with the offsets to begin at; without one where it could not be learned."""
        from confluent_kafka import KafkaException, TopicPartition

        if not self.commits and not self.from_beginning:
            return partitions
        starts = {(each.topic, each.partition): each for each in partitions}
        with suppress(KafkaException):
            asked = []
            for each in self._consumer.committed(partitions, LOOKUP_S_MAX):
                if each.error is None and each.offset >= 0:
                    starts[each.topic, each.partition] = each
                elif each.error is None and self._reset is not None:
                    when = _EARLIEST if each.topic in self.from_beginning else self._reset
                    asked.append(TopicPartition(each.topic, each.partition, when))
            for each in self._consumer.offsets_for_times(asked, LOOKUP_S_MAX) if asked else ():
                if each.error is None and each.offset >= 0:
                    starts[each.topic, each.partition] = each
        return list(starts.values())

    def _store(self, positions: "Mapping[PartitionName, int]") -> None:
        from confluent_kafka import KafkaException, TopicPartition

        if not self.commits or not positions:
            return
        self._positions.update(positions)
        # A partition may have been taken away meanwhile: its next owner reads these records again.
        with suppress(KafkaException):
            self._consumer.store_offsets(offsets=[TopicPartition(*place, at) for place, at in positions.items()])


def _place(message: "Message") -> "PartitionName":
    return message.topic() or "", message.partition() or 0


def is_end(message: "Message") -> bool:
    """Whether this is no record but says that a partition was read to its end."""
    error = message.error()
    if error is None:
        return False
    from confluent_kafka import KafkaError

    return error.code() == KafkaError._PARTITION_EOF
