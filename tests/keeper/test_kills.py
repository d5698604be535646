"""`kill -9` of a keeper at any moment, with clients that go on: what they were told must hold together.

`make keeper-kills MINUTES=…` goes on for so long; `SEED=…` makes the same choices, the moments depend on the machine.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from keeper_client import KeeperClient, prepare
from keeper_history import History, Read, ViolationError, Write
from keeper_process import KeeperProcess
from raw_client import RawClient
from waits import WAIT_S_MAX, eventually

from headrace.core.files import Disk
from headrace.keeper import transactions, txn_log
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.jute import Reader, boolean_bytes, string_bytes

CLIENTS = 4
KILLS = 6
WRITES_PER_LIFE = 60  # that are answered before the next kill, on any machine


def test_nothing_that_was_answered_or_seen_is_lost_by_kills(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--seed", None)
    seed = int.from_bytes(os.urandom(4), "big") if given is None else given
    print(f"replay its choices with --seed {seed}")
    minutes = request.config.getoption("--minutes")
    choose = random.Random(seed)
    history, stop = History(), threading.Event()
    # Without a limit the log is kept whole, so that it can be looked at; with one, old files go.
    settings = {
        "tickTime": "30000",
        "maxSessionTimeout": "600000",
        "snapCount": "10000000" if minutes is None else "2000",
    }
    with KeeperProcess(tmp_path / "keeper", settings) as keeper:
        prepare(keeper.port)
        clients = [KeeperClient(number, seed, keeper.port, history, stop) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        ends = time.monotonic() + 60 * (minutes or 0)
        kills = 0
        while kills < KILLS or time.monotonic() < ends:
            _await_writes(clients, WRITES_PER_LIFE)
            time.sleep(choose.random() * 0.05)  # any moment
            keeper.kill()
            kills += 1
            keeper.start()
            if _failed(clients):
                break
        stop.set()
        for client in clients:
            client.join(WAIT_S_MAX)
            assert not client.is_alive()
        for client in clients:
            if client.error is not None:
                raise client.error
        history.check()
        _check_left(keeper.port, clients)
    if minutes is None:
        _check_log(keeper.data / "version-2")
    print(f"{kills} kills, {len(history.writes)} writes, {len(history.reads)} reads")


def _failed(clients: list[KeeperClient]) -> bool:
    return any(client.error is not None for client in clients)


def _await_writes(clients: list[KeeperClient], more: int) -> None:
    wanted = sum(each.acknowledged for each in clients) + more
    eventually(lambda: _failed(clients) or sum(each.acknowledged for each in clients) >= wanted, "writes are answered")


def _check_left(port: int, clients: list[KeeperClient]) -> None:
    """No session has left a node."""
    client = RawClient(port)
    reply = client.ask(codes.GET_CHILDREN, string_bytes("/e") + boolean_bytes(False))
    reader = Reader(reply.body)
    there = {f"/e/{name}" for name in reader.vector(reader.string)}
    client.close()
    assert there == set()


def _check_log(directory: Path) -> None:
    """Each ephemeral node was made once and removed once, and the transactions have no gap."""
    made, removed, last = Counter[str](), Counter[str](), 0
    for path in sorted(directory.glob("log.*"), key=lambda each: int(each.suffix[1:], 16)):
        for entry in txn_log.read(str(path), Disk()):
            transaction = entry.transaction
            if transaction.zxid <= last:
                continue
            assert transaction.zxid == last + 1
            last = transaction.zxid
            if isinstance(transaction.body, transactions.Create) and transaction.body.path.startswith("/e/"):
                made[transaction.body.path] += 1
            elif isinstance(transaction.body, transactions.CloseSession):
                removed.update(transaction.body.paths)
    assert made == removed
    assert set(made.values()) <= {1}


# ── the checker itself ───────────────────────────────────────────────────────────────────────────────────────────────


def _history(*happened: Write | Read) -> History:
    return History(
        writes=[each for each in happened if isinstance(each, Write)],
        reads=[each for each in happened if isinstance(each, Read)],
    )


def test_the_checker_takes_a_history_that_is_right() -> None:
    _history(
        Write("/r", b"a", 1, 4, 1, 10),
        Write("/r", b"b", 2),  # its answer never came, and it happened
        Read("/r", 3, 5, b"b", 2, 11),
        Write("/r", b"c", 6, 7, 3, 12),
        Write("/r", b"d", 8),  # and this one did not
    ).check()


@pytest.mark.parametrize(
    ("happened", "said"),
    [
        ([Write("/r", b"a", 1, 2, 1, 10), Read("/r", 3, 4, b"", 0, 0)], "was read after version 1 had been seen"),
        ([Write("/r", b"a", 1, 2, 1, 10), Write("/r", b"b", 3, 4, 1, 11)], "two writes were told"),
        ([Write("/r", b"a", 1, 2, 2, 10)], "nobody can have written"),
        ([Write("/r", b"a", 1, 2, 1, 10), Read("/r", 3, 4, b"x", 1, 10)], "was read as"),
        ([Write("/r", b"a", 1, 2, 1, 10), Write("/q", b"b", 3, 4, 1, 9)], "began after 0xa was answered"),
        ([Write("/r", b"a", 1, 4, 1, 10), Write("/r", b"b", 2, 3, 2, 9)], "do not follow the order"),
        ([Read("/r", 1, 2, b"z", 1, 9), Write("/r", b"a", 3, 4, 2, 10)], "which nobody wrote"),
    ],
)
def test_the_checker_finds_what_is_wrong(happened: list[Write | Read], said: str) -> None:
    with pytest.raises(ViolationError, match=said):
        _history(*happened).check()


def test_the_checker_finds_a_sequential_name_that_came_twice() -> None:
    history = History(sequential=[(1, "/s/n-0000000000"), (2, "/s/n-0000000000")])
    with pytest.raises(ViolationError, match="a name came twice"):
        history.check()
