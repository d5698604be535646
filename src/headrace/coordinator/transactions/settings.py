"""What the operator may decide about transactions, under Kafka's names. Kept apart from the broker's settings, so
that the coordinator can be made and tested without a broker."""

from dataclasses import dataclass, fields

from headrace.core.errors import OperatorError


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    abort_check_interval_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    expire_check_interval_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
    ids_max: int = 100_000  # headrace.transactional.ids.max

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise OperatorError(f"{KEYS[each.name]}={getattr(self, each.name)} must be at least 1")


IDS_KEY = "headrace.transactional.ids.max"
KEYS = {
    "max_timeout_ms": "transaction.max.timeout.ms",
    "id_expiration_ms": "transactional.id.expiration.ms",
    "abort_check_interval_ms": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "expire_check_interval_ms": "transaction.remove.expired.transaction.cleanup.interval.ms",
    "ids_max": IDS_KEY,
}
