"""zookeeper-shell.sh as a person uses it, at a terminal; what it prints is compared in tests/keeper/test_shell.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from ports import reserved_port
from screens import PtyScreen, Screen, TmuxScreen, tmux_missing, until
from tool_process import ok, printed, run

from headrace.client.zookeeper.blocking import BlockingClient
from headrace.testing import Keeper


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    with Keeper() as running, BlockingClient(running.hosts) as client:
        for path in (
            "/brokers",
            "/brokers/topics",
            "/brokers/topics/yourtopic",
            "/brokers/topics/yourtopic/partitions",
        ):
            client.create(path)
        yield running


@pytest.fixture(params=["tmux", "pty"])
def open_shell(request: pytest.FixtureRequest, keeper: Keeper) -> Iterator[Callable[[], Screen]]:
    if request.param == "tmux" and tmux_missing():
        pytest.skip("tmux is not installed; the same test runs on a pseudo-terminal")
    kind = TmuxScreen if request.param == "tmux" else PtyScreen
    opened: list[Screen] = []

    def start() -> Screen:
        opened.append(kind(keeper.hosts, program="zookeeper-shell.sh"))
        return opened[-1]

    yield start
    for screen in opened:
        screen.close()


def prompt(keeper: Keeper, number: int, state: str = "CONNECTED") -> str:
    return f"[zk: {keeper.hosts}({state}) {number}]"


def type_line(screen: Screen, line: str) -> None:
    screen.press(line)
    screen.press("enter")


def connected_prompt(screen: Screen, keeper: Keeper) -> None:
    """The first prompt may come before the connection; the event of it brings a new one."""
    until(screen, "Welcome to ZooKeeper!")
    until(screen, prompt(keeper, 0))


def test_row_7_the_shell_of_the_documents(open_shell: Callable[[], Screen], keeper: Keeper) -> None:
    screen = open_shell()
    connected_prompt(screen, keeper)
    type_line(screen, "ls /brokers/topics")
    until(screen, "[yourtopic]")
    until(screen, prompt(keeper, 1))
    type_line(screen, "rmr /brokers/topics/yourtopic")
    until(screen, "The command 'rmr' has been deprecated. Please use 'deleteall' instead.")
    until(screen, prompt(keeper, 2))
    type_line(screen, "ls /brokers/topics")
    until(screen, lambda text: text.rstrip().endswith(prompt(keeper, 3)) and "\n[]" in text)
    type_line(screen, "quit")
    until(screen, lambda _: screen.ended())


def test_commands_and_paths_are_completed(open_shell: Callable[[], Screen], keeper: Keeper) -> None:
    screen = open_shell()
    connected_prompt(screen, keeper)
    screen.press("getAl")
    screen.press("tab")
    until(screen, prompt(keeper, 0) + " getAllChildrenNumber")
    screen.press(" /bro")
    screen.press("tab")
    until(screen, "getAllChildrenNumber /brokers")
    screen.press("/t")
    screen.press("tab")
    until(screen, "/brokers/topics")
    screen.press("enter")
    until(screen, lambda text: re.search(r"^2\s*$", text, re.MULTILINE) is not None)


def test_an_event_is_printed_while_a_line_is_typed(open_shell: Callable[[], Screen], keeper: Keeper) -> None:
    screen = open_shell()
    connected_prompt(screen, keeper)
    type_line(screen, "get -w /brokers")
    until(screen, prompt(keeper, 1))
    screen.press("ls /bro")
    until(screen, prompt(keeper, 1) + " ls /bro")
    with BlockingClient(keeper.hosts) as client:
        client.set("/brokers", b"changed")
    until(screen, "WatchedEvent state:SyncConnected type:NodeDataChanged path:/brokers")
    until(screen, lambda text: text.rstrip().endswith(prompt(keeper, 1) + " ls /bro"))
    screen.press("kers")
    screen.press("enter")
    until(screen, "[topics]")


def test_the_prompt_says_whether_there_is_a_server(open_shell: Callable[[], Screen], keeper: Keeper) -> None:
    screen = open_shell()
    connected_prompt(screen, keeper)
    keeper.kill()
    until(screen, "WatchedEvent state:Disconnected type:None path:null")
    until(screen, prompt(keeper, 0, "CONNECTING"))
    keeper.restart()
    until(screen, lambda text: text.count("state:SyncConnected") == 2)
    until(screen, lambda text: text.rstrip().endswith(prompt(keeper, 0)))
    type_line(screen, "close")
    until(screen, prompt(keeper, 1, "CLOSED"))
    type_line(screen, "ls /")
    until(screen, "Not connected")
    type_line(screen, f"connect {keeper.hosts}/brokers")
    until(screen, lambda text: f"[zk: {keeper.hosts}/brokers(CONNECTED) 3]" in text)
    type_line(screen, "ls /")
    until(screen, "[topics]")
    type_line(screen, "history")
    until(screen, "3 - ls /")


# ── without a terminal ───────────────────────────────────────────────────────────────────────────────────────────────


def test_row_7_as_single_commands(keeper: Keeper) -> None:
    def shell(command: str) -> list[str]:
        words = printed(f"zookeeper-shell.sh host:port {command}", "", **{"host:port": keeper.hosts})
        return ok(*words).lines

    assert shell("ls /brokers/topics")[-1] == "[yourtopic]"
    shell("rmr /brokers/topics/yourtopic")
    assert shell("ls /brokers/topics")[-1] == "[]"


def test_commands_in_a_pipe_end_with_the_last_ones_exit_code(keeper: Keeper) -> None:
    assert run("zookeeper-shell.sh", keeper.hosts, stdin="ls /none\nls /\n").exit == 0
    assert run("zookeeper-shell.sh", keeper.hosts, stdin="ls /\nls /none\n").exit == 1
    assert run("zookeeper-shell.sh", keeper.hosts, stdin="nonsense\nquit\nls /\n").exit == 127


def test_without_a_server_a_command_fails_in_one_line() -> None:
    with reserved_port() as port:
        ran = run("zookeeper-shell.sh", f"127.0.0.1:{port}", "ls", "/")
    assert ran.exit == 1
    assert ran.err == (
        f"KeeperErrorCode = ConnectionLoss for / (127.0.0.1:{port}: connection refused); start a server, for example"
        f" with `headrace keeper`, or correct 127.0.0.1:{port}\n"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "USAGE: zookeeper-shell.sh zookeeper_host:port[/path]"),
        (("-server",), "no argument found for option -server"),
        (("h:1", "-zk-tls-config-file", "f"), "TLS to a ZooKeeper is not supported"),
        (("h:1", "-timeout", "soon"), "-timeout soon: no such option, or not a value for it"),
        (("h:port", "ls", "/"), "h:port: h:port is not host:port"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(args: tuple[str, ...], said: str) -> None:
    ran = run("zookeeper-shell.sh", *args)
    assert ran.exit == 1
    assert said in ran.err


def test_options_of_zookeepers_own_script_are_taken(keeper: Keeper) -> None:
    ran = ok("zookeeper-shell.sh", "-server", keeper.hosts, "-waitforconnection", "-timeout", 30000, "ls", "/brokers")
    assert ran.lines[-1] == "[topics]"
