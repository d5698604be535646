"""One session with ZooKeeper, without IO: bytes and the time in; bytes, answers, events and what to connect to out.

Whoever drives it does what `take_actions` says, sends `take_bytes`, hands in what came (`opened`, `received`, `lost`),
calls `tick` at `deadline_ms`, and tells people `take_events` in their order: the answer that set a watch comes before
its event, and an event before any answer that shows the change.

Requests are sent at once, in their order, and answered in it. While there is no connection they wait, at most until
every server was tried once more. What was sent on a connection that breaks fails with CONNECTION_LOSS: only the caller
knows whether it may be asked again. Watches and credentials are shown again to the next server before anything else.
`states` has the life of a session. The caller's threads are its own business: this is one object without a lock.
"""

from collections.abc import Hashable, Iterator
from random import Random
from typing import Final, NamedTuple

from headrace.client.zookeeper import chroot
from headrace.client.zookeeper.connect_string import ConnectString, name_of
from headrace.client.zookeeper.errors import TooManyRequestsError, ZooKeeperError
from headrace.client.zookeeper.events import (
    Action,
    Answered,
    Changed,
    Connect,
    Drop,
    Event,
    Refused,
    StateChanged,
    Unreachable,
)
from headrace.client.zookeeper.pending import PENDING_MAX, Pending, PendingRequests
from headrace.client.zookeeper.servers import Servers
from headrace.client.zookeeper.states import ENDED, Input, State, following
from headrace.client.zookeeper.watchers import Watchers
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.framing import Frames
from headrace.protocol.zookeeper.jute import MalformedError, Reader
from headrace.protocol.zookeeper.request_bytes import connect_frame, request_frame
from headrace.protocol.zookeeper.results import Header, read_header, read_notice, read_result, read_welcome

WATCHED_MAX: Final = 100_000  # as many as our keeper takes from one connection
CREDENTIALS_MAX: Final = 64
ANSWER_BYTES_MAX: Final = 64 << 20
TIMEOUT_MS: Final = 30_000  # asked for; the server may give another
XID_MAX: Final = 0x7FFFFFFF
_SILENT: Final = ENDED | {State.CONNECTING}  # nothing more is read from a connection that was given up


class Resumed(NamedTuple):
    """A session of an earlier process, to go on with."""

    id: int
    password: bytes


