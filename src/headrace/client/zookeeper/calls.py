"""What can be asked of ZooKeeper, a method each, for a client that waits for each answer."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.core.errors import InvariantError
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.acl import OPEN, Acl, Identity
from headrace.protocol.zookeeper.results import (
    AclOfNode,
    Children,
    Created,
    Data,
    Identities,
    MultiDone,
    Paths,
    ReadResult,
    Reads,
    Result,
    StepResult,
)
from headrace.protocol.zookeeper.stat import Stat

Kind = TypeVar("Kind")
Step = requests.Create | requests.Delete | requests.SetData | requests.Check


def create_request(
    path: str, data: bytes | None, flags: int = codes.PERSISTENT, acl: Sequence[Acl] = OPEN, ttl_ms: int = -1
) -> requests.Create:
    """With the oldest operation that can do it, which every server knows."""
    kind = codes.CREATE
    if flags in (codes.WITH_TTL, codes.SEQUENTIAL_WITH_TTL):
        kind = codes.CREATE_TTL
    elif flags == codes.CONTAINER:
        kind = codes.CREATE_CONTAINER
    return requests.Create(kind, path, data, tuple(acl), flags, ttl_ms)


class Calls:
    def ask(self, request: requests.Request, watcher: Hashable = None, *, below_chroot: bool = True) -> Result:
        """The answer; ZooKeeperError if it is a refusal."""
        raise NotImplementedError

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        flags: int = codes.PERSISTENT,
        acl: Sequence[Acl] = OPEN,
        ttl_ms: int = -1,
    ) -> str:
        """The path, which of a sequential node is another one than was asked for."""
        return _as(Created, self.ask(create_request(path, data, flags, acl, ttl_ms))).path

    def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        return _as(Stat, self.ask(requests.SetData(path, data, version)))

    def delete(self, path: str, version: int = -1) -> None:
        self.ask(requests.Delete(path, version))

    def set_acl(self, path: str, acl: Sequence[Acl], version: int = -1) -> Stat:
        return _as(Stat, self.ask(requests.SetAcl(path, tuple(acl), version)))

    def multi(self, steps: Sequence[Step]) -> list[StepResult]:
        """All or nothing: the error is that of the step which failed."""
        done = _as(MultiDone, self.ask(requests.Multi(tuple(steps))))
        if done.failed is not None:
            place, code = done.failed
            raise ZooKeeperError(code, steps[place].path)
        return done.steps

    # ── reads ────────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, path: str, watcher: Hashable = None) -> Data:
        return _as(Data, self._read(codes.GET_DATA, path, watcher))

    def exists(self, path: str, watcher: Hashable = None) -> Stat | None:
        try:
            return _as(Stat, self._read(codes.EXISTS, path, watcher))
        except ZooKeeperError as error:
            if error.code == codes.NO_NODE:
                return None
            raise

    def children(self, path: str, watcher: Hashable = None) -> Children:
        """With the stat of the node."""
        return _as(Children, self._read(codes.GET_CHILDREN2, path, watcher))

    def acl(self, path: str) -> AclOfNode:
        return _as(AclOfNode, self._read(codes.GET_ACL, path, None))

    def sync(self, path: str) -> None:
        """What this client reads next is no older than what anybody was answered before."""
        self._read(codes.SYNC, path, None)

    def count_below(self, path: str) -> int:
        return _as(int, self._read(codes.GET_ALL_CHILDREN_NUMBER, path, None))

    def ephemerals(self, prefix: str = "/") -> list[str]:
        """Of this session."""
        return _as(Paths, self._read(codes.GET_EPHEMERALS, prefix, None)).paths

    def read_many(self, steps: Sequence[requests.Read]) -> list[ReadResult]:
        """getData and getChildren, several at once, each with an answer or an error of its own."""
        return _as(Reads, self.ask(requests.MultiRead(tuple(steps)))).results

    def who_am_i(self) -> list[Identity]:
        return _as(Identities, self.ask(requests.Plain(codes.WHO_AM_I))).who

    def _read(self, kind: int, path: str, watcher: Hashable) -> Result:
        return self.ask(requests.Read(kind, path, watcher is not None), watcher)

    def reconfigure(
        self,
        *,
        joining: str | None = None,
        leaving: str | None = None,
        members: str | None = None,
        version: int = -1,
    ) -> Data:
        """Changes an ensemble, which must allow it; the new configuration."""
        return _as(Data, self.ask(requests.Reconfig(joining, leaving, members, version)))

    # ── watches that stay ────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, path: str, watcher: Hashable, *, recursive: bool = True) -> None:
        mode = codes.PERSISTENT_RECURSIVE_WATCH if recursive else codes.PERSISTENT_WATCH
        self.ask(requests.AddWatch(path, mode), watcher)

    def unwatch(self, path: str, meant: int = codes.WATCHER_ANY) -> None:
        self.ask(requests.Watches(codes.REMOVE_WATCHES, path, meant))


def _as(kind: type[Kind], result: Result) -> Kind:
    if not isinstance(result, kind):
        raise InvariantError(f"an answer is {type(result).__name__}, not {kind.__name__}")
    return result
