"""Reading records for a person: from which offsets, up to where, which are wanted, and when it is enough.

The loop ends at the end that the topic had when it began (or never, to follow it), after so many records, when nothing
came for a while, or when the broker stays away, which is an error. A partition is never skipped silently. A topic
that did not exist at the beginning is read whole as soon as it does.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.cli.records.view import ShownRecord, shown
from headrace.core.errors import HeadraceError, OperatorError

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.client.offsets import PartitionName

BATCH_MAX = 500
POLL_S = 0.1
LOOK_EVERY_S = 0.5  # for topics that do not exist yet
ANSWER_S_MAX = 5.0
AWAY_S_MAX = 30.0  # a broker that does not come back within this ends it


def no_partition(topic: str, number: int, count: int) -> OperatorError:
    return OperatorError(f"{topic} has no partition {number}; it has {count}, counted from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Either `starts`, or a `group` that reads `topics`."""

    topics: tuple[str, ...]
    missing: tuple[str, ...] = ()  # those of the topics that do not exist yet
    partitions: tuple[int, ...] = ()  # of those; none: all
    starts: "Mapping[PartitionName, int] | None" = None
    ends: "Mapping[PartitionName, int] | None" = None  # None: follow
    group: str | None = None
    group_from: str = "earliest"
    follow: bool = False
    limit: int | None = None
    quiet_s_max: float | None = None
    uncommitted: bool = False
    wanted: Callable[[ShownRecord], bool] | None = None


