"""What a session tells whoever drives it, in the order in which it became known."""

from typing import NamedTuple

from headrace.client.zookeeper.connect_string import Address
from headrace.client.zookeeper.states import State
from headrace.client.zookeeper.watchers import Watcher
from headrace.protocol.zookeeper.requests import Request
from headrace.protocol.zookeeper.results import Result


class Answered(NamedTuple):
    """A request was done."""

    ticket: int
    request: Request
    result: Result


class Refused(NamedTuple):
    """A request was not done; after CONNECTION_LOSS it may have been done."""

    ticket: int
    request: Request
    code: int
    path: str


class Changed(NamedTuple):
    """A node that is watched has changed, or is watched no more; `zxid` is -1 if it was missed and is made up for."""

    kind: int
    path: str
    zxid: int
    watchers: tuple[Watcher, ...]


class StateChanged(NamedTuple):
    state: State
    reason: str


class Unreachable(NamedTuple):
    """An attempt to connect that failed."""

    server: Address
    reason: str


class Connect(NamedTuple):
    """To do: open a connection to this server, and call `opened` or `lost`."""

    server: Address


class Drop(NamedTuple):
    """To do: close the connection, or give up the attempt; nothing is to be called then."""


Event = Answered | Refused | Changed | StateChanged | Unreachable
Action = Connect | Drop
