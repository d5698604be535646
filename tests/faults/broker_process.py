"""A broker in a process of its own that can be killed, and looked at from outside through /proc."""

from __future__ import annotations

import os
import random
import signal
import socket
from pathlib import Path

from headrace_process import STOP_S_MAX, HeadraceProcess


class BrokerProcess(HeadraceProcess):
    def kill(self) -> None:
        """SIGKILL; returns when the process is gone. One that had died by itself fails the test."""
        assert self._process.poll() is None, f"the broker had died by itself.{self._stderr()}"
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait(STOP_S_MAX)
        self._stop_called = True

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def log_lines(self) -> list[str]:
        return Path(self._stderr_path).read_text(errors="replace").splitlines()

    # What /proc tells of it

    def rss_bytes(self) -> int:
        return self._status_kb("VmRSS") << 10

    def peak_rss_bytes(self) -> int:
        """The most it ever had, or has had since `forget_peak`."""
        return self._status_kb("VmHWM") << 10

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def descriptor_count(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_s(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status_kb(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise AssertionError(f"/proc/{self.pid}/status has no {name}")


def steady_port() -> int:
    """A free port that no client's own end of a connection gets, so a broker can come back to it.

    Not from the test's seed: several runs on one machine must not want the same one.
    """
    low, high = 10_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(low, max(high, low + 10_000))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
