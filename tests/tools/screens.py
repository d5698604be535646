"""A whole screen as a person sees it: in tmux, a real terminal, or on a pseudo-terminal that pyte draws.

Both have the same few methods, so that one test runs on both; where tmux is not installed the other remains.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import shutil
import signal
import struct
import subprocess
import termios
import time
import uuid
from collections.abc import Callable
from typing import Protocol

import pyte
from tool_process import BIN
from waits import WAIT_S_MAX

WIDTH, HEIGHT = 110, 32
_TMUX_KEYS = {"enter": "Enter", "escape": "Escape", "tab": "Tab", "ctrl-c": "C-c", "down": "Down"}
_KEYS = {"enter": "\r", "escape": "\x1b", "tab": "\t", "ctrl-c": "\x03", "down": "\x1b[B"}


class Screen(Protocol):
    def text(self) -> str: ...
    def press(self, key: str) -> None: ...
    def ended(self) -> bool: ...
    def close(self) -> None: ...


def until(screen: Screen, holds: Callable[[str], bool] | str, wait_s_max: float = WAIT_S_MAX) -> str:
    """The screen, once it shows what is wanted."""
    deadline = time.monotonic() + wait_s_max
    while True:
        shown = screen.text()
        if (holds in shown) if isinstance(holds, str) else holds(shown):
            return shown
        assert time.monotonic() < deadline, f"it never came; the screen shows\n{shown}"
        time.sleep(0.05)


class TmuxScreen:
    """A session of a server of its own, which ends with it."""

    def __init__(self, *args: object, program: str = "headrace", width: int = WIDTH, height: int = HEIGHT) -> None:
        self._socket = f"headrace-{uuid.uuid4().hex[:12]}"
        # COLUMNS and LINES may be those of whoever runs the tests; the pane's own size is what counts.
        command = shlex.join(["env", "-u", "COLUMNS", "-u", "LINES", str(BIN / program), *map(str, args)])
        # The pane stays when the program ends, so that what it left behind can be seen.
        shell = f"{command}; echo ended with $?; exec sleep 600"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), shell)

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def press(self, key: str) -> None:
        self._tmux("send-keys", *([_TMUX_KEYS[key]] if key in _TMUX_KEYS else ["-l", key]))

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def state(self, name: str) -> str:
        """What tmux knows of the pane, such as `cursor_flag`."""
        return self._tmux("display-message", "-p", f"#{{{name}}}").strip()

    def ended(self) -> bool:
        return "ended with 0" in self.text()

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *args: str) -> str:
        command = ["tmux", "-L", self._socket, *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


class PtyScreen:
    def __init__(self, *args: object, program: str = "headrace") -> None:
        self._screen = pyte.Screen(WIDTH, HEIGHT)
        self._stream = pyte.ByteStream(self._screen)
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
            # Not the process's own: readline puts COLUMNS and LINES there behind Python's back.
            environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            environment["TERM"] = "xterm-256color"
            os.execve(BIN / program, [program, *map(str, args)], environment)
        self._status: int | None = None

    def text(self) -> str:
        while select.select([self._fd], [], [], 0)[0]:
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                break
            if not data:
                break
            # pyte takes the private form `CSI > … m` and the like for colours; what it does not know is left out.
            self._stream.feed(data.replace(b"\x1b[>", b"\x1b[?"))
        return "\n".join(self._screen.display)

    def press(self, key: str) -> None:
        os.write(self._fd, _KEYS.get(key, key).encode())

    def ended(self) -> bool:
        self.text()
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status == 0

    def close(self) -> None:
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)


def tmux_missing() -> bool:
    return shutil.which("tmux") is None
