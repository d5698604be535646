"""The blocks of docs/ that need Spark, run in the shared session: commands in this process, Python with its `spark`.

A run that would go on for ever is given --once, a question is answered with yes, and the tables' directory is an
absolute path in Python, for the JVM was started elsewhere; the rest is as printed. The pipeline is the README's.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from waits import WAIT_S_MAX

from headrace.cli.main import headrace as command
from headrace.streaming import session

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(1, str(ROOT / "tests" / "docs"))

from blocks import Block, blocks, pages  # noqa: E402
from scenes import SCENES  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import headrace

PAGES = {page.relative_to(ROOT).as_posix(): page for page in pages()}


def pipelines(directory: Path, broker: headrace.Broker) -> None:
    from confluent_kafka import Producer

    (code,) = (block.text for block in blocks(ROOT / "README.md") if block.language == "python")
    code += '\n\nhr.pipeline("shop")\n'
    changed = code.replace("amount > 0", "amount > 10")
    assert changed != code
    (directory / "shop.py").write_text(code)
    (directory / "shop_changed.py").write_text(changed)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(-2, 18):
        order = {"order_id": str(number), "customer": "ann", "amount": number, "at": "2026-01-31T10:00:00Z"}
        producer.produce("orders", json.dumps(order))
    assert producer.flush(WAIT_S_MAX) == 0


def tables(directory: Path, broker: headrace.Broker) -> None:
    SCENES["docs/tables.md"](directory)


SURROUNDINGS: dict[str, Callable[[Path, headrace.Broker], None]] = {
    "docs/pipelines.md": pipelines,
    "docs/tables.md": tables,
}


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command finds the shared session where it would start one of its own."""

    @contextmanager
    def running(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "running", running)


@pytest.mark.parametrize("name", [n for n, page in PAGES.items() if any(b.mark == "spark" for b in blocks(page))])
def test_what_a_page_shows_works_on_spark(
    name: str, spark: SparkSession, one_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import headrace

    monkeypatch.chdir(tmp_path)
    with headrace.Broker() as broker:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap_servers)
        SURROUNDINGS[name](tmp_path, broker)
        for block in blocks(PAGES[name]):
            if block.mark == "spark":
                run(block, {"spark": spark})


def run(block: Block, names: dict[str, Any]) -> None:
    if block.language == "python":
        text = block.text.replace('"headrace-tables', f'"{Path.cwd()}/headrace-tables')
        exec(compile(text, block.place, "exec"), names)
        return
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "headrace", f"{block.place}: only headrace's commands are run here, not {line!r}"
        if words[1:3] in (["pipeline", "run"], ["pipeline", "replay"]):
            words.append("--once")
        ended = CliRunner().invoke(command, words[1:], input="y\n")
        assert ended.exit_code == 0, f"{block.place}: {line}\n{ended.output}{ended.exception!r}"
