import os

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import headrace
from headrace.core.errors import OperatorError


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(headrace, ["up", *arguments], env=environment)


def test_up_says_where_it_listens_where_its_data_is_and_how_to_stop_it(fake_node) -> None:
    result = run("--port", "0", "--data", "some/where")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Headrace 0.1.0 listens on 127.0.0.1:45678",
        f"  data  {os.path.abspath('some/where')}",
        "  try   headrace top -b 127.0.0.1:45678, or any Kafka client with that bootstrap server",
        "  stop  Ctrl-C",
        "Headrace stopped cleanly",
    ]
    assert result.stderr == ""
    assert fake_node.made[0].calls == ["open", "run", "close"]


def test_defaults_need_no_flag(fake_node) -> None:
    run()
    settings = fake_node.made[0].settings
    assert (settings.host, settings.port, settings.log_dirs) == ("127.0.0.1", 9092, ("./headrace-data",))
    assert settings.metrics_port == -1


def test_flags_win_over_the_environment(fake_node) -> None:
    run("--set", "num.partitions=6", "--port", "7", HEADRACE_PORT="8", HEADRACE_NUM_PARTITIONS="9")
    run(HEADRACE_PORT="8", HEADRACE_DATA="/d")
    assert (fake_node.made[0].settings.port, fake_node.made[0].settings.num_partitions) == (7, 6)
    assert (fake_node.made[1].settings.port, fake_node.made[1].settings.log_dirs) == (8, ("/d",))


def test_a_data_directory_may_hold_a_comma(fake_node) -> None:
    run("--data", "a,b")
    assert fake_node.made[0].settings.log_dirs == ("a,b",)


def test_metrics_are_shown_when_they_are_on(fake_node) -> None:
    assert "http://127.0.0.1:9308/metrics" in run("--metrics-port", "9308").stdout


def test_every_interface_is_tried_at_the_local_one(fake_node) -> None:
    result = run("--host", "0.0.0.0", "--port", "9")
    assert "listens on 0.0.0.0:9\n" in result.stdout
    assert "headrace top -b 127.0.0.1:9," in result.stdout


@pytest.mark.parametrize(
    "message",
    [
        "127.0.0.1:9092 is in use; stop what listens there, or choose another --port",
        "/d is locked by another broker",
    ],
)
def test_what_the_operator_can_fix_is_one_line(fake_node, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_node, "open_error", OperatorError(message))
    result = run()
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"headrace: {message}\n")
    assert fake_node.made[0].calls == ["open", "close"]


def test_a_bug_is_one_line_too_unless_debugging(fake_node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_node, "run_error", ValueError("odd"))
    result = run()
    assert result.exit_code == 1
    assert result.stderr.startswith("headrace: unexpected ValueError: odd; run it with --debug")
    assert result.stderr.count("\n") == 1
    assert isinstance(run("--debug").exception, ValueError)


def test_a_bad_value_names_flag_key_and_limit(fake_node) -> None:
    result = run("--set", "num.partitions=0")
    assert result.exit_code == 1
    assert result.stderr == ("headrace: --set: num.partitions=0 is below 1; give a whole number of at least 1\n")


def test_an_unknown_setting_is_a_warning(fake_node) -> None:
    result = run("--set", "num.partitons=2")
    assert result.exit_code == 0
    assert result.stderr == (
        "headrace: warning: --set: num.partitons is not a setting, ignored; did you mean num.partitions?\n"
    )


def test_a_setting_that_asks_for_more_brokers_is_a_warning(fake_node) -> None:
    result = run("--set", "default.replication.factor=3", HEADRACE_PROCESS_ROLES="broker")
    assert result.exit_code == 0
    assert [line.partition("): ")[0] for line in result.stderr.splitlines()] == [
        "headrace: warning: process.roles=broker (environment HEADRACE_PROCESS_ROLES",
        "headrace: warning: default.replication.factor=3 (--set",
    ]


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--set", "novalue"], ["--nope"], ["extra"]])
def test_bad_usage_ends_with_two(fake_node, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert fake_node.made == []
