"""A connection as the machine knows it, and what goes out to it: answers, events and closings, in their order.

Each output names the zxid that it has seen: whoever sends it first makes sure that the log up to there is on the disk.
"""

from typing import Final

from headrace.keeper.sessions import Session
from headrace.keeper.tree import Tree
from headrace.protocol.zookeeper.acl import Identity

UNASKED: Final = -1


class Peer:
    __slots__ = ("address", "bytes_held", "identities", "refused", "session")

    def __init__(self, address: str) -> None:
        self.address = address
        self.identities: list[Identity] = [Identity("ip", address)]
        self.session: Session | None = None
        self.bytes_held = 0  # of outputs that wait for the disk
        self.refused = False  # nothing more is taken from it


class Output:
    __slots__ = ("asked_ms", "frame", "peer", "zxid")

    def __init__(self, zxid: int, asked_ms: int, peer: Peer, frame: bytes | None) -> None:
        self.zxid = zxid
        self.asked_ms = asked_ms  # when the turn began that made it; UNASKED: an event, which answers no request
        self.peer = peer
        self.frame = frame  # None: close the connection


class Outputs:
    def __init__(self, tree: Tree) -> None:
        self.waiting: list[Output] = []
        self.now_ms = 0  # when the turn began
        self._tree = tree

    def answer(self, peer: Peer, frame: bytes) -> None:
        self._put(peer, frame, self.now_ms)

    def notify(self, peer: Peer, frame: bytes) -> None:
        self._put(peer, frame, UNASKED)

    def close(self, peer: Peer) -> None:
        """Behind all that it was sent."""
        peer.refused = True
        self.waiting.append(Output(self._tree.last_zxid, self.now_ms, peer, None))

    def take(self) -> list[Output]:
        waiting, self.waiting = self.waiting, []
        return waiting

    def _put(self, peer: Peer, frame: bytes, asked_ms: int) -> None:
        peer.bytes_held += len(frame)
        self.waiting.append(Output(self._tree.last_zxid, asked_ms, peer, frame))
