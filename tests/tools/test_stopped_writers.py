"""Writers that cannot get rid of their records: they say why, early, and what was not sent when they are stopped."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_cli import Cli
from headrace_process import HeadraceProcess
from records import read
from tool_process import Running, Terminal

from headrace.testing.broker import Broker

StartHeadrace = Callable[..., Any]
PRODUCER = "kafka-console-producer.sh"
PATIENT = ("--message-send-max-retries", 1000)
DISK = "t-0: the broker refuses records: Disk error when trying to access log file on disk; trying again for 30 s"


@pytest.fixture
def refusing(is_headrace: bool) -> Iterator[Broker]:
    """A broker that refuses every record as if its disk were lost, until its faults are cleared."""
    if not is_headrace:
        pytest.skip("needs a broker of its own; the one given with --bootstrap does as it likes")
    with Broker() as broker:
        Cli(f"127.0.0.1:{broker.port}").ok("topic", "create", "t")
        broker.fail_next("Produce", "KAFKA_STORAGE_ERROR", times=1_000_000)
        yield broker


def console(broker: Broker) -> tuple[object, ...]:
    return (PRODUCER, "--bootstrap-server", f"127.0.0.1:{broker.port}", "--topic", "t", *PATIENT)


def produce(broker: Broker) -> tuple[object, ...]:
    return ("headrace", "produce", "t", "-b", f"127.0.0.1:{broker.port}")


def test_the_console_says_what_is_refused_and_goes_on(refusing: Broker) -> None:
    with Running(*console(refusing)) as writer:
        writer.type("kept\n")
        writer.read_until(f"{DISK}; kafka-log-dirs.sh --describe shows which log directory failed\n", on_err=True)
        refusing.clear_faults()
        writer.close_input()
        assert writer.end(None) == 0
    assert writer.err.count("refuses") == 1
    assert read(f"127.0.0.1:{refusing.port}", "t", 1) == [(None, b"kept")]


def test_headrace_produce_says_what_is_refused_and_goes_on(refusing: Broker) -> None:
    with Running(*produce(refusing)) as writer:
        writer.type("kept\n")
        writer.read_until(f"headrace: {DISK}", on_err=True)
        refusing.clear_faults()
        writer.close_input()
        assert writer.end(None) == 0
    assert "t: 1 record, 4 B" in writer.err
    assert read(f"127.0.0.1:{refusing.port}", "t", 1) == [(None, b"kept")]


def test_a_partition_on_a_lost_disk_is_named(start_headrace: StartHeadrace, tmp_path: Path) -> None:
    directories = [tmp_path / "good", tmp_path / "bad"]
    settings = {"log.dirs": ",".join(map(str, directories))}
    broker = start_headrace(settings)
    Cli(broker.bootstrap).ok("topic", "create", "t", "-p", 4)
    broker.stop()
    (lost, *_) = sorted(int(path.name.removeprefix("t-")) for path in directories[1].glob("t-*"))
    shutil.rmtree(directories[1])
    directories[1].mkdir()
    broker = start_headrace(settings)
    with Running("headrace", "produce", "t", "-p", lost, "-b", broker.bootstrap) as writer:
        writer.type("waits\n")
        writer.read_until(f"t-{lost}", on_err=True)
        writer.read_until("no leader, so records wait; trying again for 30 s", on_err=True)
        writer.end(signal.SIGTERM)
    assert "0 records are acknowledged, 1 are not, and the first of those is stdin:1: send again" in writer.err


@pytest.mark.parametrize("ended", [True, False], ids=["after-the-end", "while-reading"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_console_says_what_it_has_not_sent(refusing: Broker, ended: bool, number: signal.Signals) -> None:
    with Running(*console(refusing)) as writer:
        writer.type("lost\n")
        writer.read_until("refuses", on_err=True)
        if ended:
            writer.close_input()
        else:
            writer.kill(number)
        writer.read_until("Waiting until 1 record is acknowledged; Ctrl-C gives up\n", on_err=True)
        assert writer.end(number) == 128 + number
    assert writer.err.splitlines()[-1] == (
        "1 record is not acknowledged (line 1); send again from there once a broker answers"
    )
    assert "unexpected" not in writer.err


@pytest.mark.parametrize("ended", [True, False], ids=["after-the-end", "while-reading"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_headrace_produce_says_what_it_has_not_sent(refusing: Broker, ended: bool, number: signal.Signals) -> None:
    with Running(*produce(refusing)) as writer:
        writer.type("lost\nlost, too\n")
        writer.read_until("refuses", on_err=True)
        if ended:
            writer.close_input()
        assert writer.end(number) == 128 + number
    assert writer.err.splitlines()[-1] == (
        "headrace: stopped; 0 records are acknowledged, 2 are not, and the first of those is stdin:1: send again from "
        "there"
    )


def test_what_is_said_at_the_prompt_has_a_line_of_its_own(start_headrace: StartHeadrace) -> None:
    broker = start_headrace()
    with Terminal(PRODUCER, "--bootstrap-server", broker.bootstrap, "--topic", "t") as terminal:
        terminal.read_until(">")
        terminal.type("kept\n")
        terminal.read_until("kept\r\n>")
        assert read(broker.bootstrap, "t", 1) == [(None, b"kept")]
        broker.stop()
        terminal.read_until(">\r\nNo broker answers any more; trying again for 30 s\r\n>")
        terminal.type("lost\n")
        terminal.read_until("lost\r\n>")
        terminal.type("\x04")
        terminal.read_until("\r\nWaiting until 1 record is acknowledged; Ctrl-C gives up\r\n")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert terminal.screen.endswith(
        "1 record is not acknowledged (line 2); send again from there once a broker answers\r\n"
    )


def test_headrace_produce_says_that_no_broker_answers(start_headrace: StartHeadrace) -> None:
    broker = start_headrace()
    Cli(broker.bootstrap).ok("topic", "create", "t")
    with Running("headrace", "produce", "t", "-b", broker.bootstrap) as writer:
        writer.type("kept\n")
        assert read(broker.bootstrap, "t", 1) == [(None, b"kept")]
        broker.stop()
        writer.read_until("headrace: no broker answers any more; trying again for 30 s\n", on_err=True)
        assert writer.end(signal.SIGTERM) == 143
    assert writer.err.endswith("headrace: stopped; 1 records are acknowledged\n")


def test_a_writer_goes_on_when_the_broker_comes_back(start_headrace: StartHeadrace) -> None:
    broker = start_headrace()
    port = int(broker.bootstrap.rpartition(":")[2])
    with Running(PRODUCER, "--bootstrap-server", broker.bootstrap, "--topic", "t") as writer:
        writer.type("before\n")
        assert read(broker.bootstrap, "t", 1) == [(None, b"before")]
        broker.stop()
        writer.read_until("No broker answers any more", on_err=True)
        again: HeadraceProcess = start_headrace(port=port, data=broker.data)
        writer.type("after\n")
        writer.close_input()
        assert writer.end(None) == 0
        assert read(again.bootstrap, "t", 2) == [(None, b"before"), (None, b"after")]
