"""`headrace pipeline check` where no JVM may start: what it finds before, and --no-spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import headrace
from headrace.cli.pipeline.check import STARTING
from headrace.core.errors import OperatorError
from headrace.streaming import session

SHOP = """import headrace as hr

orders = hr.topic("orders", schema="id int, amount double")


@hr.table(expect={"positive": hr.warn("amount > 0")})
def clean(orders):
    return orders


@hr.to_topic("out")
def sent(clean):
    return clean
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every time that a Spark session was asked for; there is none."""
    asked: list[str] = []

    def start(*_: object, **__: object) -> None:
        asked.append("spark")
        raise OperatorError("no Spark here")

    monkeypatch.setattr(session, "_start", start)
    return asked


def check(folder: Path, code: str, *options: str) -> Result:
    file = folder / "shop.py"
    file.write_text(code)
    return CliRunner().invoke(headrace, ["pipeline", "check", str(file), "--tables", str(folder / "tables"), *options])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("def sent(clean)", "def sent(claen)", "reads 'claen', which is neither a function nor a source"),
        ("def sent", "def clean", "clean: declared already at "),
        ("amount > 0", "amount > (0", "hr.warn('amount > (0'): the ( at character 10 is not closed"),
        ("amount > 0", "name = 'x", "the ' at character 8 is not closed"),
        ("hr.table(", "hr.table(key='id', delete='(', ", "delete='(': the ( at character 1 is not closed"),
        ("amount double", "amount decimal(10,2", "schema 'id int, amount decimal(10,2': the ( at character 23"),
        ("id int,", "{id int,", "the schema is not JSON: "),
        ('double"', 'double", starting="erliest"', "starting='erliest': not a place in a topic"),
        ("def clean(orders)", "def clean(orders, old=hr.static('old'))", "hr.static('old'): no such table in "),
        ("return clean", "return clean)", "unmatched ')'"),
    ],
)
def test_what_needs_no_jvm_is_said_before_one_starts(
    tmp_path: Path, started: list[str], old: str, new: str, says: str
) -> None:
    result = check(tmp_path, SHOP.replace(old, new))
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"headrace: {tmp_path}/shop.py:")
    assert says in line
    assert started == []


def test_it_says_that_spark_starts_and_how_to_do_without(tmp_path: Path, started: list[str]) -> None:
    result = check(tmp_path, SHOP)
    assert result.stderr.splitlines() == [STARTING, "headrace: no Spark here"]
    assert started == ["spark"]


def test_without_spark_it_ends_with_the_graph(tmp_path: Path, started: list[str]) -> None:
    result = check(tmp_path, SHOP, "--no-spark")
    assert (result.exit_code, result.stderr, started) == (0, "", [])
    assert result.stdout == (
        "shop: 2 nodes, the graph is sound; columns and modes are not checked\n"
        "\nclean\n  reads   topic orders\n  writes  table clean appended\n"
        "  note    warn unless amount > 0  (positive)\n"
        "\nsent\n  reads   table clean\n  writes  topic out exactly once\n"
    )
    found = json.loads(check(tmp_path, SHOP, "--no-spark", "--json").stdout)
    assert (found["pipeline"], found["analysed"]) == ("shop", False)
    assert found["nodes"][1] == {
        "name": "sent",
        "reads": ["table clean"],
        "writes": "topic out exactly once",
        "mode": None,
        "schema": None,
        "notes": [],
    }


def test_without_spark_neither_pyspark_nor_a_jvm_is_touched(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    code = (
        "import sys\nfrom headrace.cli.main import headrace\n"
        f"headrace(['pipeline', 'check', {str(file)!r}, '--no-spark'], standalone_mode=False)\n"
        "assert not [name for name in sys.modules if name.startswith(('pyspark', 'py4j'))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)
