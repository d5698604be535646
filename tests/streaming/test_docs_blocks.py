"""The blocks of docs/ that need Spark, run in the shared session: commands in this process, Python with its `spark`.

A run that would go on forever is given --once, a question is answered with yes, and the tables' directory is an
absolute path in Python, for the JVM was started elsewhere; the rest is as printed. A block of tests is a block whose
`test_…` functions are called, with the test kit's fixture. The pipeline of docs/pipelines.md is the README's.
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
    from headrace.testing.plugin import OpenPipeline

PAGES = {page.relative_to(ROOT).as_posix(): page for page in pages()}


def pipelines(directory: Path, broker: headrace.Broker) -> None:
    from confluent_kafka import Producer

    (code,) = (block.text for block in blocks(ROOT / "README.md") if block.language == "python")
    code += '\n\nhr.pipeline("shop")\n'
    changed = code.replace("amount > 0", "amount > 10")
    assert changed != code
    (directory / "shop.py").write_text(code)
    (directory / "shop_changed.py").write_text(changed)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(-2, 18):
        order = {"order_id": str(number), "customer": "ann", "amount": number, "at": "2026-01-31T10:00:00Z"}
        producer.produce("orders", json.dumps(order))
    assert producer.flush(WAIT_S_MAX) == 0


def tables(directory: Path, broker: headrace.Broker) -> None:
    SCENES["docs/tables.md"](directory)


def orders(directory: Path, broker: headrace.Broker) -> None:
    from headrace.testing.records import send

    amounts = {"ann": [10, -4], "bob": [7]}
    rows = [{"customer": name, "amount": amount} for name, given in amounts.items() for amount in given]
    send(broker.bootstrap_servers, "orders", rows)


SURROUNDINGS: dict[str, Callable[[Path, headrace.Broker], None]] = {
    "docs/pipelines.md": pipelines,
    "docs/pipelines/replaying.md": orders,
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
    name: str,
    spark: SparkSession,
    one_session: None,
    headrace_pipeline: OpenPipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import headrace

    monkeypatch.chdir(tmp_path)
    with headrace.Broker() as broker:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap_servers)
        SURROUNDINGS.get(name, lambda directory, broker: None)(tmp_path, broker)
        for block in blocks(PAGES[name]):
            if block.mark == "file":
                (tmp_path / block.detail).write_text(block.text + "\n")
            if block.mark == "spark":
                run(block, {"spark": spark}, headrace_pipeline)


def run(block: Block, names: dict[str, Any], headrace_pipeline: OpenPipeline) -> None:
    if block.language == "python":
        text = block.text.replace('"headrace-tables', f'"{Path.cwd()}/headrace-tables')
        exec(compile(text, block.place, "exec"), names)
        for name, value in list(names.items()):
            if name.startswith("test_"):
                value(headrace_pipeline)
        return
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "headrace", f"{block.place}: only headrace's commands are run here, not {line!r}"
        if words[1:3] in (["pipeline", "run"], ["pipeline", "replay"]):
            words.append("--once")
        ended = CliRunner().invoke(command, words[1:], input="y\n")
        different = words[1:3] == ["pipeline", "compare"] and ended.exit_code == 3  # as a changed pipeline is
        assert ended.exit_code == 0 or different, f"{block.place}: {line}\n{ended.output}{ended.exception!r}"
