"""Sends records and keeps account of them: which the broker has acknowledged, and which is the first that it has not.

Nothing counts as sent before its acknowledgement came. The first failure stops everything: what is still waiting is
given up, and the error says from where to send again.
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
PARTING_S = 5.0  # for what is under way when Ctrl-C comes


@dataclass(slots=True)
class Account:
    handed_over: int = 0
    acknowledged: int = 0
    bytes: int = 0
    partitions: dict[int, list[int]] = field(default_factory=dict)  # count, first and last offset
    failed: int = 0
    first_failure: tuple[int, str, str] | None = None  # its number, where it came from, why


class Sending:
    def __init__(
        self, reach: "Reach", topic: str, settings: dict[str, Any] | None = None, *, wait_s: float = 30.0
    ) -> None:
        from confluent_kafka import Producer

        from headrace.cli.kafka.client_settings import make_client, producer_settings
        from headrace.cli.kafka.producing import ready

        self.account = Account()
        self._topic = topic
        self._wait_s = wait_s
        own = {
            "linger.ms": 5,
            "message.timeout.ms": int(wait_s * 1000),
            "reconnect.backoff.max.ms": 1000,
            "allow.auto.create.topics": False,
        }
        given = {**own, **reach.client_settings(), **(settings or {})}
        self._producer: Producer = make_client("headrace", Producer, {**producer_settings(given), "log_level": 0})
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
                self._producer.poll(POLL_S)
                self.check()
            except Exception as error:
                self._failed(number, record.where, _reason(error))
                self.check()
        account.handed_over += 1
        self._producer.poll(0)
        if account.first_failure is not None:
            self.check()

    def finish(self, watch: Callable[[], None] = lambda: None) -> None:
        """Returns when everything is acknowledged; raises with what is not."""
        deadline = time.monotonic() + self._wait_s + PARTING_S
        while self._producer.flush(POLL_S):
            watch()
            self.check()
            if time.monotonic() > deadline:
                break
        self.check()
        account = self.account
        if account.acknowledged < account.handed_over:
            missing = account.handed_over - account.acknowledged
            raise OperatorError(f"{self._topic}: {missing:,} records were never acknowledged; see the broker's log")

    def part(self) -> None:
        """After Ctrl-C: waits a little for what is under way."""
        self._producer.flush(PARTING_S)

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
            f"{where or f'number {number + 1:,}'}: send again from there{known}"
        )

    def _callback(self, number: int, record: "Outgoing") -> Callable[[Any, Any], None]:
        def done(error: Any, message: Any) -> None:
            if error is not None:
                from headrace.cli.reaching import kafka_text

                self._failed(number, record.where, kafka_text(error))
                return
            account = self.account
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


def _reason(error: Exception) -> str:
    from headrace.cli.reaching import kafka_text

    inner = error.args[0] if error.args else error
    return kafka_text(inner) if hasattr(inner, "code") else str(error)
