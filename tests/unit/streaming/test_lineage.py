"""OpenLineage events: their shape is that of the spec, their order that of a run, and nobody waits for them."""

from __future__ import annotations

import http.server
import json
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_files import graph_of
from ports import reserved_port
from waits import WAIT_S_MAX, eventually

from headrace.core.errors import OperatorError

pytest.importorskip("pyspark")
pytest.importorskip("openlineage.client")

from openlineage_spec import check_event
from pyspark.sql.types import IntegerType, StringType, StructType

from headrace.streaming import lineage_sink
from headrace.streaming.check import Checked, CheckedNode
from headrace.streaming.lineage import Lineage
from headrace.streaming.lineage_sink import LineageSink
from headrace.streaming.progress import NodeProgress, RunProgress

SHOP = """
orders = hr.topic("orders", schema="id int")

@hr.table
def clean(orders):
    return orders

@hr.to_topic("big")
def big(clean):
    return clean
"""
COLUMNS = StructType().add("id", IntegerType()).add("inner", StructType().add("x", StringType()))


@pytest.fixture
def lineage(tmp_path: Path) -> Lineage:
    graph = graph_of(tmp_path, SHOP)
    checked = Checked(pipeline="shop")
    for node in graph.queries:
        checked.nodes.append(CheckedNode(name=node.name, reads=(), writes="", notes=(), mode="append", schema=COLUMNS))
    return Lineage(
        graph,
        checked,
        1,
        bootstrap="127.0.0.1:9092",
        own_path=lambda name: f"s3://lake/v1/{name}" if name == "clean" else f"/tables/v1/{name}",
        other_path=lambda name: f"/tables/{name}",
        topic_of=lambda node: node.output.topic,
    )


def test_events_follow_a_run_and_have_the_shape_of_the_spec(lineage: Lineage) -> None:
    clean, big = NodeProgress(name="clean"), NodeProgress(name="big")
    run = RunProgress(pipeline="shop", version=1, nodes={"clean": clean, "big": big})
    events = list(lineage.news(run))
    assert events == []
    clean.status = big.status = "running"
    events += lineage.news(run)
    clean.batch, clean.rows_out = 0, 7
    events += lineage.news(run)
    events += lineage.news(run)  # nothing is new
    big.status, big.message = "failed", "division by zero"
    clean.status = "stopped"
    events += lineage.news(run, ended=True)
    events += lineage.news(run, ended=True)
    for event in events:
        check_event(event)
        uuid.UUID(event["run"]["facets"]["parent"]["run"]["runId"])
    assert [(event["job"]["name"], event["eventType"]) for event in events] == [
        ("shop.clean", "START"), ("shop.big", "START"), ("shop.clean", "RUNNING"),
        ("shop.clean", "COMPLETE"), ("shop.big", "FAIL"),
    ]  # fmt: skip
    assert len({event["run"]["runId"] for event in events if event["job"]["name"] == "shop.clean"}) == 1
    first, written, failed = events[0], events[2], events[4]
    assert first["inputs"] == [{"namespace": "kafka://127.0.0.1:9092", "name": "orders"}]
    table = written["outputs"][0]
    assert (table["namespace"], table["name"]) == ("s3://lake", "v1/clean")
    assert table["facets"]["schema"]["fields"] == [
        {"name": "id", "type": "int"},
        {"name": "inner", "type": "struct", "fields": [{"name": "x", "type": "string"}]},
    ]
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert failed["run"]["facets"]["errorMessage"]["message"] == "division by zero"
    assert (failed["inputs"][0]["name"], failed["outputs"][0]["name"]) == ("v1/clean", "big")


def test_a_file_gets_an_event_per_line(tmp_path: Path) -> None:
    path, said = tmp_path / "events.jsonl", []  # type: ignore[var-annotated]
    sink = LineageSink(str(path), said.append)
    sink.send({"a": 1})
    sink.send({"a": 2})
    sink.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"a": 1}, {"a": 2}]
    assert said == []
    with pytest.raises(OperatorError, match=r"--lineage .*none/x: no such file or directory; give a file or a URL"):
        LineageSink(str(tmp_path / "none" / "x"), said.append)


class Taker(http.server.BaseHTTPRequestHandler):
    taken: list[Any]

    def do_POST(self) -> None:
        self.taken.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def test_a_url_gets_each_event_by_post() -> None:
    taken: list[Any] = []
    server = http.server.HTTPServer(("127.0.0.1", 0), type("Handler", (Taker,), {"taken": taken}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        sink = LineageSink(f"http://127.0.0.1:{server.server_address[1]}/api/v1/lineage", lambda line: None)
        sink.send({"eventType": "START"})
        eventually(lambda: taken == [("/api/v1/lineage", {"eventType": "START"})], "the event to come")
        sink.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join(WAIT_S_MAX)


def test_a_url_that_does_not_answer_is_said_once_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_sink, "CLOSE_S_MAX", WAIT_S_MAX)
    said: list[str] = []
    with reserved_port() as port:
        sink = LineageSink(f"http://127.0.0.1:{port}/", said.append)
        for number in range(5):
            sink.send({"a": number})
        sink.close()
    assert len(said) == 1
    assert said[0].startswith(f"lineage: http://127.0.0.1:{port}/ does not take events (connection refused)")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda event: event.pop("producer"), "producer"),
        (lambda event: event.update(eventType="BEGIN"), "BEGIN"),
        (lambda event: event.update(schemaURL=event["schemaURL"].replace("2-0-2", "2-0-1")), "2-0-1"),
        (lambda event: event["run"].update(runId="7"), "UUID"),
        (lambda event: event["job"].update(owner="x"), "owner"),
        (lambda event: event["job"]["facets"]["jobType"].pop("integration"), "integration"),
        (lambda event: event["outputs"][0]["facets"]["schema"].update(fields=[{"kind": "int"}]), "kind"),
    ],
)
def test_what_is_not_of_the_spec_is_found(lineage: Lineage, change: Callable[[Any], object], says: str) -> None:
    """Or else the check above would prove nothing."""
    progress = RunProgress(pipeline="shop", version=1, nodes={"clean": NodeProgress(name="clean", status="running")})
    (event,) = lineage.news(progress)
    check_event(event)
    change(event)
    with pytest.raises((AssertionError, TypeError, ValueError), match=says):
        check_event(event)
