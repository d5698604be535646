"""Sends records and keeps account of them: which the broker has acknowledged, and which is the first that it has not.

Nothing counts as sent before its acknowledgement came. The first failure stops everything: what is still waiting is
given up, and the error says from where to send again. Why nothing is acknowledged is said while it is waited for.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from headrace.core.errors import OperatorError

if TYPE_CHECKING:
    from headrace.cli.produce_input import Outgoing
    from headrace.cli.reaching import Reach

POLL_S = 0.1
RECORDS_PER_LOOK = 100
PARTING_S = 5.0  # for what is under way when Ctrl-C comes


@dataclass(slots=True)
class Account:
    handed_over: int = 0
    acknowledged: int = 0
    bytes: int = 0
    waiting: "dict[int, Outgoing]" = field(default_factory=dict)  # by number: not answered yet, in order
    partitions: dict[int, list[int]] = field(default_factory=dict)  # count, first and last offset
    failed: int = 0
    first_failure: tuple[int, str, str] | None = None  # its number, where it came from, why

    def so_far(self) -> str:
        """What is acknowledged, and what is not."""
        known = f"{self.acknowledged:,} records are acknowledged"
        if not self.waiting:
            return known
        number, record = next(iter(self.waiting.items()))
        return (
            f"{known}, {len(self.waiting):,} are not, and the first of those is {_place(number, record.where)}: send "
            "again from there"
        )


class Sending:
    def __init__(
        self,
        reach: "Reach",
        topic: str,
        settings: dict[str, Any] | None = None,
        *,
        wait_s: float = 30.0,
        say: Callable[[str], None],
    ) -> None:
        from confluent_kafka import Producer

        from headrace.cli.kafka.broker_watch import BrokerWatch
        from headrace.cli.kafka.delivery_watch import DeliveryWatch
        from headrace.cli.kafka.producing import ready
        from headrace.client.librdkafka import make_client, producer_settings

        self.account = Account()
        self._topic = topic
        self._wait_s = wait_s
        own = {
            "linger.ms": 5,
            "message.timeout.ms": int(wait_s * 1000),
            "reconnect.backoff.max.ms": 1000,
            "allow.auto.create.topics": False,
        }
        given: dict[str, Any] = {**own, **reach.client_settings(), **(settings or {})}
        given = producer_settings(given)
        brokers = BrokerWatch({"default.api.timeout.ms": str(int(wait_s * 1000))}, say)
        self._watch = DeliveryWatch(topic, wait_s, say)
        watched = {"error_cb": brokers.on_error, **self._watch.settings(given)}
        self._producer: Producer = make_client("headrace", Producer, {**given, **watched})
        self._producer.list_topics(topic, timeout=wait_s)
        ready(self._producer, topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._producer.purge()
        self._producer.flush(PARTING_S if kind is not None else self._wait_s)

    def send(self, record: "Outgoing") -> None:
        account = self.account
        number = account.handed_over
        done = self._callback(number, record)
        account.waiting[number] = record
        options: dict[str, Any] = {"on_delivery": done, "key": record.key, "headers": list(record.headers)}
        if record.partition >= 0:
            options["partition"] = record.partition
        if record.timestamp_ms:
            options["timestamp"] = record.timestamp_ms
        while True:
            try:
                self._producer.produce(self._topic, record.value, **options)
                break
            except BufferError:
                self.look(POLL_S)
            except Exception as error:
                del account.waiting[number]
                self._failed(number, record.where, _reason(error))
                self.check()
        account.handed_over += 1
        self._producer.poll(0)
        if account.first_failure is not None or account.handed_over % RECORDS_PER_LOOK == 0:
            self.look()

    def look(self, wait_s: float = 0.0) -> None:
        """Hears what has become of the records; raises if one of them failed."""
        self._producer.poll(wait_s)
        self._watch.look(self._producer, len(self.account.waiting))
        self.check()

    def finish(self, goes_on: Callable[[], bool]) -> None:
        """Returns when everything is acknowledged, or `goes_on` says no; raises with what is not."""
        deadline = time.monotonic() + self._wait_s + PARTING_S
        while self._producer.flush(POLL_S):
            self.look()
            if not goes_on():
                return
            if time.monotonic() > deadline:
                break
        self.check()
        if missing := len(self.account.waiting):
            raise OperatorError(f"{self._topic}: {missing:,} records were never acknowledged; see the broker's log")

    def check(self) -> None:
        account = self.account
        if account.first_failure is None:
            return
        self._producer.purge()
        self._producer.flush(PARTING_S)
        number, where, why = account.first_failure
        later = account.acknowledged - number
        known = f"; {later:,} after it are acknowledged all the same" if later > 0 else ""
        raise OperatorError(
            f"{self._topic}: {why}; {account.acknowledged:,} records are acknowledged, and the first that is not is "
            f"{_place(number, where)}: send again from there{known}"
        )

    def _callback(self, number: int, record: "Outgoing") -> Callable[[Any, Any], None]:
        def done(error: Any, message: Any) -> None:
            account = self.account
            account.waiting.pop(number, None)
            self._watch.answered(message.partition(), acknowledged=error is None)
            if error is not None:
                from headrace.cli.reaching import kafka_text

                self._failed(number, record.where, kafka_text(error))
                return
            account.acknowledged += 1
            account.bytes += len(record.value or b"") + len(record.key or b"")
            offset, held = message.offset(), account.partitions.get(message.partition())
            if held is None:
                account.partitions[message.partition()] = [1, offset, offset]
            else:
                held[0] += 1
                held[2] = offset

        return done

    def _failed(self, number: int, where: str, why: str) -> None:
        account = self.account
        account.failed += 1
        # What is purged because something else failed must not hide the reason.
        if account.first_failure is None:
            account.first_failure = (number, where, why)
        elif number < account.first_failure[0]:
            account.first_failure = (number, where, account.first_failure[2])


def _place(number: int, where: str) -> str:
    return where or f"number {number + 1:,}"


def _reason(error: Exception) -> str:
    from headrace.cli.reaching import kafka_text

    inner = error.args[0] if error.args else error
    return kafka_text(inner) if hasattr(inner, "code") else str(error)
