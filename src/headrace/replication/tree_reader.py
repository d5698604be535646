"""Keeps a view of the tree as new as the tree, by watches that stay: what is told of as changed is read again.

ZooKeeper answers and reports in one order: an event comes before any answer that shows the change. So the last answer
about a znode is the newest, and whoever reads again after each event misses nothing. A connection that broke may have
missed events: everything is read again, after a `sync`, and what is not found any more is gone. Until that is done the
view is `current` no more, and a controller that is about to decide waits; those who serve go on with what they know.

Reads are bounded in number, and a znode that changes ten times while it waits to be read is read once.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from headrace.client.zookeeper.errors import TooManyRequestsError, ZooKeeperError
from headrace.client.zookeeper.events import Changed
from headrace.core.telemetry import event as log_event
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.results import Children, Data, Result
from headrace.replication import znodes
from headrace.replication.dialogue import Asking
from headrace.replication.tree_view import TreeView, is_read

READS_MAX: Final = 256  # without an answer
WATCHED: Final = (znodes.BROKERS, "/config", znodes.DELETED_TOPICS, znodes.CONTROLLER)
LISTED: Final = (
    znodes.BROKER_IDS,
    znodes.TOPICS,
    znodes.TOPIC_SETTINGS,
    znodes.BROKER_SETTINGS,
    znodes.DELETED_TOPICS,
)

# The connection or the session is gone: the next one reads everything again.
GONE: Final = (codes.CONNECTION_LOSS, codes.SESSION_EXPIRED, codes.AUTH_FAILED, codes.SESSION_MOVED)

logger = logging.getLogger(__name__)


class TreeReader:
    def __init__(
        self, view: TreeView, call_soon: Callable[[Callable[[], None]], None], on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called once per turn in which the view has changed or has become current."""
        self.view = view
        self.is_current = False  # everything was read since the connection was made, and nothing waits to be read
        self._call_soon = call_soon
        self._on_change = on_change
        self._client: Asking | None = None
        self._round = 0  # what an earlier connection was asked counts no more
        self._is_loaded = False
        self._listing = 0  # questions of this round's load without an answer
        self._known: set[str] = set()
        self._seen: set[str] = set()  # in this round
        self._wanted: dict[str, None] = {}
        self._reading = 0
        self._is_telling = False

    def connected(self, client: Asking, *, is_new: bool) -> None:
        """The session is there, or there again; `is_new`: it has no watches yet."""
        self._round += 1
        self._client = client
        self.is_current = self._is_loaded = False
        self._seen.clear()
        self._wanted.clear()
        self._reading = 0
        self._listing = 1
        if is_new:
            for path in WATCHED:
                mode = codes.PERSISTENT_RECURSIVE_WATCH
                self._ask(requests.AddWatch(path, mode), partial(self._watched, path), True)
        self._ask(requests.Read(codes.SYNC, "/", False), lambda _, code: self._list() if code == codes.OK else None)

    def disconnected(self) -> None:
        """What is known stays known, and is not to be decided by."""
        self._round += 1
        self._client = None
        self.is_current = False

    def read_again(self, path: str) -> None:
        """Somebody's write was refused: what is known of this znode is not what it holds."""
        self._want(path)

    # ── everything ───────────────────────────────────────────────────────────────────────────────────────────────

    def _watched(self, path: str, _: Result, code: int) -> None:
        if code != codes.OK:
            log_event(logger, logging.ERROR, "the tree cannot be watched", path=path, code=code)

    def _list(self) -> None:
        for path in LISTED:
            self._listing += 1
            self._ask(
                requests.Read(codes.GET_CHILDREN2, path, False),
                partial(self._listed, path),
            )
        self._want(znodes.CONTROLLER)
        self._listing -= 1

    def _listed(self, path: str, result: Result, code: int) -> None:
        if code not in (codes.OK, codes.NO_NODE):
            return  # the connection is gone, and the next one begins again
        self._listing -= 1
        if isinstance(result, Children):
            for name in result.names:
                self._want(f"{path}/{name}")
        self._end_of_load()

    def _end_of_load(self) -> None:
        if self._listing or self._wanted or self._reading or self.is_current:
            return
        if not self._is_loaded:
            self._is_loaded = True
            for path in self._known - self._seen:
                self._forget(path)
        self.is_current = True
        self._tell()

    # ── one znode ────────────────────────────────────────────────────────────────────────────────────────────────

    def changed(self, event: Changed) -> None:
        """What a watch reports."""
        if not is_read(event.path):
            return
        if event.kind == codes.NODE_DELETED:
            self._wanted.pop(event.path, None)
            self._seen.discard(event.path)
            self._forget(event.path)
        elif event.kind in (codes.NODE_CREATED, codes.NODE_DATA_CHANGED):
            self._want(event.path)

    def _want(self, path: str) -> None:
        self._wanted[path] = None
        self.is_current = False
        self._read_more()

    def _read_more(self) -> None:
        while self._wanted and self._reading < READS_MAX and self._client is not None:
            path = next(iter(self._wanted))
            del self._wanted[path]
            self._reading += 1
            self._ask(
                requests.Read(codes.GET_DATA, path, False),
                partial(self._read, path),
            )

    def _read(self, path: str, result: Result, code: int) -> None:
        if isinstance(result, Data):
            self._put(path, result)
        elif code == codes.NO_NODE:
            self._seen.discard(path)
            self._forget(path)
        elif code in GONE:
            return
        else:
            log_event(logger, logging.ERROR, "a znode cannot be read: what was known of it stays", path=path, code=code)
        self._reading -= 1
        self._read_more()
        self._end_of_load()

    def _put(self, path: str, found: Data) -> None:
        is_new = path not in self._seen
        self._known.add(path)
        self._seen.add(path)
        try:
            self.view.put(path, found.data or b"", found.stat.version)
        except znodes.ForeignError as error:
            log_event(logger, logging.ERROR, "a znode makes no sense: what was known of it stays", reason=str(error))
            return
        if is_new or not self._is_loaded:
            for state in self.view.states_of(path):
                if state not in self._seen:
                    self._want(state)
        self._tell()

    def _forget(self, path: str) -> None:
        self._known.discard(path)
        self.view.remove(path)
        self._tell()

    # ── asking and telling ───────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, request: requests.Request, done: Callable[[Result, int], None], watches: bool = False) -> None:
        if self._client is None:
            return
        round_number = self._round

        def answered(result: Result, error: ZooKeeperError | TooManyRequestsError | None) -> None:
            if round_number != self._round:
                return
            if isinstance(error, TooManyRequestsError):
                self._call_soon(lambda: self._ask(request, done, watches) if round_number == self._round else None)
                return
            done(result, codes.OK if error is None else error.code)

        self._client.ask(request, answered, self.changed if watches else None)

    def _tell(self) -> None:
        if not self._is_telling:
            self._is_telling = True
            self._call_soon(self._tell_now)

    def _tell_now(self) -> None:
        self._is_telling = False
        self._on_change()
