from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import headrace
from headrace.cli.serving import SWITCH_INTERVAL_S


def run(*arguments: str) -> Result:
    return CliRunner().invoke(headrace, ["broker", *arguments])


def test_a_broker_is_configured_by_kafkas_file(fake_node, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=3\nlisteners=PLAINTEXT://127.0.0.1:9\nlog.dirs={tmp_path}/a,{tmp_path}/b\n")
    result = run(str(file))
    settings = fake_node.made[0].settings
    assert (settings.node_id, settings.port) == (3, 9)
    assert settings.log_dirs == (f"{tmp_path}/a", f"{tmp_path}/b")
    assert f"data  {tmp_path}/a, {tmp_path}/b\n" in result.stdout


def test_an_override_wins_over_the_file(fake_node, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3")
    run(str(file), "--override", "num.partitions=4")
    assert fake_node.made[0].settings.num_partitions == 4


def test_a_bad_value_names_file_and_line(fake_node, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("\nnum.partitions=many")
    result = run(str(file))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"headrace: {file}:2: num.partitions=many is not a whole number; give")
    assert result.stderr.count("\n") == 1


def test_warnings_go_to_stderr_and_the_broker_starts(fake_node, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partition=2\nzookeeper.connect=localhost:2181")
    result = run(str(file))
    assert result.exit_code == 0
    warning = "num.partition is not a setting, ignored; did you mean num.partitions?"
    assert result.stderr.splitlines() == [
        f"headrace: warning: {file}:1: {warning}",
        f"headrace: warning: zookeeper.connect=localhost:2181 ({file}:2): clusters are not supported yet, so this"
        " broker runs alone and knows no other; start only one, and remove the setting",
    ]


def test_a_missing_file_is_one_line(fake_node, tmp_path: Path) -> None:
    result = run(str(tmp_path / "none"))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"headrace: {tmp_path}/none: no such file or directory; give")


def test_a_file_in_latin_1_is_read_as_java_does(fake_node, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"broker.rack=caf\xe9")
    run(str(file))
    assert fake_node.made[0].settings.broker_rack == "café"


def test_a_thread_that_computes_gives_way_to_the_loop_soon(fake_node, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("")
    run(str(file))
    assert fake_node.made[0].switch_interval_s == pytest.approx(SWITCH_INTERVAL_S)
