"""Who may run a version whose files lie in an object store, where the kernel has no locks to give.

The lease is one object with the name of its holder and the time until which it holds. It is written only if nobody
wrote it since it was read, renewed while the holder lives, and free when its time is over; on the holder's own machine
it is free as soon as the process is gone. A holder that could not renew it in time stops.
"""

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from headrace.core.errors import OperatorError
from headrace.tables.object_store import ObjectStore, StoreError, object_store

HELD_S = 30.0
RENEW_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    token: str
    host: str
    pid: int
    until_s: float  # of the wall clock, which machines that share a store keep in step

    def holds(self, now_s: float, host: str) -> bool:
        return now_s < self.until_s and (self.host != host or _alive(self.pid))


class Lease:
    def __init__(self, path: str) -> None:
        self._path = path
        self._store: ObjectStore = object_store(path)
        self._host = socket.gethostname()
        self._token = secrets.token_hex(8)
        self._tag: str | None = None
        self._until_s = 0.0
        self._done = threading.Event()
        self.lost: str | None = None

    def holder(self) -> Holder | None:
        """Who holds it now, if anybody does."""
        found = self._look()
        return found if found is not None and found.holds(time.time(), self._host) else None

    def take(self) -> Holder | None:
        """None when it is ours from now on, else who has it."""
        other = self.holder()
        if other is not None:
            return other
        if self._write(HELD_S):
            return None
        return self.holder() or self.take()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renews it for the length of the block, then gives it back."""
        thread = threading.Thread(target=self._renew, name="headrace-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()
            if self.lost is None:
                self._write(0.0)

    def _renew(self) -> None:
        while not self._done.wait(RENEW_S):
            try:
                if not self._write(HELD_S):
                    self.lost = "another process has taken its lease"
                    return
            except StoreError as error:
                if time.time() >= self._until_s:
                    self.lost = f"its lease could not be renewed in time: {error}"
                    return

    def _look(self) -> Holder | None:
        found = self._store.read_tagged(self._path)
        self._tag = found.tag if found is not None else None
        if found is None:
            return None
        try:
            return Holder(**json.loads(found.data))
        except (ValueError, TypeError) as error:
            raise OperatorError(f"{self._path}: not a lease ({error}); remove it") from error

    def _write(self, held_s: float) -> bool:
        until_s = time.time() + held_s
        holder = Holder(token=self._token, host=self._host, pid=os.getpid(), until_s=until_s)
        tag = self._store.write_if(self._path, json.dumps(asdict(holder)).encode(), self._tag)
        if tag is None:
            # The answer to our own last write may have been lost on its way.
            found = self._look()
            if found is None or found.token != self._token:
                return False
            self._until_s = found.until_s
            return True
        self._tag, self._until_s = tag, until_s
        return True


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
