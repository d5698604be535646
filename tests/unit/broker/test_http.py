import contextlib
import errno
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping

import pytest
from ports import reserved_port
from prometheus_client.parser import text_string_to_metric_families
from waits import WAIT_S_MAX, eventually

from headrace.broker import http as http_module
from headrace.broker.http import MetricsServer
from headrace.broker.metrics import Metrics
from headrace.core import status_port
from headrace.core.errors import OperatorError


class FakeNode:
    def __init__(self) -> None:
        self.metrics = Metrics({0: "Produce"})
        self.more: dict[str, object] = {"log_directory_online": {("/data",): 1}}
        self.hold = threading.Event()
        self.hold.set()

    def snapshot(self) -> Mapping[str, object]:
        self.hold.wait(WAIT_S_MAX)
        return self.metrics.snapshot() | self.more


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def server(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsServer]:
    """Nothing that a slow machine does is late."""
    monkeypatch.setattr(http_module, "ANSWER_S_MAX", WAIT_S_MAX)
    monkeypatch.setattr(status_port, "REQUEST_S_MAX", WAIT_S_MAX)
    server = MetricsServer(node, "127.0.0.1", 0)
    server.start()
    yield server
    node.hold.set()
    server.stop()


def ask(server: MetricsServer, path: str, method: str = "GET") -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S_MAX)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_metrics_are_prometheus_text(node: FakeNode, server: MetricsServer) -> None:
    node.metrics.requests[0] += 7
    status, text, headers = ask(server, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert found["headrace_requests"].samples[0].value == 7
    assert found["headrace_produce_latency_seconds"].type == "histogram"
    assert "process_resident_memory_bytes" in found


def test_a_second_scrape_sees_new_values(node: FakeNode, server: MetricsServer) -> None:
    ask(server, "/metrics")
    node.metrics.bytes_in += 5
    assert "headrace_received_bytes_total 5.0" in ask(server, "/metrics")[1]


def test_health_is_ok_when_the_loop_answers(server: MetricsServer) -> None:
    status, text, _ = ask(server, "/health")
    assert (status, json.loads(text)) == (200, {"status": "healthy"})


def test_health_names_an_offline_directory(node: FakeNode, server: MetricsServer) -> None:
    node.more["log_directory_online"] = {("/a",): 1, ("/b",): 0}
    status, text, _ = ask(server, "/health")
    assert status == 503
    assert json.loads(text)["reason"] == "offline: log directory /b"


def test_health_fails_in_time_when_the_loop_is_stuck_and_recovers(
    node: FakeNode, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.hold.clear()
    with monkeypatch.context() as patch:
        patch.setattr(http_module, "ANSWER_S_MAX", 0.2)
        for path in ("/health", "/metrics", "/health"):
            status, text, _ = ask(server, path)
            assert status == 503
            assert "did not answer within 0.2 s" in text
    assert sum(thread.name == "headrace-snapshot" for thread in threading.enumerate()) == 1
    node.hold.set()
    assert ask(server, "/health")[0] == 200


def test_a_failing_snapshot_is_unhealthy(
    node: FakeNode, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Mapping[str, object]:
        raise RuntimeError("closed")

    monkeypatch.setattr(node, "snapshot", fail)
    status, text, _ = ask(server, "/health")
    assert (status, json.loads(text)["reason"]) == (503, "no snapshot: closed")


def test_other_paths_and_methods_are_refused(server: MetricsServer) -> None:
    assert ask(server, "/")[0] == 404
    status, _, headers = ask(server, "/metrics", "POST")
    assert (status, headers["Allow"]) == (405, "GET")
    assert ask(server, "/health", "HEAD")[0] == 405
    assert ask(server, "/health?x=1")[0] == 200


def test_a_trickling_client_does_not_hold_the_port(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_port, "REQUEST_S_MAX", 0.3)

    def is_answered() -> bool:
        """A request of ours that is slow itself is cut off like the other; then it is made again."""
        try:
            return ask(server, "/health")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nX: ")
        eventually(is_answered, "another is served though the first still sends")


@pytest.mark.parametrize("garbage", [b"\x00\x00\x00\x10\xff\xfe\xfd\xfc\r\n\r\n", b"A" * 20_000, b""])
def test_garbage_ends_its_connection_only(server: MetricsServer, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.settimeout(WAIT_S_MAX)
        with contextlib.suppress(OSError):
            peer.sendall(garbage)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(4096):
                pass
    assert ask(server, "/health")[0] == 200


def test_a_port_in_use_is_one_clear_error(node: FakeNode, server: MetricsServer) -> None:
    second = MetricsServer(node, "127.0.0.1", server.port)
    with pytest.raises(OperatorError, match=rf"metrics on 127\.0\.0\.1:{server.port}: address already in use"):
        second.start()
    second.stop()


def test_the_port_is_free_after_stop(node: FakeNode) -> None:
    with reserved_port() as port, socket.socket() as probe:
        server = MetricsServer(node, "127.0.0.1", port)
        server.start()
        assert server.port == port
        server.stop()
        assert server.port == -1
        assert probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_prometheus_is_not_imported_until_the_port_is_on() -> None:
    code = "import sys, headrace.broker.metrics, headrace.broker.http; print('prometheus_client' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
