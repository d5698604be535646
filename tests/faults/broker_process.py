"""A broker in a process of its own that can be killed, and looked at from outside through /proc."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from headrace_process import HeadraceProcess
from waits import WAIT_S_MAX


class BrokerProcess(HeadraceProcess):
    def kill(self) -> None:
        """SIGKILL; returns when the process is gone. One that had died by itself fails the test."""
        assert self._process.poll() is None, f"the broker had died by itself.{self._stderr()}"
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait(WAIT_S_MAX)
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