class RecordReading:
    """`for batch in reading.batches()`: what was yielded before counts as shown, and is committed by a group."""

    def __init__(self, reach: "Reach", plan: ReadPlan) -> None:
        from confluent_kafka import Consumer

        from headrace.cli.kafka import group_positions
        from headrace.client.librdkafka import consumer_settings, make_client

        self._reach = reach
        self._plan = plan
        self._away_since: float | None = None
        self._refusal: OperatorError | None = None
        self._open = set(plan.ends or ())  # partitions whose end has not been reached
        self._at_end: set[PartitionName] = set()
        self._missing = set(plan.missing)  # not given to this reader yet
        self._unseen = set(plan.missing)  # not created yet, as far as this reader knows
        self._look_at = 0.0
        self.count = 0
        self._stopped = False
        auto_commit = reach.properties.get("enable.auto.commit", "true").lower()
        own = {
            "group.id": plan.group or "headrace-consume",
            "enable.auto.commit": plan.group is not None and auto_commit != "false",
            "auto.offset.reset": plan.group_from if plan.group else "error",
            "isolation.level": "read_uncommitted" if plan.uncommitted else "read_committed",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.propagation.max.ms": 1000,  # a topic that is deleted is soon said to be
            "error_cb": self._on_error,
            "log_level": 0,
        }
        settings = {**consumer_settings(reach.client_settings()), **group_positions.SETTINGS, **own}
        self._consumer: Consumer = make_client("headrace", Consumer, settings)
        self._positions = group_positions.GroupPositions(self._consumer, settings)
        self._positions.from_beginning |= self._missing

    def stop(self) -> None:
        """From any thread: `batches` ends within a moment."""
        self._stopped = True

    def __enter__(self) -> "RecordReading":
        return self

    def __exit__(self, *_: object) -> None:
        from headrace.cli.kafka.consuming import close

        close(self._consumer)  # leaves the group, and commits what was shown

    def batches(self) -> Iterator[list[ShownRecord]]:
        """Wanted records as they come; never more than the limit in all."""
        from headrace.cli.kafka.consuming import take

        self._begin()
        plan = self._plan
        last = time.monotonic()
        while not self._stopped and not self._finished():
            if plan.limit is not None and self.count >= plan.limit:
                self._positions.settle()
                return
            messages = take(self._consumer, BATCH_MAX, POLL_S)
            now = time.monotonic()
            found, done = self._sorted_out(messages)
            if found:
                self.count += len(found)
                yield found
            self._positions.shown(done)
            if any(message.error() is None for message in done):
                last = now
            elif plan.quiet_s_max is not None and now - last > plan.quiet_s_max:
                return
            self._check_broker(now)
            if self._unseen and now >= self._look_at:
                self._look_at = now + LOOK_EVERY_S
                self._look_for_missing()

    def _begin(self) -> None:
        from confluent_kafka import TopicPartition

        plan = self._plan
        if plan.starts is None:
            self._subscribe()
            return
        places = {place: at for place, at in plan.starts.items() if plan.ends is None or at < plan.ends[place]}
        self._open &= set(places)
        self._consumer.assign([TopicPartition(*place, at) for place, at in places.items()])

    def _subscribe(self) -> None:
        self._positions.subscribe(list(self._plan.topics), on_assign=self._on_assign)

    def _look_for_missing(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        for topic in tuple(self._unseen):
            try:
                found = self._consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic]
            except KafkaException:
                return  # the broker is away: that is watched elsewhere
            self._away_since = None
            if found.error is not None or not found.partitions:
                continue
            self._unseen.discard(topic)
            if self._plan.group is not None:
                # Once a group has any of its topics, librdkafka looks for the others every five minutes only.
                self._subscribe()
                continue
            self._missing.discard(topic)
            wanted = self._plan.partitions or tuple(found.partitions)
            if absent := set(wanted) - set(found.partitions):
                raise no_partition(topic, min(absent), len(found.partitions))
            self._consumer.incremental_assign([TopicPartition(topic, number, 0) for number in wanted])

    def _finished(self) -> bool:
        plan = self._plan
        if plan.group is not None:
            assigned = self._positions.assigned
            return not plan.follow and bool(assigned) and assigned <= self._at_end
        return plan.ends is not None and not self._open

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        self._at_end -= {(each.topic, each.partition) for each in places}
        given = {each.topic for each in places}
        self._missing -= given
        self._unseen -= given

    def _sorted_out(self, messages: list[Any]) -> tuple[list[ShownRecord], list[Any]]:
        """The wanted records, and the messages up to which everything has been dealt with when those are shown."""
        from confluent_kafka import KafkaError

        plan = self._plan
        found: list[ShownRecord] = []
        done: list[Any] = []
        room = None if plan.limit is None else plan.limit - self.count
        for message in messages:
            error = message.error()
            place = (message.topic(), message.partition())
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._at_end.add(place)
                    self._open.discard(place)
                    done.append(message)
                    continue
                if message.topic() in self._missing:
                    continue
                raise self._explained(error, message)
            self._away_since = None
            if room is not None and len(found) >= room:
                break  # not shown, so not committed either
            offset = message.offset()
            end = plan.ends.get(place) if plan.ends is not None else None
            if end is not None and offset >= end - 1:
                self._open.discard(place)
                if offset >= end:
                    continue
            self._at_end.discard(place)
            record = shown(message)
            done.append(message)
            if plan.wanted is None or plan.wanted(record):
                found.append(record)
        return found, done

    def _explained(self, error: Any, message: Any) -> OperatorError:
        from confluent_kafka import KafkaError

        from headrace.cli.reaching import kafka_text

        where = f"{message.topic()}-{message.partition()}" if message.topic() else ", ".join(self._plan.topics)
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
            return OperatorError(f"{where}: the topic was deleted while it was read; {self.count:,} records came")
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            return OperatorError(
                f"{where}: the records to be read next are no longer there (retention, or deleted); start again, "
                f"or use --from beginning"
            )
        return OperatorError(f"{where}: {kafka_text(error)}")

    def _on_error(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT) and self._away_since is None:
            self._away_since = time.monotonic()
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID) and not self._missing:
            named = ", ".join(self._plan.topics)
            self._refusal = OperatorError(
                f"{named}: a topic was deleted while it was read; {self.count:,} records came"
            )
        elif error.code() == KafkaError._AUTHENTICATION or error.fatal():
            self._refusal = OperatorError(f"the broker refuses: {error.str()}")

    def _check_broker(self, now: float) -> None:
        """What librdkafka said aside: raised here, since an error must not come out of its callback."""
        if self._refusal is not None:
            raise self._refusal
        if self._away_since is not None and now - self._away_since > AWAY_S_MAX:
            if self._answers():
                self._away_since = None
                return
            raise OperatorError(
                f"no broker answered for {AWAY_S_MAX:g} s; {self.count:,} records were shown before; start it again"
            )

    def _answers(self) -> bool:
        """librdkafka does not say that a broker is back; without a record nothing would tell."""
        try:
            with self._reach.cluster():
                return True
        except (HeadraceError, OSError):
            return False
