"""What happens in the shop: orders, payments and clicks, some of them late, some of them malformed.

Seeded, so that two runs send the same events.
"""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer

CUSTOMERS = [f"customer-{number:03}" for number in range(200)]
PAGES = ["/", "/shoes", "/hats", "/basket", "/checkout"]
LATE_SHARE, MALFORMED_SHARE, NEGATIVE_SHARE, NAMELESS_SHARE = 0.02, 0.002, 0.003, 0.001
MINUTES = 30  # the events lie within so much time before now

Event = tuple[str, str | None, bytes]  # topic, key, value


def events(count: int, seed: int = 1) -> Iterator[Event]:
    """About a third orders, a third payments, a third clicks."""
    chance = random.Random(seed)
    now = datetime.now(UTC)
    for number in range(count // 3):
        at = now - timedelta(minutes=MINUTES) * (1 - 3 * number / count)
        if chance.random() < LATE_SHARE:
            at -= timedelta(minutes=chance.uniform(1, 20))
        customer, amount = chance.choice(CUSTOMERS), round(chance.lognormvariate(4, 1), 2)
        yield _order(chance, f"o-{seed}-{number}", customer, amount, at)
        yield "payments", customer, _json(order_id=f"o-{seed}-{number}", paid=amount, at=at + timedelta(seconds=3))
        yield "clicks", customer, _json(customer=customer, page=chance.choice(PAGES), at=at)


def _order(chance: random.Random, order_id: str, customer: str, amount: float, at: datetime) -> Event:
    kind = chance.random()
    if kind < MALFORMED_SHARE:
        return "orders", customer, b'{"order_id": "' + order_id.encode() + b'", "amount": twelve'
    if kind < MALFORMED_SHARE + NEGATIVE_SHARE:
        return "orders", customer, _json(order_id=order_id, customer=customer, amount=-amount, at=at)
    named = kind >= MALFORMED_SHARE + NEGATIVE_SHARE + NAMELESS_SHARE
    return "orders", customer, _json(order_id=order_id, customer=customer if named else None, amount=amount, at=at)


def _json(**fields: object) -> bytes:
    return json.dumps({k: v.isoformat() if isinstance(v, datetime) else v for k, v in fields.items()}).encode()


def send(bootstrap: str, count: int, seed: int = 1) -> None:
    """All of them acknowledged, or an error."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    failures: list[str] = []
    for topic, key, value in events(count, seed):
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=lambda e, _: failures.append(str(e)) if e else None)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(30)
    if left or failures:
        raise SystemExit(f"{left + len(failures)} of {count} events were not taken: {failures[:1]}")
