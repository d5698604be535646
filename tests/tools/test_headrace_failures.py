"""No broker, a broker that goes away in the middle, one that hangs: each one line, a non-zero exit, nothing lost."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

import pytest
from headrace_cli import Cli
from headrace_process import StartHeadrace
from tool_process import Running, long_enough, run
from waits import eventually

EVERY = [
    ("topic", "list"),
    ("topic", "create", "t"),
    ("topic", "describe", "t"),
    ("topic", "alter", "t", "-p", "2"),
    ("topic", "delete", "t", "--yes"),
    ("topic", "copy", "t", "u"),
    ("topic", "tail", "t"),
    ("produce", "t"),
    ("consume", "t"),
    ("consume", "t", "--follow"),
    ("group", "list"),
    ("group", "describe", "g"),
    ("group", "lag", "--watch"),
    ("group", "reset", "g", "--all-topics", "--to", "end", "--yes"),
    ("group", "delete", "g", "--yes"),
    ("config", "show", "broker"),
    ("config", "set", "topic", "t", "a=b"),
    ("cluster",),
    ("api-versions",),
    ("bench", "produce"),
    ("bench", "consume"),
    ("bench", "latency"),
    ("top", "--json"),
]


@pytest.mark.parametrize("command", EVERY, ids=lambda command: "-".join(command[:2]))
def test_no_broker_is_one_line(command: tuple[str, ...], unused_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for a broker that is just starting is cut short here; the next test has it whole."""
    monkeypatch.setattr("headrace.cli.reaching.CONNECT_MS_MAX", 50)
    assert (
        Cli(f"127.0.0.1:{unused_port}")
        .fails(*command)
        .startswith(f"no broker answers at 127.0.0.1:{unused_port} (connection refused)")
    )


def test_no_broker_is_said_after_a_short_wait(unused_port: int) -> None:
    ran = run("headrace", "topic", "list", "--bootstrap", f"127.0.0.1:{unused_port}")
    assert ran.exit == 1
    assert "(connection refused), tried for 2 s; " in ran.err
    assert ran.err.count("\n") == 1
    assert ran.err.rstrip().endswith("start one, for example with `headrace up`, or correct --bootstrap")


def test_an_address_that_is_none_is_a_wrong_command_line() -> None:
    assert "write HOST:PORT" in Cli("nonsense").fails("topic", "list", code=2)
    assert "no broker answers at no.such.host.invalid:9092" in Cli("no.such.host.invalid:9092").fails("topic", "list")


def test_a_port_that_is_no_broker_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with Running("headrace", "topic", "list", "-b", f"127.0.0.1:{port}") as asking:
            link, _ = server.accept()
            link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert asking.end(None) == 1
            link.close()
    assert asking.err.startswith(f"headrace: 127.0.0.1:{port} announced an answer of")
    assert asking.err.count("\n") == 1


def test_a_traceback_is_shown_on_demand_only(unused_port: int) -> None:
    ran = run("headrace", "topic", "list", "--debug", "-b", f"127.0.0.1:{unused_port}")
    assert ran.exit == 1
    assert "Traceback" in ran.err


def test_a_broker_that_dies_while_it_is_produced_to_loses_nothing_in_silence(start_headrace: StartHeadrace) -> None:
    broker = start_headrace()
    cli = Cli(broker.bootstrap)

    def said_with(timeout_ms: int) -> str | None:
        """The first record is acknowledged within that time, the others are not."""
        topic = f"t-{timeout_ms}"
        cli.ok("topic", "create", topic)
        with Running("headrace", "produce", topic, "--timeout", timeout_ms / 1000, "-b", broker.bootstrap) as producing:
            producing.type("first\n")
            eventually(lambda: producing.ended or cli.ok("consume", topic) == "first\n", "the first one is there")
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                with suppress(BrokenPipeError):
                    producing.type("second\nthird\n")
                producing.close_input()
                assert producing.end(None) == 1
            finally:
                os.kill(broker.pid, signal.SIGCONT)
        assert producing.err.count("\n") == 1
        return None if "0 records are acknowledged" in producing.err else producing.err

    said = long_enough(said_with, 2000)
    assert "1 records are acknowledged, and the first that is not is stdin:2: send again from there" in said


def test_a_reader_waits_for_a_broker_that_comes_back(start_headrace: StartHeadrace, unused_port: int) -> None:
    broker = start_headrace(port=unused_port)
    cli = Cli(broker.bootstrap)
    cli.ok("topic", "create", "t")
    with Running("headrace", "consume", "t", "-f", "--from", "beginning", "-b", broker.bootstrap) as following:
        cli.ok("produce", "t", stdin="before\n")
        following.read_until("before\n")
        broker.stop()
        again = start_headrace(port=unused_port, data=broker.data)
        Cli(again.bootstrap).ok("produce", "t", stdin="after\n")
        following.read_until("after\n")
        assert following.end() == 130


def test_a_topic_that_is_deleted_while_it_is_followed_is_said(start_headrace: StartHeadrace) -> None:
    broker = start_headrace()
    cli = Cli(broker.bootstrap)
    cli.ok("produce", "t", "--create", stdin="x\n")
    with Running("headrace", "consume", "t", "-f", "--from", "beginning", "-b", broker.bootstrap) as following:
        following.read_until("x\n")
        cli.ok("topic", "delete", "t", "--yes")
        assert following.end(None) == 1
    assert following.err.count("\n") == 1
    assert "topic was deleted while it was read; 1 records came" in following.err


def test_a_member_of_a_group_can_leave_though_the_broker_hangs(start_headrace: StartHeadrace) -> None:
    broker = start_headrace()
    Cli(broker.bootstrap).ok("produce", "t", "--create", stdin="x\n")
    with Running("headrace", "consume", "t", "-g", "g", "-f", "-b", broker.bootstrap) as following:
        following.read_until("x\n")
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            assert following.end() == 130
        finally:
            os.kill(broker.pid, signal.SIGCONT)
