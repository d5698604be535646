"""Who may run a version in an object store: one holder at a time, and none for longer than it lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from waits import NEVER_MS, eventually

from headrace.streaming import lease as leasing
from headrace.streaming.lease import Holder, Lease
from headrace.tables.object_store import object_store


def path_of(tables: str) -> str:
    return f"{tables}/run.lease"


def held_by(tables: str, **more: object) -> None:
    holder = {"token": "other", "host": "elsewhere", "pid": 1, "until_s": time.time() + NEVER_MS / 1000, **more}
    object_store(tables).write(path_of(tables), json.dumps(holder).encode())


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_second_one_is_told_who_was_first(tables: str) -> None:
    first, second = Lease(path_of(tables)), Lease(path_of(tables))
    assert first.take() is None
    other = second.take()
    assert other is not None
    assert other.pid == os.getpid()


def test_what_is_given_back_is_free(tables: str) -> None:
    first, second = Lease(path_of(tables)), Lease(path_of(tables))
    assert first.take() is None
    with first.kept():
        assert second.holder() is not None
    assert second.holder() is None
    assert second.take() is None


def test_a_holder_elsewhere_keeps_it_until_its_time_is_over(tables: str) -> None:
    held_by(tables)
    assert isinstance(Lease(path_of(tables)).take(), Holder)
    held_by(tables, until_s=time.time() - 1)
    assert Lease(path_of(tables)).take() is None


def test_a_holder_on_this_machine_that_was_killed_keeps_nobody_waiting(tables: str) -> None:
    import socket

    held_by(tables, host=socket.gethostname(), pid=ended_pid())
    assert Lease(path_of(tables)).take() is None


def test_a_holder_whose_lease_was_taken_stops(tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "RENEW_S", 0.05)
    lease = Lease(path_of(tables))
    assert lease.take() is None
    with lease.kept():
        held_by(tables)
        eventually(lambda: lease.lost is not None, "it hears that it has lost the lease")
    assert lease.lost == "another process has taken its lease"
    other = Lease(path_of(tables)).holder()
    assert other is not None
    assert other.token == "other", "who lost it leaves the other's alone"
