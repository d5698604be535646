"""What a person sees at a terminal: the live views, tables that fit, colours, the bar, the question."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from headrace_cli import Cli
from records import commit, send
from screens import PtyScreen, Screen, TmuxScreen, tmux_missing, until
from tool_process import Terminal, ok
from waits import WAIT_S_MAX, eventually

Open = Callable[..., Screen]
ESCAPE = re.compile(r"\x1b\[")


@pytest.fixture(params=["tmux", "pty"])
def open_screen(request: pytest.FixtureRequest) -> Iterator[Open]:
    if request.param == "tmux" and tmux_missing():
        pytest.skip("tmux is not installed; the same test runs on a pseudo-terminal")
    opened: list[Screen] = []

    def start(*args: object) -> Screen:
        screen: Screen = TmuxScreen(*args) if request.param == "tmux" else PtyScreen(*args)
        opened.append(screen)
        return screen

    yield start
    for screen in opened:
        screen.close()


def test_top_is_live_and_looks_into_topics_and_groups(
    open_screen: Open, cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    short, group = f"a-{topic[-8:]}", f"g-{group[-8:]}"
    cli.ok("topic", "create", short)
    send(bootstrap, short, ["hello", "world"], key="greeting")
    commit(bootstrap, group, short, {0: 1})
    screen = open_screen("top", "-b", bootstrap, "--interval", 0.3)
    until(screen, short)
    screen.press("/")
    until(screen, "show only names with")
    screen.press(short)
    shown = until(screen, lambda text: "filter: " + short in text)
    assert re.search(rf"{short}\s+1\s+[\d…]+\s+2\s+\d+ B\s+ok", shown), shown
    screen.press("enter")
    send(bootstrap, short, ["more"] * 50)
    until(screen, lambda text: re.search(rf"{short}\s+1\s+\d+\s+52\s", text) is not None)
    screen.press("enter")
    until(screen, "50 messages seen")  # the last of the partition
    shown = until(screen, "more")
    assert "following" in shown
    send(bootstrap, short, ["the last one"])
    until(screen, "the last one")
    screen.press("escape")
    until(screen, "Groups")
    screen.press("/")
    until(screen, lambda text: "▔▔▔" in text)
    screen.press("escape")  # forgets the filter
    until(screen, lambda text: "filter:" not in text and "▔▔▔" not in text)
    screen.press("/")
    until(screen, "show only names with")
    screen.press(group)
    until(screen, lambda text: "filter: " + group in text and "Empty" in text)
    screen.press("enter")
    until(screen, lambda text: "▔▔▔" not in text)
    screen.press("tab")
    screen.press("enter")
    shown = until(screen, f"{group}: Empty, 0 members, 52 behind")
    assert "Partitions" in shown
    screen.press("q")
    until(screen, lambda _: screen.ended())


def test_lag_is_watched_in_place(open_screen: Open, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
    cli.ok("topic", "create", topic)
    commit(bootstrap, group, topic, {0: 0})
    screen = open_screen("group", "lag", group, "--watch", "--interval", 0.2, "-b", bootstrap)
    until(screen, "caught up in")
    send(bootstrap, topic, ["a"] * 7)
    shown = until(screen, lambda text: re.search(r"\s7\s+0\s+\d+\s+(never|\d+ s)", text) is not None or " 7 " in text)
    assert shown.count("caught up in") == 1, "it is drawn over, not below"
    screen.press("ctrl-c")


def test_a_table_fits_the_terminal_and_has_colours_there_only(cli: Cli, bootstrap: str, topic: str) -> None:
    names = [f"{topic}-{'x' * 80}-{number}" for number in range(2)]
    cli.ok("topic", "create", *names)
    with Terminal("headrace", "topic", "list", f"{topic}-*", "-b", bootstrap) as terminal:
        assert terminal.end() == 0
    assert ESCAPE.search(terminal.screen)
    plain = re.sub(r"\x1b\[[\d;]*m", "", terminal.screen).splitlines()
    assert max(map(len, plain)) <= 80, plain
    assert any("…" in line for line in plain)
    piped = ok("headrace", "topic", "list", f"{topic}-*", "-b", bootstrap).out
    assert not ESCAPE.search(piped)
    assert names[0] in piped, "nothing is cut in a pipe"


def test_records_are_pretty_on_a_terminal(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic)
    send(bootstrap, topic, ['{"a": 1}'], key="k", timestamp=1_700_000_000_000)
    with Terminal("headrace", "consume", topic, "-b", bootstrap) as terminal:
        assert terminal.end() == 0
    plain = re.sub(r"\x1b\[[\d;]*m", "", terminal.screen)
    assert plain.splitlines() == [f"{topic}-0 @0  2023-11-14 22:13:20.000  key=k", '  {"a": 1}']
    assert ESCAPE.search(terminal.screen)


def test_a_question_is_asked_at_a_terminal_and_ctrl_c_is_no(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic)
    with Terminal("headrace", "topic", "delete", topic, "-b", bootstrap) as terminal:
        terminal.read_until("[y/N]: ")
        for _ in range(10):
            # Python may miss a Ctrl-C that comes while it is about to read; a person presses it again, too.
            terminal.type("\x03")
            with suppress(AssertionError):
                terminal.read_until("headrace: stopped", wait_s_max=WAIT_S_MAX / 10)
                break
        assert terminal.end() == 130
    assert topic in cli.ok("topic", "list", "--names").split()
    with Terminal("headrace", "topic", "delete", topic, "-b", bootstrap) as terminal:
        terminal.read_until("[y/N]: ")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert f"topic {topic} deleted" in terminal.screen


def test_lines_are_typed_and_sent_at_once(cli: Cli, bootstrap: str, topic: str) -> None:
    cli.ok("topic", "create", topic)
    with Terminal("headrace", "produce", topic, "-b", bootstrap) as terminal:
        terminal.read_until("type one record per line; Ctrl-D ends")
        terminal.type("typed\n")
        eventually(lambda: cli.ok("consume", topic) == "typed\n", "what was typed is in the topic")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "1 record, 5 B" in terminal.screen


def test_a_bar_shows_how_far_a_file_has_been_sent(cli: Cli, bootstrap: str, topic: str, tmp_path: object) -> None:
    file = f"{tmp_path}/lines"
    with open(file, "w") as out:
        out.write("".join(f"line {number} {'x' * 90}\n" for number in range(60_000)))
    cli.ok("topic", "create", topic)
    with Terminal("headrace", "produce", topic, file, "-b", bootstrap) as terminal:
        assert terminal.end() == 0
    drawn = re.findall(r"\[(#*)(-*)\] +(\d+)%  [\d,]+ records  [\d.]+ \w?B/s", terminal.screen)
    assert drawn, terminal.screen[-500:]
    shares = [int(share) for _, _, share in drawn]
    assert shares == sorted(shares), "what has been acknowledged never becomes less"
    assert terminal.screen.rstrip().splitlines()[-1].endswith(" s")
    assert "60,000 records, 6." in terminal.screen
