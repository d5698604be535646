"""Consumers that go on while their broker is killed, and hold it to what they have read and committed."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from ledger import Ledger, Place
from waits import SESSION_MS, WAIT_S_MAX, eventually

_PATIENT = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "check.crcs": True,
    "fetch.wait.max.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,
}


class Reads:
    """What was read by one or more readers, by place and offset. The same offset never holds another record."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._values: dict[Place, dict[int, bytes]] = defaultdict(dict)

    def add(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        known = self._values[place].setdefault(offset, value)
        if known != value:
            self._ledger.fail(f"{reader}: {place} offset {offset} was {known[:30]!r} and is {value[:30]!r}")

    def end(self, place: Place) -> int:
        """The first offset that nobody has read, if the log has no gaps."""
        held = self._values[place]
        return len(held) if not held or max(held) == len(held) - 1 else min(set(range(max(held))) - held.keys())

    @property
    def count(self) -> int:
        return sum(map(len, self._values.values()))


class Reader(ABC):
    """A thread that reads from its making until `finish`."""

    def __init__(self, name: str, bootstrap: str, places: Sequence[Place], ledger: Ledger, reads: Reads) -> None:
        self.name = name
        self._places = places
        self._ledger = ledger
        self._reads = reads
        self._stopping = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **_PATIENT, **self._settings()})
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def finish(self, ends: Mapping[Place, int]) -> None:
        """When everything up to these ends has been read by this reader, or by one that shares its reads."""
        eventually(
            lambda: self._ledger.problems or all(self._reads.end(place) >= end for place, end in ends.items()),
            f"{self.name} has read everything",
            3 * WAIT_S_MAX,
        )
        self._stopping.set()
        self._thread.join(WAIT_S_MAX)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _run(self) -> None:
        try:
            self._begin()
            while not self._stopping.is_set():
                # An error is a broker that is gone, or a group that is being formed: both pass.
                found = [each for each in self._consumer.consume(200, timeout=0.1) if each.error() is None]
                for message in found:
                    self._read(message)
                if found:
                    self._after(found)
            self._consumer.close()
        except BaseException as error:
            self._ledger.fail(f"{self.name}: {error!r}")

    def _read(self, message: Message) -> None:
        self._reads.add(self.name, _place(message), message.offset() or 0, message.value() or b"")

    @abstractmethod
    def _settings(self) -> dict[str, object]: ...
    @abstractmethod
    def _begin(self) -> None: ...
    @abstractmethod
    def _after(self, found: list[Message]) -> None: ...


class LoneReader(Reader):
    """Reads every partition from its start: each offset once, one after the other."""

    def _settings(self) -> dict[str, object]:
        return {"group.id": f"{self.name}-alone"}

    def _begin(self) -> None:
        self._next = dict.fromkeys(self._places, 0)
        self._consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in self._places])

    def _read(self, message: Message) -> None:
        place, offset = _place(message), message.offset()
        if offset != self._next[place]:
            self._ledger.fail(f"{self.name}: {place} offset {offset} came where {self._next[place]} is next")
        self._next[place] = (offset or 0) + 1
        super()._read(message)

    def _after(self, found: list[Message]) -> None:
        pass  # it commits nothing


class Commits:
    """What a group was told is committed: from then on it is, or something later."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.floors: dict[Place, int] = {}
        self.count = 0

    def told(self, place: Place, offset: int) -> None:
        self.floors[place] = max(self.floors.get(place, 0), offset)
        self.count += 1

    def check(self, floors: Mapping[Place, int], found: Mapping[Place, int], when: str) -> None:
        """`floors` were taken before it was asked."""
        for place, floor in floors.items():
            if place in found and found[place] < floor:
                self._ledger.fail(f"{place}: {floor} was committed, and {when} {found[place]} is")


class GroupReader(Reader):
    """Shares the partitions with others of its group, and commits after each handful."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        places: Sequence[Place],
        ledger: Ledger,
        reads: Reads,
        commits: Commits,
        group: str,
        protocol: str = "classic",
    ) -> None:
        self._commits = commits
        self._group = group
        self._protocol = protocol
        super().__init__(name, bootstrap, places, ledger, reads)

    def _settings(self) -> dict[str, object]:
        shared: dict[str, object] = {"group.id": self._group, "group.protocol": self._protocol}
        if self._protocol == "classic":
            shared |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
        return shared

    def _begin(self) -> None:
        self._consumer.subscribe(sorted({place.topic for place in self._places}), on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        floors = dict(self._commits.floors)
        try:
            found = consumer.committed(partitions, timeout=5.0)
        except KafkaException:
            return  # the broker is gone again
        held = {Place(each.topic, each.partition): max(each.offset, 0) for each in found if each.error is None}
        asked = {place: floor for place, floor in floors.items() if place in held}
        self._commits.check(asked, held, f"when {self.name} gets the partition")

    def _after(self, found: list[Message]) -> None:
        ends = {_place(message): (message.offset() or 0) + 1 for message in found}
        offsets = [TopicPartition(place.topic, place.partition, end) for place, end in ends.items()]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return  # refused or unanswered: then it may be committed or not
        for each in done or ():
            if each.error is None:
                self._commits.told(Place(each.topic, each.partition), each.offset)


def _place(message: Message) -> Place:
    return Place(message.topic() or "", message.partition() or 0)
