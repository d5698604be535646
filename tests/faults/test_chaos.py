"""A history of everything clients sent, were told, read and committed, over random `kill -9` of the broker.

Producers with every kind of acknowledgement, readers alone and in groups of both protocols, and transactions go on all
the time. Afterwards: nothing acknowledged is lost or elsewhere, nothing idempotent is there twice, each producer's
order holds in each partition, readers saw each offset once, no committed offset went back, and every transaction is
there as a whole or not at all. `make chaos MINUTES=4 SEED=7` goes on for so long; a few kills are in every test run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

import pytest
import raw
from broker_process import BrokerProcess
from confluent_kafka.admin import AdminClient
from ledger import Ledger, Mark, Place
from load import (
    ConfluentLoad,
    KafkaPythonLoad,
    LeaderConfluentLoad,
    Load,
    PlainConfluentLoad,
    UnacknowledgedConfluentLoad,
)
from readers import Commits, GroupReader, LoneReader, Reader, Reads
from test_kill import end_offset, kill_while_it_starts
from topic_setup import create_topic
from transactional_load import Outcome, TransactionalLoad, TransactionHistory
from waits import SESSION_MS, eventually

SETTINGS = {
    # Recovery points move all the time, so that a start after a kill begins anywhere in a log.
    "log.flush.offset.checkpoint.interval.ms": "150",
    "log.flush.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
TOPICS = {
    "rolling": {"internal.segment.bytes": "60000"},
    "plain": {},
    "transactional": {"internal.segment.bytes": "60000"},
}
PARTITIONS = 2
KILLS = 3
PAUSE_S = 0.05  # of a producer, after each handful: minutes of it can still be checked
PRODUCERS: dict[str, type[Load]] = {
    "idempotent": ConfluentLoad,
    "kafka-python": KafkaPythonLoad,
    "all": PlainConfluentLoad,
    "leader": LeaderConfluentLoad,
    "none": UnacknowledgedConfluentLoad,
}
OFFSET_FETCH = 9


class History:
    """All clients of one run, and what they know."""

    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        self.bootstrap = bootstrap
        self.ledger = Ledger()
        self.places = [Place(topic, index) for topic in ("rolling", "plain") for index in range(PARTITIONS)]
        self.transactional_places = [Place("transactional", index) for index in range(PARTITIONS)]
        ledger, places = self.ledger, self.places
        self.loads = [kind(name, bootstrap, places, ledger, rng, PAUSE_S) for name, kind in PRODUCERS.items()]
        self.transactions = TransactionHistory()
        self.transactional = [
            TransactionalLoad(f"t{number}", bootstrap, self.transactional_places, ledger, self.transactions, rng)
            for number in range(2)
        ]
        self.commits = {protocol: Commits(ledger) for protocol in ("classic", "consumer")}
        self.readers: list[Reader] = [LoneReader("lone", bootstrap, places, ledger, Reads(ledger))]
        for protocol, commits in self.commits.items():
            reads = Reads(ledger)
            self.readers += [
                GroupReader(f"{protocol}-{number}", bootstrap, places, ledger, reads, commits, protocol, protocol)
                for number in range(2)
            ]

    def floors(self) -> tuple[dict[Place, int], dict[str, dict[Place, int]]]:
        """The least ends and committed offsets that a broker must have from now on."""
        return self.ledger.ends(), {group: dict(commits.floors) for group, commits in self.commits.items()}

    def check_floors(self, ends: Mapping[Place, int], committed: Mapping[str, Mapping[Place, int]]) -> None:
        with raw.Client(self.bootstrap) as client:
            for place, end in ends.items():
                assert end_offset(client, place) >= end, f"{place} lost acknowledged records"
            for group, floors in committed.items():
                found = committed_offsets(client, group)
                missing = {place: floor for place, floor in floors.items() if found.get(place, -1) < floor}
                assert not missing, f"{group}: committed were {missing}, and now are {found}"
        assert not self.ledger.problems, self.ledger.problems[:5]

    def finish(self) -> None:
        sent = {load.name: load.finish() for load in self.loads}
        for each in self.transactional:
            each.finish()
        assert self.ledger.count == sum(sent.values()) - sent["none"], self.ledger.problems[:5]
        with raw.Client(self.bootstrap) as client:
            ends = {place: end_offset(client, place) for place in self.places}
        for reader in self.readers:
            reader.finish(ends)
        self.check_floors(*self.floors())
        held = self.ledger.check(self.bootstrap, exactly_once=("idempotent", "kafka-python"), at_most_once=("none",))
        self.transactions.check(self.bootstrap, self.transactional_places)
        print(
            f"{sum(sent.values())} records sent, {self.ledger.count} acknowledged, {held} in the log;"
            f" commits { ({group: each.count for group, each in self.commits.items()}) };"
            f" transactions {self.transactions.counts()}"
        )


def begin(broker: BrokerProcess, rng: random.Random) -> History:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for topic, config in TOPICS.items():
        create_topic(admin, topic, partitions=PARTITIONS, config=config)
    return History(broker.bootstrap, rng)


def committed_offsets(client: raw.Client, group: str) -> dict[Place, int]:
    asked = {"groups": [{"group_id": group, "topics": None}], "require_stable": False}
    (answer,) = client.call(OFFSET_FETCH, 9, asked).groups
    assert answer.error_code == 0, answer
    return {
        Place(topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


def test_history_over_random_kills_has_no_anomaly(
    start_broker: Callable[..., BrokerProcess],
    steady_port: int,
    tmp_path,
    rng: random.Random,
    rounds: Callable[[int], int],
    request: pytest.FixtureRequest,
) -> None:
    port, data = steady_port, str(tmp_path / "data")
    broker = start_broker(SETTINGS, data=data, port=port)
    history = begin(broker, rng)
    minutes = request.config.getoption("--minutes")
    until, kills = time.monotonic() + 60 * (minutes or 0), 0
    while time.monotonic() < until if minutes else kills < rounds(KILLS):
        history.ledger.await_more(rng.randrange(100, 1500))
        time.sleep(rng.random() * 0.1)  # the moment itself: there is no event to wait for
        broker.kill()
        floors = history.floors()
        kills += 1
        if rng.random() < 0.3:
            kill_while_it_starts(data, port, rng)
        broker = start_broker(SETTINGS, data=data, port=port)
        history.check_floors(*floors)
    history.ledger.await_more(500)
    history.finish()
    print(f"{kills} kills")


def test_history_that_the_broker_does_not_keep_to_is_an_anomaly(
    start_broker: Callable[..., BrokerProcess], rng
) -> None:
    """The check itself: each of these must be noticed."""
    history = begin(start_broker(SETTINGS), rng)
    eventually(lambda: all(commits.floors for commits in history.commits.values()), "both groups have committed")
    eventually(lambda: Outcome.COMMITTED in history.transactions.outcomes.values(), "a transaction is committed")
    history.finish()
    ledger, transactions = history.ledger, history.transactions
    place, end = next(iter(ledger.ends().items()))
    with pytest.raises(AssertionError, match="lost acknowledged records"):
        history.check_floors({place: end + 1_000_000}, {})
    place, floor = next(iter(history.commits["classic"].floors.items()))
    with pytest.raises(AssertionError, match="committed were"):
        history.check_floors({}, {"classic": {place: floor + 1}})
    for outcome, wrong in ((Outcome.COMMITTED, Outcome.ABORTED), (Outcome.ABORTED, Outcome.COMMITTED)):
        victim = next((each for each, was in transactions.outcomes.items() if was is outcome), None)
        if victim is not None:
            transactions.outcomes[victim] = wrong
            with pytest.raises(AssertionError, match=f"was {wrong.value}"):
                transactions.check(history.bootstrap, history.transactional_places)
            transactions.outcomes[victim] = outcome
    ledger.acknowledge(place, end + 1_000_000, Mark("idempotent", 1_000_000))
    with pytest.raises(AssertionError, match="acknowledged, and not so in the log"):
        ledger.check(history.bootstrap, exactly_once=("idempotent", "kafka-python"), at_most_once=("none",))
