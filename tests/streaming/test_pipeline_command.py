"""`headrace pipeline …` as a user types it, with the session of the tests in place of one of its own."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pipeline_runs import Bench
from ports import reserved_port
from waits import WAIT_S_MAX, eventually

from headrace.cli.main import headrace as command
from headrace.streaming import operation


class Shell:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def run(self, *words: str, code: int = 0) -> str:
        return self._invoke(*words, code=code).output

    def json(self, *words: str) -> Any:
        return json.loads(self._invoke(*words, "--json", code=0).stdout)

    def _invoke(self, *words: str, code: int) -> Result:
        options = {
            "check": ("--tables", "--bootstrap"), "run": ("--tables", "--bootstrap"),
            "replay": ("--tables", "--bootstrap"), "redrive": ("--tables", "--bootstrap"),
        }.get(words[0], ("--tables",))  # fmt: skip
        values = {"--tables": self._bench.tables, "--bootstrap": self._bench.broker.bootstrap_servers}
        arguments = ["pipeline", *words, *(part for name in options for part in (name, values[name]))]
        result: Result = CliRunner().invoke(command, arguments)
        assert result.exit_code == code, result.output
        return result


@pytest.fixture
def shell(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Shell:
    @contextmanager
    def running(settings: Any, **more: Any) -> Iterator[Any]:
        yield bench.spark

    monkeypatch.setattr(operation.session, "running", running)
    return Shell(bench)


CODE = """
typed = hr.topic("typed", schema="id int, k string")

@hr.table(expect={{"small": hr.quarantine("id < 100")}})
def stored(typed):
    return typed.withColumn("v", F.lit({v}))

@hr.to_topic("typed-out", key="k")
def sent(stored):
    return stored
"""


def scrape(port: int, wanted: str) -> str:
    """What /metrics says as soon as it says something of this kind."""

    def look() -> str:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S_MAX) as answer,
        ):
            text = answer.read().decode()
            return text if f"{wanted}{{" in text else ""
        return ""

    return eventually(look, "metrics of a run")


def test_from_check_to_remove(bench: Bench, shell: Shell) -> None:
    bench.send("typed", [{"id": n, "k": "a"} for n in range(5)] + [{"id": 500, "k": "b"}])
    file = bench.file(CODE.format(v=1))
    assert "nothing has run" in shell.run("status") or "no pipeline has run here yet" in shell.run("status")
    said = shell.run("check", file)
    assert "shop: 2 nodes, all well" in said
    assert "writes  table stored appended" in said
    assert "columns id int, k string, v int" in said
    found = shell.json("check", file)
    assert (found["analysed"], found["nodes"][1]["writes"]) == (True, "topic typed-out exactly once")
    assert [column["name"] for column in found["nodes"][0]["schema"]["fields"]] == ["id", "k", "v"]
    events, scraped = bench.directory / "lineage.jsonl", []
    with reserved_port() as port:
        scraping = threading.Thread(target=lambda: scraped.append(scrape(port, "rows_in_total")), daemon=True)
        scraping.start()
        said = shell.run("run", file, "--once", "--lineage", str(events), "--metrics-port", str(port))
        assert f"metrics at http://127.0.0.1:{port}/metrics, and /health" in said
        scraping.join(WAIT_S_MAX)
    assert 'headrace_pipeline_rows_in_total{node="stored",pipeline="shop",version="1"}' in scraped[0]
    kinds: dict[str, list[str]] = {}
    for event in map(json.loads, events.read_text().splitlines()):
        kinds.setdefault(event["job"]["name"], []).append(event["eventType"])
        assert event["outputs"][0]["facets"]["schema"]["fields"][0] == {"name": "id", "type": "int"}
    assert {name: (found[0], found[-1]) for name, found in kinds.items()} == {
        "shop.stored": ("START", "COMPLETE"),
        "shop.sent": ("START", "COMPLETE"),
    }
    assert "stored: finished; batch 0, 6 rows in" in said
    assert "small: 1 quarantine" in said
    assert said.rstrip().endswith("shop version 1: finished")
    assert "shop: nothing runs" in shell.run("stop")
    changed = bench.file(CODE.format(v=2))
    assert "build the next version with: headrace pipeline replay" in shell.run("run", changed, "--once", code=1)
    said = shell.run("replay", changed, "--once")
    assert "shop version 2 has caught up" in said
    status = json.loads(shell.run("status", "--json"))
    assert [(version["version"], version["state"]) for version in status[0]["versions"]] == [
        (1, "live"),
        (2, "building"),
    ]
    assert status[0]["versions"][1]["run"]["nodes"]["sent"]["topic"] == "typed-out.v2"
    found = json.loads(shell.run("compare", "shop", "--key", "id", "--json", code=3))
    assert (found["old"], found["new"], found["tables"]["stored"]["differing"]) == (1, 2, 5)
    assert found["tables"]["stored"]["exact"]
    assert sum(found["tables"]["stored"]["position"]["typed"].values()) == 6
    said = shell.run("cutover", "shop")
    assert "shop: version 2 is live; its tables: stored" in said
    assert "live topic: typed-out.v2" in said
    assert {row.v for row in bench.rows("stored")} == {2}
    said = shell.run("rollback", file)
    assert "version 1 is live" in said
    assert "headrace pipeline run shop" in said
    assert {row.v for row in bench.rows("stored")} == {1}
    assert "version 2 of shop" not in shell.run("discard", "--yes")
    assert "is live; roll back" in shell.run("discard", "--version", "1", "--yes", code=1)
    assert "stored: 1 sent, 0 written, 1 in quarantine" in shell.run("redrive", "shop")
    wider = bench.file(CODE.format(v=1).replace("id < 100", "id < 1000000"))
    assert "its code is not that of version 1" in shell.run("redrive", wider, code=1)
    assert "stored: 1 sent, 1 written, 0 in quarantine" in shell.run("redrive", wider, "--accept-change")
    said = shell.run("remove", "shop", "--yes")
    assert said.splitlines() == ["shop: removed", "its topic typed-out is still there"]
    assert "no pipeline has run here yet" in shell.run("status")
    assert os.listdir(bench.tables) == [".headrace"]


def test_a_failed_node_ends_the_command_with_1_and_a_line(bench: Bench, shell: Shell) -> None:
    bench.send("typed-bad", [{"id": 1}])
    file = bench.file("""
        bad = hr.topic("typed-bad", schema="id int")

        @hr.table(expect={"none": hr.fail("id > 1")})
        def stored(bad):
            return bad
        """)
    said = shell.run("run", file, "--once", code=1)
    assert "headrace: stored: batch 0 (typed-bad offsets" in said
    assert "expectation failed: none (id > 1)" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "nowhere.py"), "no such file or directory"),
        (("status", "nothing"), "no pipeline of that name"),
        (("cutover",), "none has run there yet"),
        (("replay", "nowhere.py", "--from", "whenever"), "not a place in a topic"),
        (("run", "nowhere.py", "--conf", "x"), "write KEY=VALUE"),
        (("run", "nowhere.py", "--master", "here"), "is not one"),
    ],
)
def test_a_wrong_command_line_is_said_in_a_line(shell: Shell, words: tuple[str, ...], says: str) -> None:
    result = shell.run(*words, code=2 if "--conf" in words else 1)
    assert says in result
    assert "Traceback" not in result
