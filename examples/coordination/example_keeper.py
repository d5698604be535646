"""The keeper of the examples: the one whose address is given, or one of their own that goes away with them."""

import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient

import headrace

WAIT_S = 60.0


@contextmanager
def address() -> Iterator[str]:
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    with headrace.Keeper() as keeper:
        yield keeper.hosts


@contextmanager
def client(hosts: str) -> Iterator[KazooClient]:
    """One process of a system; each has a session of its own."""
    made = KazooClient(hosts=hosts, timeout=30)
    made.start(WAIT_S)
    try:
        yield made
    finally:
        made.stop()
        made.close()


@contextmanager
def place(hosts: str, name: str) -> Iterator[str]:
    """A node of the example's own, so that it can be run again and again."""
    path = f"/examples/{name}-{uuid.uuid4().hex[:8]}"
    with client(hosts) as zk:
        zk.ensure_path(path)
        yield path
        zk.delete(path, recursive=True)


class Seen:
    """What a watch has reported, for a thread that waits for something of it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._last: object = None

    def __call__(self, value: object, *_: object) -> None:
        with self._changed:
            self._last = value
            self._changed.notify_all()

    def wait_for(self, is_wanted: Callable[[object], bool]) -> object:
        with self._changed:
            if not self._changed.wait_for(lambda: is_wanted(self._last), WAIT_S):
                raise TimeoutError(f"it did not come about; last seen: {self._last!r}")
            return self._last