class Session:
    def __init__(
        self,
        connect: ConnectString,
        *,
        now_ms: int,
        choose: Random,
        timeout_ms: int = TIMEOUT_MS,
        resumed: Resumed | None = None,
        pending_max: int = PENDING_MAX,
    ) -> None:
        self.state = State.CONNECTING
        self.id, self.password = resumed or Resumed(0, bytes(16))
        self.last_zxid = 0  # that was seen
        self.timeout_ms = timeout_ms  # once connected, what the server gave
        self.watchers = Watchers()
        self._wanted_ms = timeout_ms
        self._chroot = connect.chroot
        self._servers = Servers(connect.servers, choose)
        self._pending = PendingRequests(pending_max)
        self._credentials: list[requests.Auth] = []
        self._tickets = 0
        self._xid = 0
        self._closing_xid = 0
        self._frames = Frames(ANSWER_BYTES_MAX)
        self._out: list[bytes] = []
        self._events: list[Event] = []
        self._actions: list[Action] = []
        self._trying = False  # an attempt to connect is under way
        self._try_at_ms = now_ms
        self._since_ms = now_ms  # of the attempt
        self._heard_ms = now_ms
        self._spoke_ms = now_ms

    # ── for whoever drives it ────────────────────────────────────────────────────────────────────────────────────

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._pending)

    def take_bytes(self) -> bytes:
        """To send on the connection."""
        out, self._out = self._out, []
        return b"".join(out)

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def take_actions(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` is wanted, if nothing happens before; None: never again."""
        if self.ended:
            return None
        if self.state is State.CONNECTED:
            return min(self._heard_ms + self._silence_ms, self._spoke_ms + self._ping_ms)
        if self.state is State.CLOSING:
            return self._heard_ms + self._silence_ms
        return self._since_ms + self._connect_ms if self._trying else self._try_at_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Something is due. What has come on the connection is handed in before `tick`, so that nobody is taken for
        silent whose words were not read: this process may have been held up itself."""
        deadline_ms = self.deadline_ms
        return deadline_ms is not None and now_ms >= deadline_ms

    def tick(self, now_ms: int) -> None:
        """Does what is due."""
        if not self.is_overdue(now_ms):
            return
        if self.state in (State.CONNECTED, State.CLOSING):
            silent_ms = now_ms - self._heard_ms
            if silent_ms >= self._silence_ms:
                self._break(now_ms, f"nothing was heard for {silent_ms} ms")
            else:
                self._say(now_ms, request_frame(codes.PING_XID, requests.Plain(codes.PING)))
        elif self._trying:
            self._break(now_ms, f"no answer within {self._connect_ms} ms")
        else:
            self._trying = True
            self._since_ms = now_ms
            self._actions.append(Connect(self._servers.current))

    @property
    def _connect_ms(self) -> int:
        return max(1, self.timeout_ms // len(self._servers))

    @property
    def _silence_ms(self) -> int:
        """After this long without a word the connection is given up, while there is time to find another server."""
        return max(1, self.timeout_ms * 2 // 3)

    @property
    def _ping_ms(self) -> int:
        return max(1, self.timeout_ms // 3)

    # ── what the caller wants ────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self, request: requests.Request, now_ms: int, watcher: Hashable = None, *, below_chroot: bool = True
    ) -> int:
        """The ticket with which the answer comes. `watcher` is who is told of changes, if the request sets a watch."""
        if self.ended or self.state is State.CLOSING:
            raise ZooKeeperError(_code_of_end(self.state), path_of(request))
        self._pending.demand_room()
        if _watches(request) and self.watchers.count >= WATCHED_MAX:
            raise TooManyRequestsError(
                f"{self.watchers.count} paths are watched, and {WATCHED_MAX} is the limit; remove some, or watch a"
                " parent recursively"
            )
        self._tickets += 1
        sent = chroot.outward_request(self._chroot, request) if below_chroot else request
        self._xid = self._xid % XID_MAX + 1
        frame = request_frame(self._xid, sent)
        connected = self.state is State.CONNECTED
        self._pending.add(Pending(self._tickets, self._xid, request, sent, watcher, frame), sent=connected)
        if connected:
            self._say(now_ms, frame)
        return self._tickets

    def add_credentials(self, scheme: str, credentials: bytes, now_ms: int) -> None:
        """Shown now and to every later server; the session ends as AUTH_FAILED if one does not accept them."""
        shown = requests.Auth(scheme, credentials)
        if shown not in self._credentials:
            if len(self._credentials) >= CREDENTIALS_MAX:
                raise TooManyRequestsError(f"a session shows {CREDENTIALS_MAX} credentials at most")
            self._credentials.append(shown)
        if self.state is State.CONNECTED:
            self._say(now_ms, request_frame(codes.AUTH_XID, shown))

    def forget_watches(self, path: str, meant: int) -> bool:
        """Here only: the server may go on telling of them. Whether there were any; who watched is told."""
        forgotten = requests.Watches(codes.REMOVE_WATCHES, chroot.outward(self._chroot, path), meant)
        return self._removed(forgotten, codes.OK) == codes.OK

    def close(self, now_ms: int) -> None:
        """Ends the session on the server after what was asked before; without a connection it ends here only."""
        if self.ended or self.state is State.CLOSING:
            return
        connected = self.state is State.CONNECTED
        busy = self._trying
        self._become(Input.CLOSE, "")
        if connected:
            self._xid = self._closing_xid = self._xid % XID_MAX + 1
            self._say(now_ms, request_frame(self._xid, requests.Plain(codes.CLOSE_SESSION)))
        else:
            self._finish(drop=busy)

    # ── what the connection brings ───────────────────────────────────────────────────────────────────────────────

    def opened(self, now_ms: int) -> None:
        """The connection that `Connect` asked for is there."""
        self._heard_ms = now_ms
        self._become(Input.OPENED, "")
        asked = requests.Connect(0, self.last_zxid, self._wanted_ms, self.id, self.password, False)
        self._say(now_ms, connect_frame(asked))

    def lost(self, now_ms: int, reason: str) -> None:
        """The connection broke, or could not be made."""
        if self.ended or (self.state is State.CONNECTING and not self._trying):
            return
        was = self.state
        server = self._servers.current
        self._trying = False
        self._frames.clear()
        self._out.clear()
        self._become(Input.LOST, reason)
        if self.state is State.CLOSED:
            self._finish(drop=False)
            return
        self._fail(self._pending.take_sent(), codes.CONNECTION_LOSS)
        if was is not State.CONNECTED:
            self._events.append(Unreachable(server, reason))
        round_ended, pause_ms = self._servers.failed()
        self._try_at_ms = now_ms + pause_ms
        if round_ended:
            self._fail(self._pending.take_queued(), codes.CONNECTION_LOSS)

    def received(self, data: bytes, now_ms: int) -> None:
        self._heard_ms = now_ms
        try:
            for frame in self._frames.feed(data):
                if self.state is State.GREETING:
                    self._greeted(frame, now_ms)
                else:
                    self._take(frame)
                if self.state in _SILENT:
                    return
        except MalformedError as error:
            self._break(now_ms, f"what answers there is no ZooKeeper: {error}")

    def _greeted(self, frame: bytes, now_ms: int) -> None:
        welcome = read_welcome(frame)
        if welcome.timeout_ms <= 0:
            self._become(Input.UNKNOWN, "the server does not know the session any more")
            self._finish(drop=True)
            return
        self._trying = False
        self.id, self.password, self.timeout_ms = welcome.session, welcome.password, welcome.timeout_ms
        self._become(Input.WELCOMED, f"connected to {name_of(self._servers.current)}")
        self._servers.succeeded()
        for shown in self._credentials:
            self._say(now_ms, request_frame(codes.AUTH_XID, shown))
        for again in self.watchers.set_again(self.last_zxid):
            self._say(now_ms, request_frame(codes.SET_WATCHES_XID, again))
        for pending in self._pending.send_queued():
            self._say(now_ms, pending.frame)

    def _take(self, frame: bytes) -> None:
        reader = Reader(frame)
        header = read_header(reader)
        if header.xid == codes.NOTIFICATION_XID:
            self._see(header.zxid)
            notice = read_notice(reader)
            told = self.watchers.told_by(notice.kind, notice.path)
            self._events.append(Changed(notice.kind, chroot.inward(self._chroot, notice.path), header.zxid, told))
        elif header.xid == codes.AUTH_XID:
            if header.code != codes.OK:
                self._become(Input.DENIED, "the server did not accept the credentials")
                self._finish(drop=True)
        elif header.xid == codes.SET_WATCHES_XID:
            if header.code != codes.OK:  # without its watches a session would miss changes, and nobody would know
                self._break(self._heard_ms, f"the server refused to watch again, with error {header.code}")
        elif header.xid == self._closing_xid and self.state is State.CLOSING:
            self._become(Input.CLOSE_ANSWERED, "")
            self._finish(drop=True)
        elif header.xid != codes.PING_XID:
            self._answered(header, reader)

    def _answered(self, header: Header, reader: Reader) -> None:
        pending = self._pending.expected(header.xid)
        result = read_result(pending.sent, reader) if header.code == codes.OK else None
        self._pending.answered()
        self._see(header.zxid)
        self.watchers.answered(pending.sent, header.code, pending.watcher)
        code = header.code
        if isinstance(pending.sent, requests.Watches) and pending.sent.kind == codes.REMOVE_WATCHES:
            code = self._removed(pending.sent, code)
        if code != codes.OK:
            self._events.append(Refused(pending.ticket, pending.request, code, path_of(pending.request)))
            return
        shown = chroot.inward_result(self._chroot, pending.request, result)
        self._events.append(Answered(pending.ticket, pending.request, shown))

    def _removed(self, request: requests.Watches, code: int) -> int:
        """Who watched is told, before the answer."""
        if code != codes.OK:
            return code
        removed = self.watchers.remove(request.watcher, request.path)
        path = chroot.inward(self._chroot, request.path)
        self._events.extend(Changed(kind, path, -1, told) for kind, told in removed)
        return codes.OK if removed else codes.NO_WATCHER

    def _see(self, zxid: int) -> None:
        self.last_zxid = max(self.last_zxid, zxid)

    # ── within ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _say(self, now_ms: int, frame: bytes) -> None:
        self._spoke_ms = now_ms
        self._out.append(frame)

    def _become(self, happened: Input, reason: str) -> None:
        was, self.state = _shown(self.state), following(self.state, happened)
        if _shown(self.state) is not was:
            self._events.append(StateChanged(self.state, reason))

    def _break(self, now_ms: int, reason: str) -> None:
        self._actions.append(Drop())
        self.lost(now_ms, reason)

    def _finish(self, *, drop: bool) -> None:
        """The session has ended: nobody waits for anything any more."""
        if drop:
            self._actions.append(Drop())
        self._trying = False
        self._out.clear()
        code = _code_of_end(self.state)
        self._fail(self._pending.take_sent(), code)
        self._fail(self._pending.take_queued(), code)

    def _fail(self, waiting: Iterator[Pending], code: int) -> None:
        for pending in waiting:
            self._events.append(Refused(pending.ticket, pending.request, code, path_of(pending.request)))


def path_of(request: requests.Request) -> str:
    """What an error of it is about; none, if it is about several nodes or about none."""
    return str(getattr(request, "path", ""))


def _watches(request: requests.Request) -> bool:
    return isinstance(request, requests.AddWatch) or (isinstance(request, requests.Read) and request.watch)


def _code_of_end(state: State) -> int:
    return codes.AUTH_FAILED if state is State.AUTH_FAILED else codes.SESSION_EXPIRED


def _shown(state: State) -> State:
    """Until a server has the session, it is being connected to."""
    return State.CONNECTING if state is State.GREETING else state
