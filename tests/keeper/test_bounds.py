"""What a keeper refuses, and how it goes on: bad frames, too many of anything, a full disk, damage, old files."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from keeper_process import KeeperProcess
from raw_client import ClosedError, RawClient, create_body
from waits import WAIT_S_MAX, eventually

from headrace import Keeper
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.acl import digest
from headrace.protocol.zookeeper.jute import (
    boolean_bytes,
    buffer_bytes,
    int_bytes,
    long_bytes,
    string_bytes,
    vector_bytes,
)

REQUEST_BYTES_MAX = 4096


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    with Keeper(request_bytes_max=REQUEST_BYTES_MAX, super_digest=digest(b"root:pw"), words="*") as running:
        yield running


def _exists(client: RawClient, path: str) -> bool:
    return client.ask(codes.EXISTS, string_bytes(path) + boolean_bytes(False)).error == codes.OK


def _framed(body: bytes) -> bytes:
    return int_bytes(len(body)) + body


_HEAD = int_bytes(1)  # a request's number
_CREATE = create_body("/changed", b"")
BAD = {
    "no bytes": int_bytes(0),
    "a negative length": int_bytes(-1),
    "more than jute.maxbuffer": int_bytes(REQUEST_BYTES_MAX + 1),
    "half a header": _framed(_HEAD),
    "a create that ends early": _framed(_HEAD + int_bytes(codes.CREATE) + _CREATE[:-5]),
    "a string longer than its frame": _framed(_HEAD + int_bytes(codes.EXISTS) + int_bytes(1 << 30) + b"/"),
    "a negative string": _framed(_HEAD + int_bytes(codes.EXISTS) + int_bytes(-7) + b"/\0"),
    "a path that is not UTF-8": _framed(_HEAD + int_bytes(codes.EXISTS) + buffer_bytes(b"/\xff") + b"\0"),
    "a list of very many": _framed(_HEAD + int_bytes(codes.SET_WATCHES) + long_bytes(0) + int_bytes(1 << 30)),
    "a multi without an end": _framed(
        _HEAD + int_bytes(codes.MULTI) + int_bytes(codes.CREATE) + boolean_bytes(False) + int_bytes(-1) + _CREATE
    ),
    "a multi with a read": _framed(
        _HEAD + int_bytes(codes.MULTI) + int_bytes(codes.EXISTS) + boolean_bytes(False) + int_bytes(-1)
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_frame_ends_its_connection_and_changes_nothing(keeper: Keeper, what: str) -> None:
    other, bad = RawClient(keeper.port), RawClient(keeper.port)
    before = keeper.node.machine.tree.last_zxid
    bad.send_raw(BAD[what])
    with pytest.raises(ClosedError):
        bad.receive()
    assert not _exists(other, "/changed")
    assert keeper.node.machine.tree.last_zxid == before
    back = RawClient(keeper.port, session=bad.session, password=bad.password)
    assert back.session == bad.session  # only the connection is gone


def test_a_request_may_be_as_long_as_jute_maxbuffer(keeper: Keeper) -> None:
    client = RawClient(keeper.port)
    empty = 8 + len(create_body("/a", b""))
    assert client.ask(codes.CREATE, create_body("/a", b"x" * (REQUEST_BYTES_MAX - empty))).error == codes.OK
    client.send(codes.CREATE, create_body("/b", b"x" * (REQUEST_BYTES_MAX - empty + 1)))
    with pytest.raises(ClosedError):
        client.receive()


def test_an_unknown_operation_is_answered_and_the_connection_stays(keeper: Keeper) -> None:
    client = RawClient(keeper.port)
    for kind in (10, 23, 99, 108, 9999, -42):
        assert client.ask(kind, b"whatever").error == codes.UNIMPLEMENTED
    assert _exists(client, "/")


def test_reconfig_is_refused_as_a_server_alone_refuses_it(keeper: Keeper) -> None:
    client = RawClient(keeper.port)
    body = string_bytes("server.9=h:1:2:participant;3") + buffer_bytes(None) * 2 + long_bytes(-1)
    assert client.ask(codes.RECONFIG, body).error == codes.RECONFIG_DISABLED
    assert _exists(client, "/")


def test_super_may_do_what_others_may_not(keeper: Keeper) -> None:
    owner, stranger, root = (RawClient(keeper.port) for _ in range(3))
    owner.ask(codes.AUTH, int_bytes(0) + string_bytes("digest") + buffer_bytes(b"ann:pw"), codes.AUTH_XID)
    root.ask(codes.AUTH, int_bytes(0) + string_bytes("digest") + buffer_bytes(b"root:pw"), codes.AUTH_XID)
    assert owner.ask(codes.CREATE, create_body("/mine", b"", 0, ((31, "auth", ""),))).error == codes.OK
    body = string_bytes("/mine") + buffer_bytes(b"x") + int_bytes(-1)
    assert stranger.ask(codes.SET_DATA, body).error == codes.NO_AUTH
    assert root.ask(codes.SET_DATA, body).error == codes.OK


def test_one_address_has_so_many_connections() -> None:
    with Keeper(connections_per_address_max=3) as keeper:
        clients = [RawClient(keeper.port) for _ in range(3)]
        with pytest.raises((ClosedError, OSError)):
            RawClient(keeper.port)
        clients[0].close()

        def let_in() -> RawClient | None:
            try:
                return RawClient(keeper.port)
            except (ClosedError, OSError):
                return None

        assert _exists(eventually(let_in, "another one is let in"), "/")


def test_one_connection_has_so_many_watches() -> None:
    with Keeper(watches_per_connection_max=3) as keeper:
        client = RawClient(keeper.port)
        errors = [
            client.ask(codes.EXISTS, string_bytes(f"/w{number}") + boolean_bytes(True)).error for number in range(5)
        ]
        assert errors == [codes.NO_NODE] * 3 + [codes.THROTTLED] * 2
        assert client.ask(codes.ADD_WATCH, string_bytes("/") + int_bytes(1)).error == codes.THROTTLED


def test_very_many_requests_at_once_are_answered_in_their_order(keeper: Keeper) -> None:
    """More than a keeper takes in before it answers."""
    client = RawClient(keeper.port)
    xids = [client.send(codes.CREATE, create_body("/n-", b"", 2)) for _ in range(3000)]
    assert [client.receive().xid for _ in xids] == xids


def test_a_tree_that_is_too_large_refuses_more_and_can_be_made_smaller() -> None:
    with Keeper(tree_bytes_max=1 << 20) as keeper:
        client = RawClient(keeper.port)
        made = []
        while client.ask(codes.CREATE, create_body(f"/n{len(made)}", b"x" * 100_000)).error == codes.OK:
            made.append(f"/n{len(made)}")
        assert len(made) < 20
        assert _exists(client, made[0])
        for path in made[:2]:
            assert client.ask(codes.DELETE, string_bytes(path) + int_bytes(-1)).error == codes.OK
        assert client.ask(codes.CREATE, create_body("/again", b"x")).error == codes.OK


# ── the disk ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB: a tmpfs, where one may be mounted."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    if tried.returncode:
        pytest.skip(f"no tmpfs can be mounted ({tried.stderr.strip()}); the simulation has a disk that is full")
    yield path
    subprocess.run(["umount", str(path)], check=True, timeout=WAIT_S_MAX)


def test_a_full_disk_refuses_changes_and_takes_them_again_when_there_is_room(small_disk: Path) -> None:
    with KeeperProcess(small_disk / "keeper") as keeper:
        client = RawClient(keeper.port)
        filler = small_disk / "filler"
        with open(filler, "wb") as file:
            free = os.statvfs(small_disk)
            file.write(bytes(free.f_bavail * free.f_frsize - (1 << 20)))
        made = 0
        while (answer := client.ask(codes.CREATE, create_body(f"/n{made}", b"x" * 400_000))).error == codes.OK:
            made += 1
        assert answer.error == -1
        assert 0 < made < 60
        assert _exists(client, f"/n{made - 1}")  # reads are served
        assert not _exists(client, f"/n{made}")
        filler.unlink()
        assert client.ask(codes.CREATE, create_body("/again", b"")).error == codes.OK
        keeper.kill()
        keeper.start()
        client = RawClient(keeper.port)
        assert _exists(client, "/again")
        assert _exists(client, f"/n{made - 1}")


def test_damage_to_what_was_synced_stops_the_start_with_one_line(tmp_path: Path) -> None:
    with KeeperProcess(tmp_path / "keeper") as keeper:
        client = RawClient(keeper.port)
        for number in range(20):
            client.ask(codes.CREATE, create_body(f"/n{number}", b"data"))
        keeper.kill()
        log = next((keeper.data / "version-2").glob("log.*"))
        content = bytearray(log.read_bytes())
        content[content.index(b"/n5")] ^= 0xFF
        log.write_bytes(bytes(content))
        command = [sys.executable, "-m", "headrace.cli.main", "keeper", str(keeper.directory / "zoo.cfg")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
        assert done.returncode != 0
        assert len(done.stderr.strip().splitlines()) == 1
        assert "damaged at byte" in done.stderr
        log.write_bytes(bytes(content).replace(bytes([ord("/") ^ 0xFF]) + b"n5", b"/n5"))
        keeper.start()
        assert _exists(RawClient(keeper.port), "/n19")


def test_old_snapshots_and_logs_are_removed_and_nothing_is_lost(tmp_path: Path) -> None:
    with KeeperProcess(tmp_path / "keeper", {"snapCount": "50"}) as keeper:
        client = RawClient(keeper.port)
        client.ask(codes.CREATE, create_body("/n", b""))
        directory = keeper.data / "version-2"

        def snapshots() -> list[str]:
            return sorted(path.name for path in directory.glob("snapshot.*") if path.suffix != ".tmp")

        written = 0
        seen: set[str] = set()
        while len(seen) < 8:
            written += 1
            body = string_bytes("/n") + buffer_bytes(b"%d" % written) + int_bytes(-1)
            assert client.ask(codes.SET_DATA, body).error == codes.OK
            seen.update(snapshots())
        eventually(lambda: len(snapshots()) <= 3, "old snapshots are removed")

        def logs_below() -> int:
            """Those that the oldest snapshot, or an older one, goes on in. They go after the snapshots."""
            oldest = min(int(name.partition(".")[2], 16) for name in snapshots())
            return sum(int(path.suffix[1:], 16) <= oldest + 1 for path in directory.glob("log.*"))

        eventually(lambda: logs_below() == 1, "of the logs below the oldest snapshot one is left")
        keeper.kill()
        keeper.start()
        reply = RawClient(keeper.port).ask(codes.GET_DATA, string_bytes("/n") + boolean_bytes(False))
        assert struct.unpack_from(">i", reply.body)[0] == len(str(written))
        assert reply.body[4 : 4 + len(str(written))] == b"%d" % written


def test_an_unknown_key_in_zoo_cfg_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    with KeeperProcess(tmp_path / "keeper", {"tickTme": "2000", "nothing.like.it": "1"}) as keeper:
        said = keeper.said()
    assert "tickTme is not a setting of a keeper; did you mean tickTime?" in said
    assert "nothing.like.it is not a setting of a keeper\n" in said


def test_a_soft_limit_of_a_quota_that_is_passed_is_logged(tmp_path: Path) -> None:
    with KeeperProcess(tmp_path / "keeper") as keeper:
        client = RawClient(keeper.port)
        for path in ("/q", "/zookeeper/quota/q"):
            client.ask(codes.CREATE, create_body(path, b""))
        client.ask(codes.CREATE, create_body("/zookeeper/quota/q/zookeeper_limits", b"count=1,bytes=-1"))
        assert client.ask(codes.CREATE, create_body("/q/a", b"")).error == codes.OK
        line = 'a soft limit of a quota is passed path=/q reason="count is 2, the limit is 1"'
        eventually(lambda: line in keeper.said(), "it is logged")


def test_watches_that_are_set_again_may_be_many(keeper: Keeper) -> None:
    """One frame with as many as fit into it."""
    client = RawClient(keeper.port)
    paths = vector_bytes([string_bytes(f"/w{number:03}") for number in range(400)])
    body = long_bytes(0) + vector_bytes([]) + paths + vector_bytes([])
    assert client.ask(codes.SET_WATCHES, body, codes.SET_WATCHES_XID).error == codes.OK
    assert keeper.node.machine.watching.watches.count == 400
