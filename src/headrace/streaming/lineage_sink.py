"""Where lineage events go: a file, one event per line, or a URL that takes them by POST.

Lineage never stops a run and never holds it up: events go through a bounded queue to a thread. What cannot be
delivered is dropped, and that is said once.
"""

import json
import queue
import threading
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from headrace.core.errors import OperatorError

POST_S_MAX = 5.0
CLOSE_S_MAX = 10.0
WAITING_MAX = 1_000


class LineageSink:
    def __init__(self, target: str, say: Callable[[str], None]) -> None:
        """A file that cannot be opened is an error before anything starts; a URL is tried with the first event."""
        self._target = target
        self._say = say
        self._told = False
        self._events: queue.Queue[Mapping[str, Any] | None] = queue.Queue(WAITING_MAX)
        self._deliver = self._post if target.startswith(("http://", "https://")) else self._append
        if self._deliver == self._append:
            try:
                open(target, "a", encoding="utf-8").close()
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise OperatorError(f"--lineage {target}: {reason}; give a file or a URL") from error
        self._thread = threading.Thread(target=self._work, name="headrace-lineage", daemon=True)
        self._thread.start()

    def send(self, event: Mapping[str, Any]) -> None:
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._tell(f"more than {WAITING_MAX:,} events wait")

    def close(self) -> None:
        """Waits a little for what is under way."""
        try:
            self._events.put(None, timeout=CLOSE_S_MAX)
        except queue.Full:
            return
        self._thread.join(CLOSE_S_MAX)

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._deliver(json.dumps(event))
            except (OSError, ValueError) as error:
                reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
                self._tell(str(getattr(reason, "strerror", None) or reason).lower())

    def _append(self, line: str) -> None:
        with open(self._target, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _post(self, line: str) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._target, line.encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=POST_S_MAX):
            pass

    def _tell(self, reason: str) -> None:
        if not self._told:
            self._told = True
            self._say(f"lineage: {self._target} does not take events ({reason}); the run goes on without them")
