"""The parts of zookeeper-shell.sh that need no server; tests/keeper/test_shell.py compares the whole with ZooKeeper."""

from __future__ import annotations

import time

import pytest

from headrace.cli.kafka.zookeeper_shell.changing import parse_acl
from headrace.cli.kafka.zookeeper_shell.command_line import Option, Options, ShellError, parse_options, split_words
from headrace.cli.kafka.zookeeper_shell.interactive import Prompt
from headrace.cli.kafka.zookeeper_shell.path_check import check_path
from headrace.cli.kafka.zookeeper_shell.printing import acl_line, error_line, event_lines, hex_dump, stat_lines
from headrace.cli.kafka.zookeeper_shell.quotas import read_track, track_text
from headrace.cli.kafka.zookeeper_shell.reading import client_connect_string
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.acl import Acl
from headrace.protocol.zookeeper.stat import Stat

OPTIONS = Options({"s": Option("stat"), "w": Option("watch"), "v": Option("version", True), "word": Option("", True)})
EITHER = Options({"n": Option("soft", True), "b": Option("bytes", True)}, one_of="nb", required=True)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls /", ["ls", "/"]),
        ("  create  /a   x ", ["create", "/a", "x"]),
        ('set /a "two words" -s', ["set", "/a", "two words", "-s"]),
        ("set /a 'it is \"so\"'", ["set", "/a", 'it is "so"']),
        ("set /a a'b", ["set", "/a", "a'b"]),
        ("", []),
    ],
)
def test_a_line_is_split_into_words(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@pytest.mark.parametrize(
    ("words", "args", "options"),
    [
        (["set", "/a", "x", "-v", "3"], ["set", "/a", "x"], {"v": "3"}),
        (["set", "-v3", "/a"], ["set", "/a"], {"v": "3"}),
        (["set", "-v=3", "/a"], ["set", "/a"], {"v": "3"}),
        (["set", "-v", "-1", "/a"], ["set", "/a"], {"v": "-1"}),
        (["ls", "-sw", "/a"], ["ls", "/a"], {"s": "", "w": ""}),
        (["ls", "-swv", "7", "/a"], ["ls", "/a"], {"s": "", "w": "", "v": "7"}),
        (["ls", "-word", "x", "/a"], ["ls", "/a"], {"word": "x"}),
        (["set", "--", "-s", "x"], ["set", "-s", "x"], {}),
        (["set", "-", "x"], ["set", "-", "x"], {}),
    ],
)
def test_options_may_stand_anywhere(words: list[str], args: list[str], options: dict[str, str]) -> None:
    given = parse_options(OPTIONS, words)
    assert (given.args, given.options) == (args, options)


@pytest.mark.parametrize(
    ("options", "words", "said"),
    [
        (OPTIONS, ["ls", "-q"], "UnrecognizedOptionException: Unrecognized option: -q"),
        (OPTIONS, ["ls", "-sq"], "UnrecognizedOptionException: Unrecognized option: -sq"),
        (OPTIONS, ["ls", "--stat"], "UnrecognizedOptionException: Unrecognized option: --stat"),
        (OPTIONS, ["ls", "-v"], "MissingArgumentException: Missing argument for option: v"),
        (OPTIONS, ["ls", "-v", "-s"], "MissingArgumentException: Missing argument for option: v"),
        (EITHER, ["setquota", "/a"], "MissingOptionException: Missing required option: [-n soft, -b bytes]"),
        (EITHER, ["setquota", "-n", "1", "-b", "2", "/a"], "an option from this group has already been selected: 'n'"),
    ],
)
def test_a_wrong_option_is_said_as_java_says_it(options: Options, words: list[str], said: str) -> None:
    with pytest.raises(ShellError) as error:
        parse_options(options, words)
    assert said in str(error.value)
    assert error.value.exit_code == 1


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "Path length must be > 0"),
        ("a", "Path must start with / character"),
        ("/a/", "Path must not end with / character"),
        ("/a//b", 'Invalid path string "/a//b" caused by empty node name specified @3'),
        ("/a/./b", 'Invalid path string "/a/./b" caused by relative paths not allowed @3'),
        ("/..", 'Invalid path string "/.." caused by relative paths not allowed @2'),
        ("/\x01", 'Invalid path string "/\x01" caused by invalid character @1'),
        ("/\0", 'Invalid path string "/\0" caused by null character not allowed @1'),
    ],
)
def test_a_wrong_path_is_said_as_zookeepers_client_says_it(path: str, why: str) -> None:
    with pytest.raises(ShellError) as error:
        check_path(path)
    assert str(error.value) == why


