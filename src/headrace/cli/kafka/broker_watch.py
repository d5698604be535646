"""Notices that every broker went away or refuses the login, says so once, and ends the tool if that is for good.

librdkafka tries again for ever and in silence; a person at the terminal, or a script, must hear of it.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any

from headrace.cli.kafka.tool import ToolError

AWAY_S_MAX = 60.0  # unless default.api.timeout.ms says otherwise


class BrokerWatch:
    def __init__(self, properties: Mapping[str, str]) -> None:
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
            print(f"No broker answers any more; trying again for {self.away_s_max:g} s", file=sys.stderr)

    def seen(self) -> None:
        """A broker answered."""
        self._away_since = None

    def check(self, done: str) -> None:
        """Raises when none has come back, or the login was refused; `done` says what was done before."""
        if self._refusal:
            raise ToolError(self._refusal)
        if self._away_since is not None and time.monotonic() - self._away_since >= self.away_s_max:
            raise ToolError(f"No broker answered for {self.away_s_max:g} s; {done}")
