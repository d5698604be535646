"""A Headrace broker in a process of its own, started as a user starts it: by the command line.

It never hides how the broker ended: one that dies or does not stop cleanly fails the test that started it.
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

from waits import WAIT_S_MAX

HEADRACE = ["-m", "headrace.cli.main"]  # --record-requests puts another one in its place
_ADDRESS = re.compile(r"(127\.0\.0\.1):(\d+)")


class HeadraceProcess:
    """`with HeadraceProcess(data, {"num.partitions": "1"}) as broker: broker.bootstrap`"""

    def __init__(self, data: str, settings: Mapping[str, str] | None = None, *, port: int = 0) -> None:
        os.makedirs(os.path.dirname(data) or ".", exist_ok=True)
        self.data = data
        self._stop_called = False
        settings = dict(settings or {})
        command = [sys.executable, *HEADRACE, "up", "--port", str(port)]
        if "log.dirs" not in settings:
            command += ["--data", data]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self._stderr_path = f"{data}.stderr"
        with open(self._stderr_path, "ab") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._drain, daemon=True).start()
        try:
            self.bootstrap = self._await_address()
        except BaseException:
            self._process.kill()
            self._process.wait(WAIT_S_MAX)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises when the broker has died."""
        code = self._process.poll()
        if code is not None:
            raise AssertionError(f"the Headrace broker has died by itself with code {code}.{self._stderr()}")

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called; a broker that died by itself does not count."""
        return self._stop_called

    def stop(self) -> None:
        """SIGTERM, then wait. Raises when the broker had died before, or does not end with code 0."""
        self._stop_called = True
        self.check()
        self._process.terminate()
        try:
            code = self._process.wait(WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(WAIT_S_MAX)
            raise AssertionError(
                f"the Headrace broker did not stop within {WAIT_S_MAX:g} s of SIGTERM.{self._stderr()}"
            ) from None
        if code != 0:
            raise AssertionError(f"the Headrace broker ended with code {code} after SIGTERM, not 0.{self._stderr()}")

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told. Raises when the broker had died before."""
        self._stop_called = True
        self.check()
        self._process.kill()
        self._process.wait(WAIT_S_MAX)

    def __enter__(self) -> HeadraceProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _drain(self) -> None:
        # The pipe is read to its end, or a broker that prints a lot would block on it.
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _await_address(self) -> str:
        deadline = time.monotonic() + WAIT_S_MAX
        printed = []
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise RuntimeError(
                    f"the Headrace broker printed no address within {WAIT_S_MAX:g} s; "
                    f"it printed {printed}.{self._stderr()}"
                ) from None
            if line is None:
                raise RuntimeError(
                    f"the Headrace broker ended before it listened; it printed {printed}.{self._stderr()}"
                )
            printed.append(line)
            if found := _ADDRESS.search(line):
                return f"{found[1]}:{found[2]}"

    def _stderr(self) -> str:
        with open(self._stderr_path, errors="replace") as stderr:
            return f"\nIts stderr:\n{stderr.read()[-4000:]}"


StartHeadrace = Callable[..., HeadraceProcess]
