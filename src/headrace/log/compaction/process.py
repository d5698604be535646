"""The other process, as the loop sees it: requests go in, answers come back.

It is started when the first request comes and ends by itself when none has come for a while. A thread waits for its
answers; if it dies, the request is refused and the next one starts another.
"""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.log.compaction.requests import Answer, CompactionRefused, MapRequest, Request, from_plain, to_plain

if TYPE_CHECKING:
    import subprocess

Done = Callable[[object, BaseException | None], None]
Submit = Callable[[Callable[[], object], Done], None]


class CompactionProcess:
    def __init__(self, submit: Submit) -> None:
        """`submit` runs a job on a thread and gives its result to the loop; jobs come one after the other."""
        self._submit = submit
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def run(self, request: Request, answered: Callable[[Answer], None]) -> None:
        def done(result: object, error: BaseException | None) -> None:
            if isinstance(error, OSError):
                answered(CompactionRefused(why=f"the compaction process: {error}"))
            elif error is not None:
                raise error
            else:
                answered(result)  # type: ignore[arg-type]

        self._submit(lambda: self._ask(request), done)

    def close(self) -> None:
        """Ends it at once, whatever it is doing: what it wrote so far is removed by the next start."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._end(process)

    def _ask(self, request: Request) -> Answer:
        line = json.dumps(to_plain(request)).encode() + b"\n"
        begins = isinstance(request, MapRequest)
        process = self._started(fresh=begins)
        answer = self._exchange(process, line)
        if not answer and begins and process.wait() == 0:
            process = self._started(fresh=True)  # it had just ended, since nothing had come for long
            answer = self._exchange(process, line)
        if not answer:
            code = process.wait()
            self._end(process)
            return CompactionRefused(why=f"the compaction process ended with code {code}")
        return from_plain(json.loads(answer))  # type: ignore[no-any-return]

    def _started(self, *, fresh: bool) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._closed:
                raise OSError("the broker stops")
            process = self._process
            if process is not None and process.poll() is not None and fresh:
                self._end(process)
                process = None
            if process is None:
                process = self._process = _start()
            return process

    def _exchange(self, process: "subprocess.Popen[bytes]", line: bytes) -> bytes:
        """Its answer; nothing if it is gone."""
        try:
            if process.stdin is None or process.stdout is None:
                return b""
            process.stdin.write(line)
            process.stdin.flush()
            return process.stdout.readline()
        except (OSError, ValueError):  # ValueError: closed by `close`
            return b""

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._process is process:
            self._process = None


def _start() -> "subprocess.Popen[bytes]":
    import subprocess  # most brokers never come here

    source = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))  # the one that runs here
    paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.log.compaction.worker", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        # An interrupt from the keyboard is for the broker, which then ends this one. Linux shares the cores out between
        # sessions, where nobody else does: in the broker's own it would use up what the broker has not used yet.
        start_new_session=True,
    )
