"""`headrace.testing.Keeper`: `headrace.Keeper` with faults that a test calls for by name.

Everything that touches the keeper's state is done on its loop, and waited for.
"""

from typing import Any

from headrace.core.errors import HeadraceError
from headrace.keeper import embedded
from headrace.net.reactor import Reactor
from headrace.testing.loop_access import ServerUnderTest

# What makes a keeper at home in a test; a test that cares gives its own.
SETTINGS: dict[str, Any] = {"words": "*", "connections_per_address_max": 0}


class Keeper(ServerUnderTest, embedded.Keeper):
    """A keeper in a `with`, or as the fixture `headrace_keeper`."""

    _called = "keeper"

    def __init__(self, data: str | None = None, host: str = "127.0.0.1", port: int = 0, **settings: Any) -> None:
        super().__init__(data, host, port, **{**SETTINGS, **settings})

    # ── running, stopping, dying ─────────────────────────────────────────────────────────────────────────────────

    @property
    def running(self) -> bool:
        return self._running is not None

    @property
    def port(self) -> int:
        """The bound port; it stays the same over `kill` and `restart`."""
        return super().port if self._running is not None else int(self._settings["port"])

    def stop(self) -> None:
        self.resume()
        super().stop()

    def kill(self) -> None:
        """As `kill -9`: connections break, what was not answered may be gone; what was answered is still there.

        Clients go on trying the same address, on which `restart()` listens again.
        """
        self.resume()
        super().kill()

    def restart(self) -> None:
        """Stops cleanly (unless it was killed) and starts again, on the same port with the same data. Sessions go on,
        each with its whole time-out."""
        self.resume()
        super().restart()

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    def drop_connections(self) -> int:
        """Closes every connection, in the middle of whatever it was doing. Returns how many there were; the sessions
        wait for their clients to come back."""

        def drop() -> int:
            count = len(self.node.server.connections)
            self.node.server.drop_all()
            return count

        return self._on_loop(drop)

    def sessions(self) -> list[int]:
        """The sessions that are open."""
        return self._on_loop(lambda: list(self.node.machine.sessions.open))

    def expire(self, session: int) -> None:
        """The session ends now, as if its time were over: its ephemeral nodes go, and its client is told when it asks
        next. kazoo has the number in `client.client_id[0]`."""

        def end() -> None:
            machine = self.node.machine
            if session not in machine.sessions.open:
                known = ", ".join(f"{each:#x}" for each in machine.sessions.open) or "none"
                raise HeadraceError(f"session {session:#x} is not open; open are: {known}")
            machine.close_session(session, 0)

        self._on_loop(end)

    @property
    def _reactor(self) -> Reactor:
        return self.node.reactor
