"""Notices that every broker went away or refuses the login, says so once, and ends the tool if that is for good.

librdkafka retries forever and silently; a person at the terminal, or a script, must hear of it. It also keeps to
itself that a broker is back, so one is asked before anything is given up.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from headrace.cli.kafka.tool import ToolError
from headrace.core.errors import HeadraceError

AWAY_S_MAX = 60.0  # unless default.api.timeout.ms says otherwise
_ASK = {"default.api.timeout.ms": "0", "request.timeout.ms": "2000"}


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class BrokerWatch:
    def __init__(self, properties: Mapping[str, str], say: Callable[[str], None] = _print) -> None:
        self._properties = properties
        self._say = say
        given = properties.get("default.api.timeout.ms")
        self.away_s_max = int(given) / 1000 if given else AWAY_S_MAX
        self._away_since: float | None = None
        self._refusal = ""

    def on_error(self, error: Any) -> None:
        """librdkafka's `error_cb`."""
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) or error.fatal():
            self._refusal = self._refusal or error.str()
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and self._away_since is None and not self._refusal:
            self._away_since = time.monotonic()
            self._say(f"No broker answers any more; trying again for {self.away_s_max:g} s")

    @property
    def away(self) -> bool:
        return self._away_since is not None

    def seen(self) -> None:
        """A broker answered."""
        self._away_since = None

    def check(self, done: str) -> None:
        """Raises when none has come back, or the login was refused; `done` says what was done before."""
        if self._refusal:
            raise ToolError(self._refusal)
        if self._away_since is not None and time.monotonic() - self._away_since >= self.away_s_max:
            if self._answers():
                self._away_since = None
                return
            raise ToolError(f"No broker answered for {self.away_s_max:g} s; {done}")

    def _answers(self) -> bool:
        from headrace.client.greeting import greet

        try:
            greet(self._properties["bootstrap.servers"], {**self._properties, **_ASK})
        except (HeadraceError, OSError):
            return False
        return True
