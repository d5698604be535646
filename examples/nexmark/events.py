"""NEXMark's events: of fifty, one is a person who comes, three are auctions that open, the rest are bids.

    python events.py --bootstrap 127.0.0.1:9092 --tables tables --events 10000 --seed 1

The same seed gives the same events. Times are event times: they rise, but for bids that come up to three seconds late.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

BEGAN_AT = datetime(2026, 3, 1, 5, 58, tzinfo=UTC)
FIRST_ID = 984  # 8 x 123: query 2 looks for auctions of that number
LATE_MS_MAX = 3_000
TOPICS = ("persons", "auctions", "bids")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
NAMES = ("Ada", "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple", "channel-7", "channel-8", "channel-9")
SIDE_INPUT = [(key, f"value-{key}") for key in range(0, 100, 2)]


@dataclass(frozen=True, kw_only=True)
class Event:
    """`topic` is persons, auctions or bids; `at` is when it came, which for a late one is behind its own time."""

    topic: str
    key: str
    value: dict[str, Any]
    at: datetime

    @property
    def log_time(self) -> str:
        return _text(self.at)

    @property
    def timestamp_ms(self) -> int:
        return round(self.at.timestamp() * 1000)


def events(seed: int, count: int, *, step_ms: int = 100) -> Iterator[Event]:
    chance = random.Random(seed)
    people = auctions = 0
    for number in range(count):
        at = BEGAN_AT + timedelta(milliseconds=number * step_ms)
        kind = number % 50
        if kind == 0:
            people += 1
            yield _person(chance, FIRST_ID + people - 1, at)
        elif kind <= 3:
            auctions += 1
            yield _auction(chance, FIRST_ID + auctions - 1, FIRST_ID + _recent(chance, people), at)
        else:
            auction, bidder = FIRST_ID + _recent(chance, auctions), FIRST_ID + _recent(chance, people)
            yield _bid(chance, auction, bidder, at)


def _recent(chance: random.Random, count: int) -> int:
    """Mostly one of the last ten, so that some are hot."""
    return chance.randrange(max(0, count - 10), count) if chance.random() < 0.8 else chance.randrange(count)


def _person(chance: random.Random, number: int, at: datetime) -> Event:
    name = f"{chance.choice(NAMES)} {chance.choice('ABCDEFGH')}."
    value = {"id": number, "name": name, "email": f"p{number}@example.org",
             "credit_card": f"{chance.randrange(10**16):016}", "city": chance.choice(CITIES),
             "state": chance.choice(STATES), "date_time": _text(at)}  # fmt: skip
    return Event(topic="persons", key=str(number), value=value, at=at)


def _auction(chance: random.Random, number: int, seller: int, at: datetime) -> Event:
    initial = _price(chance)
    value = {"id": number, "item": f"item-{chance.randrange(1_000)}", "description": "x" * chance.randrange(40),
             "initial_bid": initial, "reserve": initial + _price(chance), "date_time": _text(at),
             "expires": _text(at + timedelta(milliseconds=chance.randrange(2_000, 60_000))), "seller": seller,
             "category": chance.randrange(10, 15)}  # fmt: skip
    return Event(topic="auctions", key=str(number), value=value, at=at)


def _bid(chance: random.Random, auction: int, bidder: int, at: datetime) -> Event:
    channel = chance.choice(CHANNELS)
    path = "/".join(f"d{chance.randrange(9)}" for _ in range(3))
    tail = f"&channel_id={chance.randrange(1_000)}" if chance.random() < 0.8 else ""
    late = timedelta(milliseconds=chance.randrange(LATE_MS_MAX) if chance.random() < 0.2 else 0)
    value = {"auction": auction, "bidder": bidder, "price": _price(chance), "channel": channel,
             "url": f"https://auction.example/{path}/item.htm?query=1{tail}", "date_time": _text(at - late),
             "extra": "".join(chance.choice("abcdef") for _ in range(chance.randrange(20)))}  # fmt: skip
    return Event(topic="bids", key=str(auction), value=value, at=at)


def _price(chance: random.Random) -> int:
    return round(10 ** (chance.random() * 6) * 100)


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def create_topics(bootstrap: str, prefix: str = "nexmark-", partitions: Mapping[str, int] | None = None) -> None:
    """The events bear times of their own, by which a broker would take them for old and remove them. A topic that
    `partitions` does not name has as many as the broker gives."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    counts = {topic: (partitions or {}).get(topic, -1) for topic in TOPICS}
    topics = [NewTopic(prefix + topic, counts[topic], -1, config={"retention.ms": "-1"}) for topic in TOPICS]
    for made in admin.create_topics(topics).values():
        try:
            made.result(60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def send(bootstrap: str, given: list[Event], prefix: str = "nexmark-") -> None:
    from confluent_kafka import Producer

    create_topics(bootstrap, prefix)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number, event in enumerate(given):
        producer.produce(
            prefix + event.topic, json.dumps(event.value).encode(), event.key, timestamp=event.timestamp_ms
        )
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(120):
        raise SystemExit(f"{bootstrap}: {left} events were not taken within 120 s; is the broker there?")


def write_side_input(tables: str) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    keys, values = zip(*SIDE_INPUT, strict=True)
    table = pa.table({"key": pa.array(keys, pa.int64()), "value": pa.array(values)})
    write_deltalake(f"{tables}/nexmark_side_input", table, mode="overwrite")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="address of the broker")
    parser.add_argument("--tables", default="headrace-tables", help="directory of the tables")
    parser.add_argument("--events", type=int, default=10_000, help="number of events")
    parser.add_argument("--seed", type=int, default=1, help="seed of the events")
    given = parser.parse_args()
    write_side_input(given.tables)
    send(given.bootstrap, list(events(given.seed, given.events)))


if __name__ == "__main__":
    main()
