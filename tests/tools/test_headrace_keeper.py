"""`headrace keeper tree | get | set | watch | sessions | dump`, for people and, with --json, for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.shell_completion import BashComplete
from ports import reserved_port
from tool_process import Running, ok, run

from headrace.cli.main import headrace as headrace_command
from headrace.client.zookeeper.blocking import BlockingClient
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.acl import Acl, digest
from headrace.testing import Keeper


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    with Keeper() as running:
        yield running


@pytest.fixture
def client(keeper: Keeper) -> Iterator[BlockingClient]:
    with BlockingClient(keeper.hosts) as made:
        made.create("/app")
        made.create("/app/limit", b"20")
        made.create("/app/members")
        made.create("/app/members/a", b"\xff\x00", flags=codes.EPHEMERAL)
        yield made


def headrace(keeper: Keeper, *args: object, **more: str) -> str:
    return ok("headrace", "keeper", *args, "-s", keeper.hosts, **more).out


def test_the_tree_is_drawn(keeper: Keeper, client: BlockingClient) -> None:
    assert headrace(keeper, "tree", "/app").splitlines() == [
        "/app",
        "├── limit  2 B",
        "└── members",
        f"    └── a  2 B  ephemeral {client.session_id:#x}",
    ]
    assert headrace(keeper, "tree", "app/", "--depth", 1).splitlines() == ["/app", "├── limit  2 B", "└── members"]
    found = json.loads(headrace(keeper, "tree", "/app", "--json"))
    assert [each["path"] for each in found["nodes"]] == ["/app/limit", "/app/members"]
    assert found["nodes"][1]["nodes"][0]["ephemeral_owner"] == f"{client.session_id:#x}"
    assert headrace(keeper, "tree").splitlines()[0] == "/"


def test_many_nodes_are_walked(keeper: Keeper, client: BlockingClient) -> None:
    client.create("/many")
    for number in range(450):
        client.create(f"/many/{number:04d}")
    assert len(headrace(keeper, "tree", "/many").splitlines()) == 451


def test_a_node_is_read_and_written(keeper: Keeper, client: BlockingClient) -> None:
    assert headrace(keeper, "get", "/app/limit") == "20"
    assert headrace(keeper, "set", "/app/limit", "30", "--version", 0) == "/app/limit has version 1\n"
    found = json.loads(headrace(keeper, "get", "/app/limit", "--json"))
    assert (found["data"], found["version"]) == ("30", 1)
    assert found["acl"] == [
        {"scheme": "world", "id": "anyone", "permissions": ["read", "write", "create", "delete", "admin"]}
    ]
    assert json.loads(headrace(keeper, "get", "/app/members/a", "--json"))["data_base64"] == "/wA="
    assert json.loads(headrace(keeper, "set", "/a/b/c", "-", "--create", "--json", stdin="typed"))["data_bytes"] == 5
    assert client.get("/a/b/c").data == b"typed"


def test_what_is_refused_is_said_with_the_remedy(keeper: Keeper, client: BlockingClient) -> None:
    def failed(*args: object) -> str:
        ran = run("headrace", "keeper", *args, "-s", keeper.hosts)
        assert ran.exit == 1
        return ran.err

    assert failed("get", "/none") == "headrace: /none does not exist\n"
    assert failed("set", "/none", "x") == "headrace: /none does not exist; add --create to make it\n"
    assert failed("set", "/app", "x", "--version", 7) == (
        "headrace: /app is at version 0, not at 7; read it again, then decide again\n"
    )
    own = (Acl(codes.ALL_PERMISSIONS, "digest", digest(b"ann:pw") or ""),)
    client.create("/own", b"secret", acl=own)
    assert failed("get", "/own").startswith("headrace: /own: no permission")
    assert headrace(keeper, "get", "/own", "--auth", "ann:pw") == "secret"


def test_changes_are_watched(keeper: Keeper, client: BlockingClient) -> None:
    with Running("headrace", "keeper", "watch", "/app", "--count", 3, "--json", "-s", keeper.hosts) as watching:
        watching.read_until("watching /app", on_err=True)
        client.set("/app/limit", b"40")
        client.create("/app/new")
        client.delete("/app/new")
        assert watching.end(None) == 0
    lines = [json.loads(line) for line in watching.out.splitlines()]
    assert [(line["change"], line["path"]) for line in lines] == [
        ("changed", "/app/limit"),
        ("created", "/app/new"),
        ("deleted", "/app/new"),
    ]


def test_a_watch_goes_on_after_a_restart_and_says_what_it_may_have_missed(keeper: Keeper) -> None:
    with Running("headrace", "keeper", "watch", "--count", 1, "-s", keeper.hosts) as watching:
        watching.read_until("watching /", on_err=True)
        keeper.kill()
        watching.read_until("headrace: the connection broke", on_err=True)
        keeper.restart()
        watching.read_until("headrace: connected again; what changed meanwhile was not seen", on_err=True)
        with BlockingClient(keeper.hosts) as client:
            client.create("/late")
        watching.read_until("created   /late")
        assert watching.end(None) == 0


def test_sessions_are_listed_with_their_nodes(keeper: Keeper, client: BlockingClient) -> None:
    shown = headrace(keeper, "sessions").splitlines()
    assert shown[0].startswith(f"{client.session_id:#x}  127.0.0.1:")
    assert shown[0].endswith(f"time-out {client.timeout_ms} ms")
    assert shown[1:] == ["    /app/members/a"]
    (found,) = json.loads(headrace(keeper, "sessions", "--json"))
    assert (found["id"], found["ephemeral"]) == (f"{client.session_id:#x}", ["/app/members/a"])


def test_without_the_word_sessions_are_known_by_their_nodes() -> None:
    with Keeper(words="srvr") as keeper, BlockingClient(keeper.hosts) as client:
        client.create("/mine", flags=codes.EPHEMERAL)
        ran = ok("headrace", "keeper", "sessions", "-s", keeper.hosts)
    assert ran.lines == [f"{client.session_id:#x}  not seen connected", "    /mine"]
    assert "4lw.commands.whitelist=srvr,cons" in ran.err


def test_everything_is_dumped(keeper: Keeper, client: BlockingClient) -> None:
    lines = headrace(keeper, "dump", "/app").splitlines()
    assert lines[1].startswith("/app/limit  version 0  zxid 0x")
    assert lines[2] == "    20"
    assert lines[-1] == "    ff 00"
    found = json.loads(headrace(keeper, "dump", "/app", "--json"))
    assert {each["path"]: each.get("data") for each in found} == {
        "/app": "",
        "/app/limit": "20",
        "/app/members": "",
        "/app/members/a": None,
    }


def test_no_keeper_is_one_line() -> None:
    with reserved_port() as port:
        ran = run("headrace", "keeper", "tree", "-s", f"127.0.0.1:{port}")
    assert ran.exit == 1
    assert ran.err == (
        f"headrace: no ZooKeeper answers at 127.0.0.1:{port} (127.0.0.1:{port}: connection refused); start one, for"
        " example with `headrace keeper`, or correct --server\n"
    )


def test_a_word_is_a_command_or_a_file() -> None:
    ran = run("headrace", "keeper", "tre")
    assert ran.exit == 2
    assert ran.err.startswith("headrace: tre is no file, and no such command 'tre'; did you mean tree")


def test_a_file_that_is_not_there_is_named() -> None:
    ran = run("headrace", "keeper", "none.cfg")
    assert ran.exit == 1
    assert ran.err == "headrace: none.cfg: no such file or directory; give the path of a zoo.cfg file\n"


def test_commands_are_completed() -> None:
    completing = BashComplete(headrace_command, {}, "headrace", "_HEADRACE_COMPLETE")
    assert [each.value for each in completing.get_completions(["keeper"], "t")] == ["tree"]
    assert [each.value for each in completing.get_completions(["keeper", "tree"], "--dep")] == ["--depth"]


def test_a_keeper_starts_with_and_without_its_command(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "zoo.cfg"
    file.write_text(f"dataDir={tmp_path}/data\nclientPort=0\n")
    for args in ((file,), ("start", file), ("--port", 0, "--data", tmp_path / "data")):
        with Running("headrace", "keeper", *args) as running:
            running.read_until("keeper listens on 127.0.0.1:")
            assert running.end() == 0
