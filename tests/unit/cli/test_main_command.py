import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from waits import WAIT_S_MAX

import headrace

# A process with a node that waits for its stop: real signals, no real broker.
WAITING = """
import sys, threading, time, types
class Node:
    # No Event for the stop: a signal handler that sets one while the main thread waits for it can wait forever.
    def __init__(self, settings): self.stopped = False; self.port = 1; self.metrics_port = -1
    def open(self): pass
    def hear(self, descriptor, heard): pass
    def run(self):
        while not self.stopped: time.sleep(0.05)
    def stop(self): self.stopped = True
    def close(self):
        if "slow" in sys.argv: print("closing", flush=True); threading.Event().wait()
module = types.ModuleType("headrace.broker.node"); module.Node = Node
sys.modules["headrace.broker.node"] = module
sys.argv = ["headrace", "up"] + (["--data", "slow"] if "slow" in sys.argv else [])
sys.argv.append("--set"); sys.argv.append("num.partitions=1")
from headrace.cli.main import main
main()
"""


def start(*arguments: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "stop  Ctrl-C":
        assert process.poll() is None
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly_with_one_line(number: signal.Signals) -> None:
    process = start()
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT_S_MAX)
    assert (process.returncode, out, err) == (0, "Headrace stopped cleanly\n", "")


def test_a_second_ctrl_c_does_not_wait() -> None:
    process = start("slow")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "closing\n", "which does not end"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S_MAX)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("headrace: stopped before all was closed")


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert headrace.__version__ == project["version"]
    out = subprocess.check_output([sys.executable, "-m", "headrace.cli.main", "--version"], text=True)
    assert out == f"headrace {headrace.__version__}\n"


def test_help_loads_no_broker() -> None:
    code = (
        "import sys; from headrace.cli.main import headrace\n"
        "headrace(['--help'], standalone_mode=False)\n"
        "heavy = ('kio', 'asyncio', 'prometheus_client', 'headrace.broker', 'headrace.core.settings.broker')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1] == "[]"


def test_importing_headrace_loads_nothing_else() -> None:
    code = "import sys, headrace; print([name for name in sys.modules if name.startswith('headrace.')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = headrace.Nothing  # type: ignore[attr-defined]
