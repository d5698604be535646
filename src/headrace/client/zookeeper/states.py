"""The states of a client's session, and every way from one to another.

A session outlives its connections. It is CONNECTING while a connection is looked for, GREETING when there is one and
the server has not said yet whether it knows the session, CONNECTED when requests are answered. A connection that
breaks takes it back to CONNECTING, as often as it happens: only the server says that a session has EXPIRED, since
only the server knows, and a server that is away expires nothing. Credentials that the server does not accept end it as
AUTH_FAILED; CLOSING waits for what was asked before, and ends as CLOSED, also when the connection breaks then.
From the last three no way leads on: who wants to go on starts another session.
"""

from enum import Enum, auto
from typing import Final

from headrace.core.errors import InvariantError


class State(Enum):
    CONNECTING = auto()
    GREETING = auto()
    CONNECTED = auto()
    CLOSING = auto()
    CLOSED = auto()
    EXPIRED = auto()
    AUTH_FAILED = auto()


class Input(Enum):
    OPENED = auto()  # a connection is there
    WELCOMED = auto()  # the server has the session
    UNKNOWN = auto()  # the server has it no more
    DENIED = auto()  # credentials were not accepted
    LOST = auto()  # the connection broke, or could not be made
    CLOSE = auto()  # the user has done
    CLOSE_ANSWERED = auto()


ENDED: Final = frozenset((State.CLOSED, State.EXPIRED, State.AUTH_FAILED))

TRANSITIONS: Final[dict[tuple[State, Input], State]] = {
    (State.CONNECTING, Input.OPENED): State.GREETING,
    (State.CONNECTING, Input.LOST): State.CONNECTING,
    (State.CONNECTING, Input.CLOSE): State.CLOSED,
    (State.GREETING, Input.WELCOMED): State.CONNECTED,
    (State.GREETING, Input.UNKNOWN): State.EXPIRED,
    (State.GREETING, Input.LOST): State.CONNECTING,
    (State.GREETING, Input.CLOSE): State.CLOSED,
    (State.CONNECTED, Input.DENIED): State.AUTH_FAILED,
    (State.CONNECTED, Input.LOST): State.CONNECTING,
    (State.CONNECTED, Input.CLOSE): State.CLOSING,
    (State.CLOSING, Input.DENIED): State.CLOSED,
    (State.CLOSING, Input.LOST): State.CLOSED,
    (State.CLOSING, Input.CLOSE): State.CLOSING,
    (State.CLOSING, Input.CLOSE_ANSWERED): State.CLOSED,
}


def following(state: State, happened: Input) -> State:
    try:
        return TRANSITIONS[state, happened]
    except KeyError:
        raise InvariantError(f"a session that is {state.name} cannot have {happened.name}") from None
