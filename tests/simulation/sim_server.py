"""What the simulated worlds of a broker and of a keeper share: connections, turns of the loop, threads, what breaks.

Each step is one thing that may happen, chosen with the world's random numbers. Nothing else is random and nothing real
is waited for, so a seed replays what it did.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar

from sim_disk import BROKEN, Crash, SimDisk
from sim_network import Link
from violations import ViolationError

from headrace.core.clock import ManualClock

Node = TypeVar("Node")
Client = TypeVar("Client")


class ServerWorld(Generic[Node, Client]):
    server = "server"  # as messages call it
    disk: SimDisk

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.node: Any = None
        self.calm = True  # nothing breaks
        self.clients: list[Client] = []
        self.trace: list[str] = []
        self._links: list[Link] = []

    @contextmanager
    def _directory(self) -> Iterator[ExitStack]:
        """Where the disk lies; whoever lives there is buried, and nothing is logged."""
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self._root = tempfile.mkdtemp(prefix="headrace-simulation-", dir=base)
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._root, True)
            stack.callback(self._bury)
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.CRITICAL)
            yield stack

    # ── what a world adds ────────────────────────────────────────────────────────────────────────────────────────

    def _welcome(self, link: Link) -> None:
        """The server accepts a connection."""
        raise NotImplementedError

    def _close_locks(self, node: Node) -> None:
        """As the end of a process does."""
        raise NotImplementedError

    def _lose_power(self) -> None:
        """By chance, or not."""
        raise NotImplementedError

    def _turned(self) -> None:
        """After a turn of the loop."""

    # ── one step ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _steps(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen to the loop, its threads and its connections, with weights."""
        choices: list[tuple[float, Callable[[], None]]] = []
        if self.node is not None:
            reactor = self.node.reactor
            if reactor.has_results or any(link.busy or link.socket.inbox for link in self._links):
                choices.append((5, self._turn))
            if reactor.jobs():
                choices.append((3, self._job))
        return choices

    def _deliveries(self) -> list[tuple[float, Callable[[], None]]]:
        return [(5, self._deliver)] if any(link.socket.outbox or link.socket.closed for link in self._links) else []

    def _take(self, choices: list[tuple[float, Callable[[], None]]]) -> str:
        """One of them; its name."""
        actions = [action for _, action in choices]
        action = self.rng.choices(actions, [weight for weight, _ in choices])[0]
        self.trace.append(action.__name__)
        try:
            action()
        except Crash:
            self._died()
        return action.__name__

    def _guarded(self, work: Callable[[], object]) -> None:
        """What the server does; an error that comes out of it would have ended it."""
        try:
            work()
        except ViolationError:
            raise
        except Exception as error:
            what = f"the {self.server} ended itself: {error!r}\n{traceback.format_exc()}"
            raise ViolationError(what) from error

    def _turn(self) -> None:
        node = self.node
        if node is None:
            return
        links = self._links[:]
        self.rng.shuffle(links)
        events = []
        for link in links:
            socket = link.socket
            if link.up and self.rng.random() < 0.7:
                size = len(link.up) if self.rng.random() < 0.9 else self.rng.randint(1, len(link.up))
                socket.inbox += link.up[:size]
                del link.up[:size]
            elif link.left and not link.up and not socket.inbox:
                socket.ended = True
            mask = socket.events(node.reactor.interest.get(socket.fileno(), 0))
            if mask:
                events.append((socket.fileno(), mask))
        self._guarded(lambda: node.reactor.turn(events))
        self._links = [link for link in self._links if not (link.left and link.socket.closed)]
        self._turned()

    def _job(self) -> None:
        lane, at = self.rng.choice(self.node.reactor.jobs())
        self._guarded(lambda: lane.run_one(at))

    def _deliver(self) -> None:
        """Answers, or the end of a connection, reach a client."""
        ready = [link for link in self._links if link.socket.outbox or link.socket.closed]
        self.rng.shuffle(ready)
        for link in ready[: self.rng.randint(1, len(ready))]:
            outbox = link.socket.outbox
            if outbox:
                size = len(outbox) if self.rng.random() < 0.9 else self.rng.randint(1, len(outbox))
                data = bytes(outbox[:size])
                del outbox[:size]
                if not link.left:
                    link.client.received(link, data)
            else:
                self._links.remove(link)
                if not link.left:
                    link.client.lost(link)

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, client: Any) -> Link | None:
        if self.node is None:
            return None
        link = Link(client, self.rng.choice(self.rooms))
        self._guarded(lambda: self._welcome(link))
        self._links.append(link)
        return link

    rooms = (150, 1 << 20, 1 << 20)  # bytes that the client's end takes

    def leave(self, link: Link) -> None:
        """Its client has given it up. What is on its way is lost, or comes later."""
        link.left = True
        if not link.client.stragglers or self.rng.random() < 0.5:
            link.up.clear()

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _cut(self) -> None:
        """A connection is lost: with a request on its way, or with an answer."""
        candidates = [link for link in self._links if not link.left]
        if candidates:
            link = self.rng.choice(candidates)
            client = link.client
            self.leave(link)
            client.lost(link)

    def _kill(self) -> None:
        raise Crash

    def _stop(self) -> None:
        """A clean stop."""
        node = self.node
        self._guarded(node.close)
        self.node = None
        self._all_links_end()

    def _break_disk(self) -> None:
        kind = self.rng.choice(("full", "full", "write", "sync", "crash", "crash", "crash"))
        if kind == "full":
            self._fill_disk()
        elif kind == "crash":
            self.disk.crash_in = self.rng.randint(0, 12)
        else:
            self.disk.refusals.append((kind, BROKEN))
            self._disk_is_broken()

    def _fill_disk(self) -> None:
        raise NotImplementedError

    def _disk_is_broken(self) -> None:
        """A write or a sync will fail."""

    def _died(self) -> None:
        self._bury()
        self._lose_power()
        self._all_links_end()

    def _bury(self) -> None:
        node, self.node = self.node, None
        self.disk.process_died()
        if node is not None:
            self._close_locks(node)

    def _all_links_end(self) -> None:
        links, self._links = self._links, []
        self.rng.shuffle(links)
        for link in links:
            if not link.left:
                if link.socket.outbox and self.rng.random() < 0.5:
                    link.client.received(link, bytes(link.socket.outbox))
                link.client.lost(link)
