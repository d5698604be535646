"""What /metrics and /health say of a run."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from waits import WAIT_S_MAX

from headrace.core.errors import OperatorError
from headrace.core.status_port import UnhealthyError
from headrace.streaming.progress import NodeProgress, RunProgress
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.run_status import STUCK_S, RunStatus, served


def a_run(**node: object) -> RunProgress:
    clean = NodeProgress(name="clean", **node)  # type: ignore[arg-type]
    return RunProgress(pipeline="shop", version=2, status="running", nodes={"clean": clean})


def samples(status: RunStatus) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for key, value in sample.labels.items() if key not in ("pipeline", "version", "node"))):
        sample.value
        for family in status.families() for sample in family.samples
    }  # fmt: skip


def test_every_figure_of_a_node_is_a_metric() -> None:
    status = RunStatus("shop", 2)
    status.take(
        a_run(
            status="running", rows_in=10, rows_out=8, batches=3, unparsed=1, quarantined=2, late=4, lag=40,
            batch_ms=250, restarts=1, extra={"coupon": 5}, expectations={"positive": {"action": "drop", "failed": 6}},
        )
    )  # fmt: skip
    found = samples(status)
    prefix = "headrace_pipeline_"
    assert found[f"{prefix}rows_in_total",] == 10
    assert found[f"{prefix}rows_out_total",] == 8
    assert found[f"{prefix}batches_total",] == 3
    assert found[f"{prefix}unparsed_records_total",] == 1
    assert found[f"{prefix}quarantined_rows_total",] == 2
    assert found[f"{prefix}late_rows_total",] == 4
    assert found[f"{prefix}lag_rows",] == 40
    assert found[f"{prefix}batch_seconds",] == 0.25
    assert found[f"{prefix}restarts_total",] == 1
    assert found[f"{prefix}unknown_field_records_total", "coupon"] == 5
    assert found[f"{prefix}expectation_failures_total", "positive", "drop"] == 6
    assert found[f"{prefix}node_state", "running"] == 1
    assert found[f"{prefix}node_state", "failed"] == 0
    assert found[f"{prefix}caught_up",] == 0


def test_what_is_not_known_yet_is_no_sample() -> None:
    status = RunStatus("shop", 2)
    assert samples(status) == {("headrace_pipeline_caught_up",): 0}
    status.take(a_run())
    assert ("headrace_pipeline_lag_rows",) not in samples(status)
    assert ("headrace_pipeline_rows_out_total",) not in samples(status)


def test_health_follows_the_nodes_and_the_runner() -> None:
    now = [0.0]
    status = RunStatus("shop", 2, clock=lambda: now[0])
    assert status.health()["status"] == "starting"
    run = a_run(status="running")
    status.take(run)
    status.beat()
    assert status.health() == {"status": "running", "pipeline": "shop", "version": 2, "nodes": {"clean": "running"}}
    run.nodes["clean"].status = "restarting"
    assert status.health()["status"] == "restarting"
    now[0] = STUCK_S + 1
    with pytest.raises(UnhealthyError, match="has not looked at its nodes"):
        status.health()
    status.beat()
    run.nodes["clean"].status, run.nodes["clean"].message = "failed", "division by zero"
    with pytest.raises(UnhealthyError, match="clean: division by zero"):
        status.health()


def ask(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S_MAX)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_port_answers_for_the_length_of_a_run_and_one_that_is_taken_is_said(tmp_path: Path) -> None:
    status, said = RunStatus("shop", 2), []  # type: ignore[var-annotated]
    status.take(a_run(status="failed", rows_in=3, message="no"))
    with served(status, RunSettings(tables_dir=str(tmp_path), metrics_port=0), said.append):
        port = int(said[0].split(":")[2].split("/")[0])
        code, text = ask(port, "/metrics")
        assert code == 200
        assert "headrace_pipeline_rows_in" in {each.name for each in text_string_to_metric_families(text)}
        code, text = ask(port, "/health")
        assert (code, json.loads(text)["nodes"], json.loads(text)["reason"]) == (503, {"clean": "failed"}, "clean: no")
        taken = RunSettings(tables_dir=str(tmp_path), metrics_port=port)
        with pytest.raises(OperatorError, match="choose another --metrics-port"), served(status, taken, said.append):
            pass
    with pytest.raises(OSError):  # noqa: PT011 - refused
        ask(port, "/health")
