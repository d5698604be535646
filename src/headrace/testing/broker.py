"""`headrace.testing.Broker`: `headrace.Broker` with faults that a test calls for by name.

Everything that touches the broker's state is done on its loop, and waited for.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

from headrace.broker import embedded
from headrace.broker.handlers import NAMES
from headrace.broker.node import Node
from headrace.core.errors import HeadraceError
from headrace.core.settings.broker import BrokerSettings
from headrace.net.node_thread import NodeThread
from headrace.net.reactor import Reactor
from headrace.testing.clock import MovableClock
from headrace.testing.loop_access import ServerUnderTest
from headrace.testing.request_faults import PromisedFailure, RequestFaults, api_key_of, error_code_of

TURNS_SEEN = 3  # after time has moved: what is due, what that wrote, and what that answered
# What makes a broker quick to use in a test; a test that cares gives its own.
SETTINGS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    # Whatever becomes due by `clock.advance` is looked at at once, not within minutes.
    "log_retention_check_interval_ms": 100,
    "transaction_abort_check_interval_ms": 100,
    "transaction_expire_check_interval_ms": 100,
    "offsets_retention_check_interval_ms": 100,
}


class Delay:
    """What `delay` gives back: in a `with`, the delay ends with it."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


class Broker(ServerUnderTest, embedded.Broker):
    """A broker in a `with`, or as the fixture `headrace_broker`."""

    _called = "broker"

    def __init__(
        self,
        data: embedded.Path | Sequence[embedded.Path] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(data, host, port, **{**SETTINGS, **settings})
        self.clock = MovableClock()
        self.clock.on_advance = self._advanced
        self._faults: RequestFaults | None = None
        self._last_port = port

    # ── running, stopping, dying ─────────────────────────────────────────────────────────────────────────────────

    @property
    def port(self) -> int:
        """The bound port; it stays the same over `kill` and `restart`."""
        return super().port if self._running is not None else self._last_port

    @property
    def running(self) -> bool:
        return self._running is not None

    def start(self) -> Self:
        super().start()
        self._last_port = super().port
        return self

    def stop(self) -> None:
        """A clean stop; what lies in a temporary directory goes with it."""
        self.resume()
        self._faults = None
        try:
            super().stop()
        finally:
            self._remove_temporary()

    def kill(self) -> None:
        """As `kill -9`: connections break, what was only in memory is gone; what was written is still there.

        Clients go on trying the same address, on which `restart()` listens again.
        """
        self._end(lambda running: running.kill_and_wait())

    def restart(self) -> None:
        """Stops cleanly (unless it was killed) and starts again, on the same port with the same data."""
        if self._running is not None:
            self._end(lambda running: running.stop_and_wait())
        port = self._last_port
        self._settings = dataclasses.replace(self._settings, port=port)
        with self._lock:
            running = self._thread_for(dataclasses.replace(self._settings, log_dirs=self._directories()))
            running.start_and_wait()
            self._running = running

    def _end(self, how: Callable[[NodeThread[Node]], None]) -> None:
        self.resume()
        with self._lock:
            running, self._running = self._running, None
            self._faults = None
            if running is None:
                raise HeadraceError("the broker is not running; call start() or restart() first")
            how(running)

    def _thread_for(self, settings: BrokerSettings) -> NodeThread[Node]:
        return embedded.node_thread(settings, self.clock)

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    def drop_connections(self) -> int:
        """Closes every connection, in the middle of whatever it was doing. Returns how many there were."""

        def drop() -> int:
            count = self._node.metrics.connections_open
            self._node.server.drop_all()
            return count

        return self._on_loop(drop)

    def delay(self, ms: float) -> Delay:
        """Every request is handled so much later, until `delay(0)` or the end of a `with`."""
        if ms < 0:
            raise ValueError(f"delay by {ms} ms: it must be 0 or more")
        self._on_loop(lambda: self._request_faults().delay(ms / 1000))
        return Delay(lambda: self._on_loop(lambda: self._request_faults().delay(0)) if self.running else None)

    def fail_next(self, api: str | int, error: str | int, *, times: int = 1) -> PromisedFailure:
        """The next request of that kind (or the next `times`) is not carried out, but answered with the error.

        `fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")`; the error `"disconnect"` closes the connection instead. What
        comes back says in `happened` how often it has come true.
        """
        if times < 1:
            raise ValueError(f"times={times}: it must be 1 or more")
        failure = PromisedFailure(api_key_of(api, NAMES), error_code_of(error), times)
        self._on_loop(lambda: self._request_faults().fail(failure))
        return failure

    def clear_faults(self) -> None:
        """No more delay, and nothing fails that has not failed yet."""
        self.resume()
        self._on_loop(lambda: self._request_faults().clear())

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _node(self) -> Node:
        if self._running is None:
            raise HeadraceError("the broker is not running; call start() or restart() first")
        return self._running.node

    def _request_faults(self) -> RequestFaults:
        if self._faults is None:
            self._faults = RequestFaults(self._node)
        return self._faults

    def _advanced(self, ms: int) -> None:
        if self._running is None:
            return
        self._on_loop(lambda: self._node.reactor.advance(ms / 1000))
        for _ in range(TURNS_SEEN):
            self._on_loop(lambda: None)

    @property
    def _reactor(self) -> Reactor:
        return self._node.reactor
