"""The command lines of Spark's tools: ours first, the user's after, and no option of a program touched."""

from __future__ import annotations

import pytest

from headrace.streaming.spark_tools import command_line, runs_here


def line(*args: str, **environ: str) -> list[str]:
    return command_line("pyspark", args, jars=["a.jar"], settings={"k": "v"}, environ=environ)


def test_settings_of_the_user_come_last() -> None:
    assert line("--conf", "k=w") == ["pyspark", "--jars", "a.jar", "--conf", "k=v", "--conf", "k=w"]


@pytest.mark.parametrize("given", [("--jars", "b.jar,c.jar"), ("--jars=b.jar,c.jar",)])
def test_jars_of_the_user_come_beside_ours(given: tuple[str, ...]) -> None:
    assert line("--verbose", *given, "--name", "n")[1:] == [
        "--jars", "a.jar,b.jar,c.jar", "--conf", "k=v", "--verbose", "--name", "n",
    ]  # fmt: skip


def test_options_of_a_program_are_its_own() -> None:
    assert line("--name", "n", "app.py", "--jars", "x", "--master", "y")[-7:] == [
        "--name", "n", "app.py", "--jars", "x", "--master", "y",
    ]  # fmt: skip


def test_the_master_of_the_environment_counts_unless_one_is_given() -> None:
    assert "spark://h:1" in line(HEADRACE_MASTER="spark://h:1")
    assert "spark://h:1" not in line("--master", "local[2]", HEADRACE_MASTER="spark://h:1")


def test_where_a_tool_runs_is_told_by_its_master() -> None:
    assert runs_here([], {})
    assert runs_here(["--master=local[2]"], {"HEADRACE_MASTER": "spark://h:1"})
    assert not runs_here(["--master", "yarn"], {})
