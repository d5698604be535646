"""A keeper in a process of its own, started by the command line, so that `kill -9` is a real one.

The port stays its own over restarts. A keeper that dies by itself, or does not stop cleanly, fails the test.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from ports import reserved_port
from waits import WAIT_S_MAX, eventually


class KeeperProcess:
    """`with KeeperProcess(directory, {"tickTime": "500"}) as keeper: keeper.port`"""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self._settings = {"maxClientCnxns": "0", "4lw.commands.whitelist": "*", **(settings or {})}
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers."""
        config = self.directory / "zoo.cfg"
        lines = {"dataDir": str(self.data), "clientPort": str(self.port), "clientPortAddress": "127.0.0.1"}
        config.write_text("".join(f"{key}={value}\n" for key, value in {**lines, **self._settings}.items()))
        with open(self.directory / "out", "ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli.main", "keeper", str(config)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
        eventually(self._serves, "the keeper serves")

    def _serves(self) -> bool:
        self.check()
        return b"imok" in self.word("ruok")

    def word(self, word: str) -> bytes:
        """Its answer to a four-letter word; nothing if it does not listen."""
        return four_letters(self.port, word)

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"the keeper has ended by itself:\n{self.said()}"

    def said(self) -> str:
        return (self.directory / "out").read_text(errors="replace")[-8000:]

    def wait(self) -> int:
        """The code with which it ends by itself."""
        assert self._process is not None
        code = self._process.wait(WAIT_S_MAX)
        self._process = None
        return code

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self.check()
        assert self._process is not None
        self._process.kill()
        self._process.wait(WAIT_S_MAX)
        self._process = None

    def stop(self) -> None:
        self.check()
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(WAIT_S_MAX) == 0, self.said()
        self._process = None

    def __enter__(self) -> KeeperProcess:
        os.makedirs(self.directory, exist_ok=True)
        self.port = self._stack.enter_context(reserved_port())
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self._process is not None and error[0] is None:
                self.stop()
        finally:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S_MAX)
        self._stack.close()


def four_letters(port: int, word: str, wait_s_max: float = WAIT_S_MAX) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=wait_s_max) as sock:
            sock.sendall(word.encode())
            answer = b""
            while more := sock.recv(1 << 16):
                answer += more
            return answer
    except OSError:
        return b""
