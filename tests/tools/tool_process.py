"""Kafka's tools as a user runs them: the installed command, a process of its own, what it printed, its exit code."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from waits import WAIT_MS_MAX, WAIT_S_MAX

BIN = Path(sys.executable).parent
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    exit: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run(name: str, *args: object, stdin: str | bytes = "", cwd: str | Path | None = None) -> Ran:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [str(BIN / name), *map(str, args)], input=data, capture_output=True, timeout=WAIT_S_MAX, check=False, cwd=cwd
    )
    return Ran(exit=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


def ok(name: str, *args: object, stdin: str | bytes = "", cwd: str | Path | None = None) -> Ran:
    ran = run(name, *args, stdin=stdin, cwd=cwd)
    assert ran.exit == 0, f"{name} ended with {ran.exit}\n{ran.out}\n{ran.err}"
    return ran


def long_enough(attempt: Callable[[int], Result | None], first_ms: int) -> Result:
    """For what must run into a time limit of its own, but not before it has done something else.

    The attempt gets a limit in milliseconds, and gives None if it passed too early: then it gets a longer one.
    """
    limit_ms = first_ms
    while (result := attempt(limit_ms)) is None:
        assert limit_ms < WAIT_MS_MAX, f"{limit_ms} ms were not enough"
        limit_ms *= 4
    return result


def printed(command: str, bootstrap: str, **replaced: str) -> list[str]:
    """The words of a command as a document prints it; only addresses and the given names are replaced."""
    text = re.sub(r"(127\.0\.0\.1|localhost|172\.18\.0\.2):(9092|6667)", bootstrap, command.replace("\n", " "))
    for name, other in replaced.items():
        text = re.sub(rf"\b{name}\b", other, text)
    words = shlex.split(text)
    return [words[0].removeprefix("bin/"), *words[1:]]


class Running:
    """A tool that goes on until it is stopped. Its output is read as it comes."""

    def __init__(self, name: str, *args: object) -> None:
        self._process = subprocess.Popen(
            [str(BIN / name), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.out = ""
        self.err = ""

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())

    def close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None

    def read_until(self, wanted: str, *, after: str = "", on_err: bool = False, wait_s_max: float = WAIT_S_MAX) -> None:
        """Reads both outputs until the wanted text was seen on one of them, after another that is there already."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        streams = {self._process.stdout: "out", self._process.stderr: "err"}
        deadline = time.monotonic() + wait_s_max

        def came() -> bool:
            text = self.err if on_err else self.out
            return wanted in (text.partition(after)[2] if after else text)

        while not came():
            left = deadline - time.monotonic()
            ready, _, _ = select.select([*streams], [], [], max(0, left))
            assert ready, f"no {wanted!r} within {wait_s_max:g} s; out {self.out!r}, err {self.err!r}"
            for stream in ready:
                data = os.read(stream.fileno(), 65536).decode()
                assert data, f"it ended without {wanted!r}; out {self.out!r}, err {self.err!r}"
                setattr(self, streams[stream], getattr(self, streams[stream]) + data)

    def peek(self, wait_s_max: float) -> None:
        """Reads what is there, or comes within so long."""
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], wait_s_max)[0]:
            self.out += os.read(self._process.stdout.fileno(), 65536).decode()

    def kill(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self, number: int | None = signal.SIGINT, wait_s_max: float = WAIT_S_MAX) -> int:
        """Sends the signal, waits, and returns the exit code."""
        if number is not None:
            self._process.send_signal(number)
        out, err = self._process.communicate(timeout=wait_s_max)
        self.out += out.decode()
        self.err += err.decode()
        return self._process.returncode


class Terminal:
    """A tool at a real terminal (a pseudo-terminal): what a person sees and types."""

    def __init__(self, name: str, *args: object) -> None:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.execv(BIN / name, [name, *map(str, args)])
        self.screen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def read_until(self, wanted: str, wait_s_max: float = WAIT_S_MAX) -> None:
        deadline = time.monotonic() + wait_s_max
        while wanted not in self.screen:
            ready, _, _ = select.select([self._fd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no {wanted!r} within {wait_s_max:g} s; the screen shows {self.screen!r}"
            self.screen += os.read(self._fd, 65536).decode()

    def kill(self, number: int) -> None:
        os.kill(self._pid, number)

    def end(self, wait_s_max: float = WAIT_S_MAX) -> int:
        """Waits for the end, and returns the exit code."""
        deadline = time.monotonic() + wait_s_max
        while True:
            ready, _, _ = select.select([self._fd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"it has not ended within {wait_s_max:g} s; the screen shows {self.screen!r}"
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            self.screen += data.decode()
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)
