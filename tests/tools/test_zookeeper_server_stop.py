"""`zookeeper-server-stop.sh`, only ever with `--data`: else it would stop every keeper of whoever runs the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tool_process import Ran, Running, ok, run
from waits import WAIT_S_MAX, eventually

from headrace.cli.kafka.running_servers import BROKER, KEEPER, running_servers
from headrace.testing import Keeper

NAME = "zookeeper-server-stop.sh"
CLEANLY = "The keeper stopped cleanly"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "zookeeper.properties"
    file.write_text(f"dataDir={tmp_path}/data\nclientPort=0\nclientPortAddress=127.0.0.1\n")
    return file


def stop(tmp_path: Path, *args: str) -> Ran:
    return run(NAME, f"--data={tmp_path}/data", *args)


@pytest.mark.parametrize("command", ["zookeeper-server-start.sh", "headrace keeper", "headrace keeper start"])
def test_a_keeper_is_stopped_cleanly_whatever_started_it(command: str, file: Path, tmp_path: Path) -> None:
    with Running(*command.split(), str(file)) as keeper:
        keeper.read_until(" listens on ")
        stopped = stop(tmp_path)
        (line,) = stopped.lines
        assert line.startswith("Sent SIGTERM to the keeper with pid ")
        assert line.endswith(f" (data in {tmp_path}/data)")
        assert (stopped.exit, stopped.err) == (0, "")
        assert keeper.end(None, WAIT_S_MAX) == 0
        assert CLEANLY in keeper.out
    assert stop(tmp_path).exit == 1


def test_a_keeper_in_the_background_is_stopped(file: Path, tmp_path: Path) -> None:
    ok("zookeeper-server-start.sh", "-daemon", file, cwd=tmp_path)
    assert run(NAME, "--data", "data", cwd=tmp_path).exit == 0
    log = tmp_path / "logs" / "zookeeper.out"
    eventually(lambda: CLEANLY in log.read_text(), "the keeper stops")


def test_without_such_a_keeper_it_says_so_and_ends_with_one(tmp_path: Path) -> None:
    ran = stop(tmp_path)
    assert (ran.exit, ran.err) == (1, "")
    assert ran.out.startswith("No zookeeper server to stop")


def test_brokers_and_programs_with_a_keeper_inside_are_left_alone(tmp_path: Path) -> None:
    with Keeper(str(tmp_path / "data")) as embedded:
        assert stop(tmp_path).exit == 1
        assert embedded.running
    with Running("headrace", "up", "--port", "0", "--data", f"{tmp_path}/data") as broker:
        broker.read_until(" listens on ")
        assert all(f"{tmp_path}/data" not in each.directories for each in running_servers(KEEPER))
        assert any(f"{tmp_path}/data" in each.directories for each in running_servers(BROKER))
        assert stop(tmp_path).exit == 1
        assert broker.end() == 0


@pytest.mark.parametrize("args", [("now",), ("--nope",), ("--data",)])
def test_a_wrong_command_line_stops_nobody(args: tuple[str, ...], tmp_path: Path) -> None:
    ran = stop(tmp_path, *args)
    assert (ran.exit, ran.out, ran.err.count("\n")) == (1, "", 1)
