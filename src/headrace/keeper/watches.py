"""Who waits for which node to change. No IO: events in, the watchers to tell out.

A watch set by a read goes with the first event that it reports. One set by addWatch stays until it is removed:
`persistent` reports the node and its children, `recursive` the node and everything below, but no change of children.
A child watch reports that children came or went, or that the node itself went; never a child's data. A watcher with
several watches on a node hears of one event once.
"""

from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

from headrace.protocol.zookeeper import codes, paths

Watcher = TypeVar("Watcher", bound=Hashable)
DATA, CHILD, PERSISTENT, RECURSIVE = range(4)

_MEANT: Final = {
    codes.WATCHER_CHILDREN: (CHILD,),
    codes.WATCHER_DATA: (DATA,),
    codes.WATCHER_PERSISTENT: (PERSISTENT,),
    codes.WATCHER_PERSISTENT_RECURSIVE: (RECURSIVE,),
    codes.WATCHER_ANY: (DATA, CHILD, PERSISTENT, RECURSIVE),
}


class Own:
    """The watches of one watcher."""

    __slots__ = ("characters", "watches")

    def __init__(self) -> None:
        self.watches: set[tuple[int, str]] = set()
        self.characters = 0  # of their paths


class Watches(Generic[Watcher]):
    def __init__(self) -> None:
        self._by_path: tuple[dict[str, dict[Watcher, None]], ...] = ({}, {}, {}, {})
        self._by_watcher: dict[Watcher, Own] = {}
        self.count = 0

    def count_of(self, watcher: Watcher) -> int:
        own = self._by_watcher.get(watcher)
        return len(own.watches) if own is not None else 0

    def characters_of(self, watcher: Watcher) -> int:
        own = self._by_watcher.get(watcher)
        return own.characters if own is not None else 0

    def add(self, kind: int, path: str, watcher: Watcher) -> None:
        own = self._by_watcher.get(watcher)
        if own is None:
            own = self._by_watcher[watcher] = Own()
        watch = (kind, path)
        if watch not in own.watches:
            own.watches.add(watch)
            own.characters += len(path)
            self._by_path[kind].setdefault(path, {})[watcher] = None
            self.count += 1

    def _discard(self, kind: int, path: str, watcher: Watcher) -> bool:
        own = self._by_watcher.get(watcher)
        if own is None or (kind, path) not in own.watches:
            return False
        self._drop(own, (kind, path), watcher)
        here = self._by_path[kind][path]
        del here[watcher]
        if not here:
            del self._by_path[kind][path]
        self.count -= 1
        return True

    def _drop(self, own: Own, watch: tuple[int, str], watcher: Watcher) -> None:
        own.watches.discard(watch)
        own.characters -= len(watch[1])
        if not own.watches:
            del self._by_watcher[watcher]

    def forget(self, watcher: Watcher) -> None:
        own = self._by_watcher.get(watcher)
        if own is not None:
            for kind, path in list(own.watches):
                self._discard(kind, path, watcher)

    def has(self, meant: int, path: str, watcher: Watcher) -> bool:
        own = self._by_watcher.get(watcher)
        return own is not None and any((kind, path) in own.watches for kind in _MEANT.get(meant, ()))

    def remove(self, meant: int, path: str, watcher: Watcher) -> bool:
        """Whether there was one."""
        found = [self._discard(kind, path, watcher) for kind in _MEANT.get(meant, ())]
        return any(found)

    def told_by(self, event: int, path: str) -> dict[Watcher, None]:
        """Those who are told of an event, each once; watches that report once are gone after this."""
        told: dict[Watcher, None] = {}
        if event != codes.NODE_CHILDREN_CHANGED:
            self._fire(DATA, path, told)
        if event in (codes.NODE_CHILDREN_CHANGED, codes.NODE_DELETED):
            self._fire(CHILD, path, told)
        told.update(self._by_path[PERSISTENT].get(path, {}))
        if event != codes.NODE_CHILDREN_CHANGED and self._by_path[RECURSIVE]:
            for above in paths.upwards(path):
                told.update(self._by_path[RECURSIVE].get(above, {}))
        return told

    def _fire(self, kind: int, path: str, told: dict[Watcher, None]) -> None:
        here = self._by_path[kind].pop(path, None)
        if here is None:
            return
        told.update(here)
        self.count -= len(here)
        watch = (kind, path)
        for watcher in here:
            self._drop(self._by_watcher[watcher], watch, watcher)

    # ── for people ───────────────────────────────────────────────────────────────────────────────────────────────

    def watcher_count(self) -> int:
        return len(self._by_watcher)

    def path_count(self) -> int:
        return len(set().union(*self._by_path))

    def by_watcher(self) -> Iterator[tuple[Watcher, list[str]]]:
        for watcher, own in self._by_watcher.items():
            yield watcher, sorted({path for _, path in own.watches})

    def by_path(self) -> Iterator[tuple[str, list[Watcher]]]:
        for path in sorted(set().union(*self._by_path)):
            found: dict[Watcher, None] = {}
            for kind in self._by_path:
                found.update(kind.get(path, {}))
            yield path, list(found)
