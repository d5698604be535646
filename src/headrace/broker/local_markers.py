"""Writes the ends of transactions to partitions that this broker leads itself: to their logs, in this turn.

A marker in `__consumer_offsets` also ends what its partition's groups have pending: they are told when it is written.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.internal_topics import Told
from headrace.coordinator.journal import AllOf, Done
from headrace.coordinator.placing import OFFSETS_TOPIC
from headrace.coordinator.topic_view import TopicPartition
from headrace.coordinator.transactions.markers import TransactionEnd
from headrace.core.clock import Clock
from headrace.core.errors import InvariantError, PeerError, StorageError
from headrace.core.telemetry import failure
from headrace.log.transactions import Marker, build_marker

if TYPE_CHECKING:
    from headrace.broker.topics import Topics

logger = logging.getLogger(__name__)

OffsetsEnded = Callable[[int, int, bool], None]  # producer id, partition of `__consumer_offsets`, whether committed


class LocalMarkers:
    def __init__(self, topics: Topics, clock: Clock, offsets_ended: OffsetsEnded) -> None:
        self._topics = topics
        self._clock = clock
        self._offsets_ended = offsets_ended

    def write(self, end: TransactionEnd, partitions: list[TopicPartition], done: Done) -> None:
        waiting = AllOf(done)
        for topic, index in partitions:
            waiting.expect()
            self._write_one(end, topic, index, waiting.told)
        waiting.told(None)

    def _write_one(self, end: TransactionEnd, topic: str, index: int, done: Done) -> None:
        partition = self._topics.partition(topic, index)
        if partition is None:
            done(None)  # the topic is deleted
            return
        log = partition.led
        if log is None:
            done(StorageError(partition.refusal().message))
            return
        marker = Marker(*end)
        now_ms = self._clock.now_ms()
        told = functools.partial(self._written, end, index, done) if topic == OFFSETS_TOPIC else done
        try:
            log.producers.check_coordinator(end.producer_id, end.coordinator_epoch)
            log.appender.stage_own(build_marker(marker, now_ms), now_ms, Told(told), marker)
        except PeerError as error:
            done(error)
        except OSError as error:
            done(StorageError(f"{topic}-{index}: {error.strerror or error}"))
        except Exception as error:  # whoever waits must be told, or this transaction would never end
            if isinstance(error, InvariantError):
                raise
            failure(logger, "transaction marker could not be staged", error, topic=topic, partition=index)
            done(StorageError(f"{topic}-{index}: {error}"))

    def _written(self, end: TransactionEnd, index: int, done: Done, error: Exception | None) -> None:
        if error is None:
            self._offsets_ended(end.producer_id, index, end.commit)
        done(error)
