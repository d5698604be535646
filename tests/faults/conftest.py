"""The fault suite: real brokers that are killed, starved, fed garbage and crowded.

Every random choice comes from a seed. A test that fails shows it, and `--seed N` makes the same choices
again; when a process is killed, the moment of it still depends on the machine. `--rounds N` kills more often.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

sys.path.insert(1, str(Path(__file__).parent.parent / "wire"))  # raw, headrace_process

from broker_process import BrokerProcess
from faulty_disk import FaultyDisk
from node_thread import NodeThread
from ports import reserved_port
from waits import WAIT_S_MAX

StartBroker = Callable[..., BrokerProcess]
StartNode = Callable[..., NodeThread]

_OWN_SEED = int.from_bytes(os.urandom(4), "big")


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):  # the simulation has it too
        parser.addoption("--seed", type=int, default=None, metavar="N", help="replay a fault test's choices")
    parser.addoption("--frames", type=int, default=None, metavar="N", help="how many frames are fuzzed (make fuzz)")
    parser.addoption("--rounds", type=int, default=None, metavar="N", help="how often a broker is killed")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Where all chance comes from. pytest shows what is printed here only if the test fails."""
    given = request.config.getoption("--seed", None)
    chosen = _OWN_SEED if given is None else given
    print(f"replay its choices with --seed {chosen}")
    return chosen


@pytest.fixture
def rng(request: pytest.FixtureRequest, seed: int) -> random.Random:
    """The one source of chance."""
    return random.Random(f"{seed} {request.node.name}")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """`rounds(4)`: how often, unless --rounds says otherwise."""
    given = request.config.getoption("--rounds", None)
    return lambda default: default if given is None else given


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """`start_broker({"log.dirs": …}, data=…)`; whatever still runs at the end must stop cleanly."""
    started: list[BrokerProcess] = []

    def start(settings: Mapping[str, str] | None = None, *, data: str | None = None, port: int = 0) -> BrokerProcess:
        broker = BrokerProcess(data or str(tmp_path / "data"), settings, port=port)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        if not broker.stopped:
            broker.stop()


@pytest.fixture
def steady_port() -> Iterator[int]:
    """A port to which a broker can come back: nobody else gets it, and no client's own end of a connection does."""
    with reserved_port() as port:
        yield port


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """`start_node(num_partitions=3)`: a node on a thread; `node.disk` is the `FaultyDisk` under it."""
    started: list[NodeThread] = []

    def start(*, disk: FaultyDisk | None = None, **settings: object) -> NodeThread:
        settings.setdefault("log_dirs", (str(tmp_path / "data"),))
        node = NodeThread(disk or FaultyDisk(), settings)
        started.append(node)
        return node

    yield start
    for node in started:
        node.stop()


@pytest.fixture
def directories(tmp_path: Path) -> tuple[str, str]:
    """Two log directories, for `TwoDisks`."""
    return str(tmp_path / "good"), str(tmp_path / "bad")


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """This process may have as many descriptors as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], str]]:
    """`small_disk(8 << 20)` is the path of a disk of that many bytes: a tmpfs, where one may be mounted.

    A test names it before `start_broker`: what is named first ends last, and a disk in use stays mounted.
    """
    mounted: list[str] = []

    def make(size_bytes: int) -> str:
        path = tmp_path / f"disk-{len(mounted)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX)
        if tried.returncode:
            why = tried.stderr.strip()
            pytest.skip(f"no tmpfs can be mounted ({why}); a disk made up in the process is tested instead")
        mounted.append(str(path))
        return str(path)

    yield make
    for path in mounted:
        subprocess.run(["umount", path], check=True, timeout=WAIT_S_MAX)
