import os
import socket
from pathlib import Path

import pytest
from ports import reserved_port
from waits import WAIT_S_MAX

import headrace
from headrace.core import machine


@pytest.fixture
def listening() -> socket.socket:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_free_port_has_no_listener() -> None:
    with reserved_port() as port:
        assert machine.listener("127.0.0.1", port) is None


def test_a_port_in_use_names_the_process(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PROBE_WAIT_S", 0.1)
    found = machine.listener("127.0.0.1", listening.getsockname()[1])
    assert found is not None
    assert found.pid == os.getpid()
    assert "pytest" in found.command or "python" in found.command
    assert not found.speaks_kafka


def test_a_broker_is_told_from_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PROBE_WAIT_S", WAIT_S_MAX)
    with headrace.Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        found = machine.listener(host, int(port))
    assert found is not None
    assert found.speaks_kafka


def test_a_containers_limit_counts_where_it_is_less_than_the_machine(tmp_path: Path) -> None:
    limits = tmp_path / "sys" / "fs" / "cgroup"
    limits.mkdir(parents=True)
    unlimited = machine.memory_bytes(str(tmp_path))
    (limits / "memory.max").write_text("max\n")
    assert machine.memory_bytes(str(tmp_path)) == unlimited
    (limits / "memory.max").write_text("1073741824\n")
    assert machine.memory_bytes(str(tmp_path)) == 1 << 30


def test_a_directory_that_does_not_exist_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    found = machine.disk(str(tmp_path / "not" / "yet"))
    assert (found.path, found.writable) == (str(tmp_path), True)
    assert found.free_bytes > 0


def test_available_memory_is_less_than_all() -> None:
    available = machine.memory_available_bytes()
    assert available is None or 0 < available <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.memory_available_bytes("/nonexistent") is None