@pytest.mark.parametrize("path", ["/", "/a", "/a.b", "/.a", "/a..b", "/...", "/ü/日本"])
def test_a_path_that_is_one_passes(path: str) -> None:
    check_path(path)


def test_a_stat_is_printed_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        lines = stat_lines(Stat(1, 255, 0, 86_400_000, 3, 4, 5, -1, 6, 7, 16)).splitlines()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert lines == [
        "cZxid = 0x1",
        "ctime = Thu Jan 01 00:00:00 UTC 1970",
        "mZxid = 0xff",
        "mtime = Fri Jan 02 00:00:00 UTC 1970",
        "pZxid = 0x10",
        "cversion = 4",
        "dataVersion = 3",
        "aclVersion = 5",
        "ephemeralOwner = 0xffffffffffffffff",
        "dataLength = 6",
        "numChildren = 7",
    ]


def test_an_acl_is_printed_and_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert acl_line(Acl(31, "world", "anyone")) == "'world,'anyone\n: cdrwa\n"
    assert acl_line(Acl(1, "digest", "a,b:c}%")) == "'digest,'a%2Cb:c%7D%25\n: r\n"
    assert parse_acl("world:anyone:r,digest:ann:x=:rwcda") == [Acl(1, "world", "anyone"), Acl(31, "digest", "ann:x=")]
    assert parse_acl("nonsense,a:b") == []
    assert parse_acl("ip:127.0.0.1:rx") == [Acl(1, "ip", "127.0.0.1")]
    assert capsys.readouterr().err.splitlines() == [
        "nonsense does not have the form scheme:id:perm",
        "a:b does not have the form scheme:id:perm",
        "Unknown perm type: x",
    ]


def test_events_errors_and_bytes_are_printed_as_zookeeper_does() -> None:
    assert event_lines(codes.NODE_DELETED, "/a", 7) == (
        "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:NodeDeleted path:/a zxid: 7\n"
    )
    assert error_line(ZooKeeperError(codes.NO_NODE, "/a")) == "Node does not exist: /a"
    assert error_line(ZooKeeperError(codes.NO_WATCHER, "/a")) == "KeeperErrorCode = No such watcher for /a"
    assert error_line(ZooKeeperError(codes.BAD_ARGUMENTS)) == "Arguments are not valid : null"
    assert hex_dump(b"") == ""
    assert hex_dump(bytes(range(60, 78))).splitlines()[3:5] == [
        "|00000000| 3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b |<=>?@ABCDEFGHIJK|",
        "|00000010| 4c 4d                                           |LM              |",
    ]


def test_a_quota_is_written_as_servers_read_it() -> None:
    text = "count=-1,bytes=10=;byteHardLimit=-1;countHardLimit=5"
    assert track_text(read_track(text.encode())) == text
    assert track_text(read_track(b"count=3,bytes=4")) == "count=3,bytes=4"
    assert track_text({}) == "count=-1,bytes=-1"


def test_the_addresses_of_clients_are_taken_from_a_configuration() -> None:
    text = "server.1=zk1:2888:3888:participant;0.0.0.0:2181\nserver.2=zk2:2888:3888;2182\nversion=100000000"
    assert client_connect_string(text) == "100000000 0.0.0.0:2181,zk2:2182"


class StateOfAShell:
    prompt = "(CONNECTING) "


def test_a_prompt_whose_state_changed_before_it_was_written_is_written_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = StateOfAShell()
    prompt = Prompt(shell)
    assert prompt.next() == "(CONNECTING) "
    shell.prompt = "(CONNECTED) "
    prompt.show_again()  # of the event; readline has written nothing yet
    assert capsys.readouterr().out == ""
    prompt.is_shown()
    assert capsys.readouterr().out == "\r(CONNECTED) \x1b[K"
    prompt.is_over()
    prompt.next()
    prompt.is_shown()
    assert capsys.readouterr().out == "", "it is right already"
