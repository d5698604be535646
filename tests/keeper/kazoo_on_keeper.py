"""A pytest plugin that stands where kazoo's tests start their ZooKeeper: their cluster is one keeper of ours.

It takes the place of `kazoo.testing.common`, whose servers are run, stopped, reset and destroyed; stopping is
`kill -9`, so that each restart in kazoo's tests is one after a crash.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path

from keeper_process import KeeperProcess

SUPER = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="  # whose password is `test`


class KeeperServer:
    """What kazoo's tests know as a ManagedZooKeeper."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="kazoo-on-keeper-"))
        self._process = KeeperProcess(
            self._directory, {"tickTime": "2000", "DigestAuthenticationProvider.superDigest": SUPER}
        )
        self._entered = False
        self.running = False

    @property
    def client_port(self) -> int:
        self._enter()
        return self._process.port

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    def _enter(self) -> None:
        if not self._entered:
            self._process.__enter__()  # holds the port until the tests end
            self._entered = self.running = True

    def run(self) -> None:
        self._enter()
        if not self.running:
            self._process.start()
            self.running = True

    def stop(self) -> None:
        if self.running:
            self._process.kill()
            self.running = False

    def reset(self) -> None:
        self.stop()
        shutil.rmtree(self._process.data, ignore_errors=True)

    def destroy(self) -> None:
        """Its data is gone; it may be run again."""
        self.reset()

    def get_logs(self, num_lines: int = 100) -> list[str]:
        return self._process.said().splitlines()[-num_lines:]

    def end(self) -> None:
        if self._entered:
            self._process.__exit__(RuntimeError, None, None)  # at once
        shutil.rmtree(self._directory, ignore_errors=True)


SERVER = KeeperServer()


class ZookeeperCluster:
    def __init__(self, *_: object, **__: object) -> None:
        self._servers = [SERVER]

    def __getitem__(self, place: int) -> KeeperServer:
        return self._servers[place]

    def __iter__(self) -> Iterator[KeeperServer]:
        return iter(self._servers)

    def start(self) -> None:
        for server in self:
            server.run()

    def stop(self) -> None:
        for server in self:
            server.stop()

    def terminate(self) -> None:
        for server in self:
            server.destroy()

    def reset(self) -> None:
        for server in self:
            server.reset()

    def get_logs(self) -> list[str]:
        return [line for server in self for line in server.get_logs()]


_common = types.ModuleType("kazoo.testing.common")
_common.ZookeeperCluster = ZookeeperCluster  # type: ignore[attr-defined]
sys.modules["kazoo.testing.common"] = _common


def pytest_sessionfinish() -> None:
    SERVER.end()
