"""Who on the client's side waits for which node. No IO: what was answered and what was reported in, whom to tell out.

A watch is registered by the answer that set it, not by the request: if that answer is lost, nobody has promised
anything. One-shot watches go with their event; those of addWatch stay. At a new connection all of them are set again,
together with the last zxid that was seen, so that the server reports at once what was missed meanwhile; for persistent
watches it cannot, and who uses them reads again when a session is CONNECTED again. Paths are those of the server.
"""

from collections.abc import Hashable, Iterator
from typing import Final

from headrace.protocol.zookeeper import codes, paths, requests

SET_WATCHES_BYTES_MAX: Final = 128 << 10  # about, in one request
DATA, EXIST, CHILD, PERSISTENT, RECURSIVE = range(5)

Watcher = Hashable

_MEANT: Final = {
    codes.WATCHER_CHILDREN: (CHILD,),
    codes.WATCHER_DATA: (DATA, EXIST),
    codes.WATCHER_PERSISTENT: (PERSISTENT,),
    codes.WATCHER_PERSISTENT_RECURSIVE: (RECURSIVE,),
    codes.WATCHER_ANY: (CHILD, DATA, EXIST, PERSISTENT, RECURSIVE),
}
_REMOVED: Final = {
    DATA: codes.DATA_WATCH_REMOVED,
    EXIST: codes.DATA_WATCH_REMOVED,
    CHILD: codes.CHILD_WATCH_REMOVED,
    PERSISTENT: codes.PERSISTENT_WATCH_REMOVED,
    RECURSIVE: codes.PERSISTENT_WATCH_REMOVED,
}


class Watchers:
    def __init__(self) -> None:
        self._tables: tuple[dict[str, dict[Watcher, None]], ...] = ({}, {}, {}, {}, {})

    @property
    def count(self) -> int:
        """Watched paths, each as often as it is watched in another way."""
        return sum(map(len, self._tables))

    # ── set and removed ──────────────────────────────────────────────────────────────────────────────────────────

    def answered(self, request: requests.Request, code: int, watcher: Watcher) -> None:
        """The server has this watch now, if the request has set one."""
        table = _table_of(request, code)
        if table is not None and isinstance(request, requests.Read | requests.AddWatch):
            self._tables[table].setdefault(request.path, {})[watcher] = None

    def remove(self, meant: int, path: str) -> list[tuple[int, tuple[Watcher, ...]]]:
        """What was removed: the kind of event that says so, and those who are told."""
        told: dict[int, dict[Watcher, None]] = {}
        for table in _MEANT.get(meant, ()):
            found = self._tables[table].pop(path, None)
            if found is not None:
                told.setdefault(_REMOVED[table], {}).update(found)
        return [(kind, tuple(watchers)) for kind, watchers in told.items()]

    # ── told ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def told_by(self, event: int, path: str) -> tuple[Watcher, ...]:
        """Those who are told of an event, each once; watches that report once are gone after this."""
        told: dict[Watcher, None] = {}
        if event != codes.NODE_CHILDREN_CHANGED:
            told.update(self._tables[DATA].pop(path, {}))
            told.update(self._tables[EXIST].pop(path, {}))
        if event in (codes.NODE_CHILDREN_CHANGED, codes.NODE_DELETED):
            told.update(self._tables[CHILD].pop(path, {}))
        told.update(self._tables[PERSISTENT].get(path, {}))
        if event != codes.NODE_CHILDREN_CHANGED and self._tables[RECURSIVE]:
            for above in _upwards(path):
                told.update(self._tables[RECURSIVE].get(above, {}))
        return tuple(told)

    # ── set again ────────────────────────────────────────────────────────────────────────────────────────────────

    def set_again(self, last_zxid: int) -> Iterator[requests.SetWatches]:
        """All of them, in requests of a bounded size."""
        lists: tuple[list[str], ...] = ([], [], [], [], [])
        size = 0
        for table, watched in enumerate(self._tables):
            for path in watched:
                lists[table].append(path)
                size += 4 + len(path)
                if size >= SET_WATCHES_BYTES_MAX:
                    yield requests.SetWatches(last_zxid, *lists)
                    lists, size = ([], [], [], [], []), 0
        if size:
            yield requests.SetWatches(last_zxid, *lists)


def _table_of(request: requests.Request, code: int) -> int | None:
    if isinstance(request, requests.AddWatch):
        if code != codes.OK:
            return None
        return RECURSIVE if request.mode == codes.PERSISTENT_RECURSIVE_WATCH else PERSISTENT
    if not isinstance(request, requests.Read) or not request.watch:
        return None
    if request.kind == codes.EXISTS and code == codes.NO_NODE:
        return EXIST
    if code != codes.OK:
        return None
    return CHILD if request.kind in (codes.GET_CHILDREN, codes.GET_CHILDREN2) else DATA


def _upwards(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = paths.parent(path)
    yield "/"
