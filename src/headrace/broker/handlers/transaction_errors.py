"""What an error of the transaction coordinator is called in answers that older clients understand."""

from headrace.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)

ABORTABLE_SINCE, IMPLICIT_SINCE = 11, 12  # versions of Produce
_AGAIN = frozenset({COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})


def fenced(code: int, version: int, since: int) -> int:
    """PRODUCER_FENCED came late; before that a fenced producer was told INVALID_PRODUCER_EPOCH."""
    return INVALID_PRODUCER_EPOCH if code == PRODUCER_FENCED and version < since else code


def for_produce(code: int, version: int) -> int:
    """What `verify` or `add_implicitly` said, as Produce answers it: never an error of a coordinator.

    A batch that comes too early is to be sent again, for which older clients need a code that they know.
    """
    if code == PRODUCER_FENCED:
        return INVALID_PRODUCER_EPOCH
    if code == TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return INVALID_TXN_STATE
    if code in _AGAIN or (code == CONCURRENT_TRANSACTIONS and version < IMPLICIT_SINCE):
        return NOT_ENOUGH_REPLICAS
    return code
