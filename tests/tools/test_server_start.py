"""`kafka-server-start.sh` beyond what the documents show: its usage, and what it says when it cannot start."""

from __future__ import annotations

import socket
from pathlib import Path

from tool_process import ok, run

NAME = "kafka-server-start.sh"
USAGE = "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*\n"


def test_without_a_file_it_prints_its_usage() -> None:
    for args in ((), ("-daemon",), ("--override", "a=b")):
        ran = run(NAME, *args)
        assert (ran.exit, ran.out, ran.err) == (1, "", USAGE)


def test_its_version_is_kafkas_and_headraces() -> None:
    assert ok(NAME, "--version").out.startswith("4.3.1 (Headrace ")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    ran = run(NAME, tmp_path / "none.properties")
    assert ran.exit == 1
    assert ran.err == (
        f"headrace: {tmp_path}/none.properties: no such file or directory; give the path of a server.properties file\n"
    )


def test_an_override_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("")
    for args, said in (
        (("--override", "no-equals-sign"), "no-equals-sign"),
        (("--override",), "--override: only --override property=value may follow the file"),
        (("other",), "other: only --override property=value may follow the file"),
    ):
        ran = run(NAME, file, *args)
        assert ran.exit == 1
        assert said in ran.err
        assert len(ran.err.splitlines()) == 1


def test_a_background_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f"listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path}/data\n")
        ran = run(NAME, "-daemon", file, cwd=tmp_path)
    assert ran.exit == 1
    (line,) = ran.err.splitlines()
    assert line.startswith("The broker did not start: headrace: ")
    assert str(port) in line
    assert line.endswith("(see logs/kafkaServer.out)")
