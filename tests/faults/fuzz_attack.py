"""Clients that send fuzzed requests side by side, and what they saw of the broker.

Each attacker has a seed of its own and goes on by itself: it pipelines some good requests, waits for their answers,
and then sends a mutated one and the end of the connection. A good request must be answered, with bytes that its schema
explains; after a mutated one the broker must close, sooner or later. Whatever else happens is a problem.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from fuzz_mutations import framed, mutated
from fuzz_requests import Request, Requests
from fuzz_world import LEARNED_FROM, World
from waits import WAIT_S_MAX

from headrace.protocol import messages

PATIENCE_S = 0.15  # then a connection is left whose requests wait for others (a group's members, a fetch): no verdict
PIPELINED_MAX = 6
READ_SHARE = 0.25  # of the answers, besides those that something is learned from
PARTING_SHARE = 0.9  # of conversations that end with a mutated request
API_VERSIONS = 18
MAKES_PARTITIONS = (19, 37)  # one flipped bit makes thousands of them, which takes a second: seldom
_FENCE = struct.pack(">hhih", API_VERSIONS, 0, -7, -1)


@dataclass
class Seen:
    """What all attackers saw, added up."""

    sent: Counter[tuple[int, int]] = field(default_factory=Counter)  # good requests by API and version
    answered: Counter[int] = field(default_factory=Counter)
    mutated: int = 0
    left_waiting: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def frames(self) -> int:
        return self.sent.total() + self.mutated

    def add(self, other: Seen) -> None:
        self.sent += other.sent
        self.answered += other.answered
        self.mutated += other.mutated
        self.left_waiting += other.left_waiting
        self.problems += other.problems


class Attacker:
    def __init__(
        self, address: tuple[str, int], world: World, seed: str, served: Sequence[tuple[int, int, int]]
    ) -> None:
        self.seen = Seen()
        self._address = address
        self._world = world
        self._rng = random.Random(seed)
        self._reading_rng = random.Random(seed)  # how many answers there are depends on the broker
        self._requests = Requests(world, self._rng, served)
        self._socket: socket.socket | None = None
        self._may_close = False  # something was sent on this connection that can only be refused by its end
        self._stopping = threading.Event()

    def run(self, frames: int, *, first: Sequence[Request] = ()) -> None:
        """Sends so many frames, those in `first` before others; ends early at a problem."""
        waiting = deque(first)
        wanted = self.seen.frames + frames
        try:
            while self.seen.frames < wanted and not self.seen.problems and not self._stopping.is_set():
                count = self._rng.randrange(PIPELINED_MAX)
                chunk = [waiting.popleft() if waiting else self._requests.make() for _ in range(count)]
                self._converse(chunk)
                if self._rng.random() < PARTING_SHARE:
                    self._part()
            self._leave()
        except Exception as error:
            self.seen.problems.append(f"the attacker itself failed: {error!r}")

    def every_version(self) -> list[Request]:
        return self._requests.every_version()

    def stop(self) -> None:
        self._stopping.set()

    # ── a conversation ───────────────────────────────────────────────────────────────────────────────────────────

    def _converse(self, chunk: Sequence[Request]) -> None:
        """Sends them at once and reads the answers, up to the answer to a last, plain request."""
        for request in chunk:
            self.seen.sent[request.api_key, request.version] += 1
        sock = self._connected()
        self._may_close = self._may_close or not all(request.is_answered for request in chunk)
        expected = deque(request for request in chunk if request.is_answered)
        buffer = bytearray()
        try:
            sock.sendall(b"".join(framed(request.payload) for request in chunk) + framed(_FENCE))
            while True:
                answer = self._read_answer(sock, buffer)
                if answer is None:
                    self._closed_early(expected)
                    return
                if not expected:
                    break
                self._answered(expected.popleft(), answer)
        except TimeoutError:
            self.seen.left_waiting += 1
            self._leave()
            return
        except ConnectionError:
            self._closed_early(expected)
            return
        if answer[:4] != _FENCE[4:8]:
            self.seen.problems.append(f"an answer too many after {[request.name for request in chunk]}")

    def _closed_early(self, expected: deque[Request]) -> None:
        """Right only where a Produce without acknowledgement could not be done: it has no other way to say so."""
        self._leave()
        if not self._may_close:
            unanswered = [f"{request.name}: {request.payload.hex()}" for request in expected]
            self.seen.problems.append(
                "\n".join(["closed the connection at good requests, unanswered are", *unanswered])
            )

    def _answered(self, request: Request, answer: bytes) -> None:
        self.seen.answered[request.api_key] += 1
        if answer[:4] != request.payload[4:8]:
            self.seen.problems.append(f"{request.name}: the answer has another correlation id")
            return
        is_learned_from = request.api_key in LEARNED_FROM
        if self._reading_rng.random() < READ_SHARE or is_learned_from:
            try:
                _, body = messages.decode_response(request.api_key, request.version, answer)
            except ValueError as error:
                self.seen.problems.append(f"{request.name}: the answer cannot be read: {error}")
                return
            if is_learned_from:
                self._world.learn(request.api_key, request.cast, body)

    def _part(self) -> None:
        """A mutated request, then the end: the broker answers or not, and closes."""
        request, other = self._requests.make(), self._requests.make()
        is_kept = self._rng.random() < 0.2
        if request.api_key in MAKES_PARTITIONS and not is_kept:
            request = self._requests.make(API_VERSIONS)
        frame = mutated(request.payload, other.payload, random.Random(self._rng.getrandbits(64)))
        self.seen.mutated += 1
        sock = self._connected()
        try:
            sock.settimeout(WAIT_S_MAX)
            sock.sendall(frame)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        except TimeoutError:
            self.seen.problems.append(f"still open {WAIT_S_MAX:g} s after {frame.hex()}")
        except OSError:
            pass  # reset, or closed before our own end
        self._leave()

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────────

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=WAIT_S_MAX)
            self._may_close = False
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(PATIENCE_S)
        return self._socket

    def _leave(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @staticmethod
    def _read_answer(sock: socket.socket, buffer: bytearray) -> bytes | None:
        """The next answer without its length; None at the end of the connection."""
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            data = sock.recv(1 << 18)
            if not data:
                return None
            buffer += data
        end = 4 + int.from_bytes(buffer[:4], "big")
        answer = bytes(buffer[4:end])
        del buffer[:end]
        return answer


class Attack:
    """Attackers on threads of their own, from `start` to `join`."""

    def __init__(
        self, bootstrap: str, world: World, seed: int, attackers: int, served: Sequence[tuple[int, int, int]]
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._attackers = [
            Attacker((host, int(port)), world, f"{seed} {number}", served) for number in range(attackers)
        ]
        self._threads: list[threading.Thread] = []

    def start(self, frames: int, *, every_version: bool = False) -> None:
        share = -(-frames // len(self._attackers))
        first = self._attackers[0].every_version() if every_version else []
        for number, attacker in enumerate(self._attackers):
            some = first[number :: len(self._attackers)]
            thread = threading.Thread(target=attacker.run, args=(share,), kwargs={"first": some}, daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def wait(self, seconds: float) -> None:
        """For the end, at most so long."""
        self._threads[0].join(seconds)

    def join(self) -> None:
        for attacker in self._attackers:
            if any(each.seen.problems for each in self._attackers):
                attacker.stop()
        for thread in self._threads:
            thread.join(2 * WAIT_S_MAX)
            assert not thread.is_alive(), "an attacker hangs"
        self._threads.clear()

    @property
    def seen(self) -> Seen:
        total = Seen()
        for attacker in self._attackers:
            total.add(attacker.seen)
        return total
