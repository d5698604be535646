"""Transactions as DescribeTransactions and ListTransactions show them, in kio's field names."""

from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Final, TypeVar

from headrace.coordinator.topic_pattern import TopicPattern
from headrace.coordinator.transactions.records import by_topic
from headrace.coordinator.transactions.transaction import BY_LABEL, Transaction
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import NONE

FILTERS_PER_STEP: Final = 64

Name = TypeVar("Name", str, int)


def described(transaction: Transaction) -> Mapping[str, object]:
    return {
        "error_code": NONE,
        "transactional_id": transaction.transactional_id,
        "transaction_state": transaction.state.label,
        "transaction_timeout": transaction.timeout_ms,
        "transaction_start_time": transaction.started_ms,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": indexes} for topic, indexes in by_topic(transaction.partitions).items()
        ],
    }


def not_described(transactional_id: str, code: int) -> Mapping[str, object]:
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }


def chosen(
    transactions: Iterable[Transaction],
    *,
    states: Collection[str],
    producer_ids: Collection[int],
    duration_ms: int,
    id_pattern: str | None,
    now_ms: int,
) -> Generator[None, None, Mapping[str, object]]:
    """Each filter that is given must hold. What has no transaction open counts as running forever, as in Kafka."""
    try:
        pattern = TopicPattern(id_pattern) if id_pattern else None
    except PeerError as error:
        return {"error_code": error.code, "transaction_states": []}
    named = yield from _each_once(states)
    wanted = {state for name, state in BY_LABEL.items() if name in named}
    wanted_ids = yield from _each_once(producer_ids)
    found = []
    for each in transactions:
        if (
            (not named or each.state in wanted)
            and (not wanted_ids or each.producer_id in wanted_ids)
            and (duration_ms < 0 or now_ms - each.started_ms > duration_ms)
            and (pattern is None or pattern.matches(each.transactional_id))
        ):
            found.append(
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "transaction_state": each.state.label,
                }
            )
        yield
    unknown = []
    for at, name in enumerate(named):
        if name not in BY_LABEL:
            unknown.append(name)
        if at % FILTERS_PER_STEP == 0:
            yield
    return {"error_code": NONE, "unknown_state_filters": unknown, "transaction_states": found}


def _each_once(names: Iterable[Name]) -> Generator[None, None, dict[Name, None]]:
    """In their order. In steps: a client may give as many as a request holds."""
    found: dict[Name, None] = {}
    for at, name in enumerate(names):
        found[name] = None
        if at % FILTERS_PER_STEP == 0:
            yield
    return found
