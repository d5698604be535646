"""The optional port with GET /metrics and GET /health.

One daemon thread serves one request at a time, and each has a deadline, so that nobody who reaches this port
can tie up more than this thread. It reads nothing of the broker but `node.snapshot()`, and never writes.
"""

import io
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, Protocol

from headrace.broker.metrics import prometheus_families
from headrace.core.errors import OperatorError
from headrace.core.telemetry import event

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_log = logging.getLogger(__name__)

ANSWER_S_MAX = 1.0  # how long the loop may take for a snapshot
REQUEST_S_MAX = 2.0  # how long a client may take to send its request, and then to read the answer
REQUEST_BYTES_MAX = 8192
DAMAGE_LINES_MAX = 100


class SnapshotSource(Protocol):
    def snapshot(self) -> Mapping[str, object]:
        """Counters and gauges by name; called on a thread of ours, answered by the broker's loop."""


class UnhealthyError(Exception):
    """The broker cannot answer, and why."""


class MetricsServer:
    """`start()` binds and serves, `port` is the bound port, `stop()` ends it."""

    def __init__(self, node: SnapshotSource, host: str, port: int) -> None:
        self._asker = _Asker(node)
        self._host = host
        self._wanted_port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        return int(self._server.server_address[1]) if self._server else -1

    def start(self) -> None:
        try:
            self._server = _Server((self._host, self._wanted_port), self._asker)
        except (OSError, OverflowError) as error:
            address = f"{self._host}:{self._wanted_port}"
            raise OperatorError(
                f"cannot listen for metrics on {address}: {_reason(error)}; "
                "choose another headrace.metrics.port, or -1 for none"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.2},
            name="headrace-metrics",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join(timeout=2 * REQUEST_S_MAX)
            self._server.server_close()
            self._server = self._thread = None


class _Asker:
    """Asks the loop for a snapshot, with a bound on the wait and at most one question under way."""

    def __init__(self, node: SnapshotSource) -> None:
        self._node = node
        self._busy = threading.Lock()

    def ask(self) -> Mapping[str, object]:
        late = UnhealthyError(f"the broker's loop did not answer within {ANSWER_S_MAX:g} s")
        if not self._busy.acquire(timeout=ANSWER_S_MAX):
            raise late  # an earlier question still waits; another thread would only wait with it
        answered = threading.Event()
        answer: list[Mapping[str, object] | BaseException] = []

        def question() -> None:
            try:
                answer.append(self._node.snapshot())
            except BaseException as error:
                answer.append(error)
            finally:
                self._busy.release()
                answered.set()

        threading.Thread(target=question, name="headrace-snapshot", daemon=True).start()
        if not answered.wait(ANSWER_S_MAX):
            raise late
        if isinstance(answer[0], BaseException):
            raise UnhealthyError(f"no snapshot: {answer[0]}") from answer[0]
        return answer[0]


class _Collector:
    def __init__(self, snapshot: Mapping[str, object]) -> None:
        self._snapshot = snapshot

    def collect(self) -> "Iterator[Metric]":
        return prometheus_families(self._snapshot)


class _Server(HTTPServer):
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], asker: _Asker) -> None:
        # Imported here: before the first scrape, and only when the port is on.
        from prometheus_client import CollectorRegistry, ProcessCollector, exposition

        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.asker = asker
        self._process = ProcessCollector(registry=None)
        self._new_registry = CollectorRegistry
        self._exposition = exposition
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own looks up a host name here, which may block for seconds and is used for nothing.
        socket_address = self.server_address
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(socket_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(socket_address[0]), int(self.server_address[1])

    def metrics_text(self) -> bytes:
        registry = self._new_registry(auto_describe=False)
        registry.register(_Collector(self.asker.ask()))
        registry.register(self._process)
        return bytes(self._exposition.generate_latest(registry))

    def handle_error(self, request: Any, client_address: Any) -> None:
        event(_log, logging.DEBUG, "metrics request failed", peer=client_address[0])


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "headrace"
    sys_version = ""

    def setup(self) -> None:
        """Reads the head of the request against one deadline: a trickle of bytes must not hold the thread."""
        self.connection = self.request
        self.rfile = io.BufferedReader(io.BytesIO(self._read_head()))
        self.connection.settimeout(REQUEST_S_MAX)
        self.wfile = io.BytesIO()

    def _read_head(self) -> bytes:
        deadline = time.monotonic() + REQUEST_S_MAX
        head = b""
        while b"\r\n\r\n" not in head and len(head) < REQUEST_BYTES_MAX:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.connection.settimeout(left)
            piece = self.connection.recv(REQUEST_BYTES_MAX)
            if not piece:
                break
            head += piece
        return head

    def finish(self) -> None:
        self.connection.sendall(self.wfile.getvalue())  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/health":
            self._health()
        else:
            self._answer(404, "text/plain; charset=utf-8", b"not found; there is /metrics and /health\n")

    def _refuse(self) -> None:
        self._answer(405, "text/plain; charset=utf-8", b"only GET is answered here\n", allow="GET")

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse  # noqa: N815

    def _metrics(self) -> None:
        try:
            text = self.server.metrics_text()
        except UnhealthyError as error:
            self._answer(503, "text/plain; charset=utf-8", f"{error}\n".encode())
        else:
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", text)

    def _health(self) -> None:
        try:
            snapshot = self.server.asker.ask()
            _check(snapshot)
        except UnhealthyError as error:
            self._answer(503, "application/json", _json({"status": "unhealthy", "reason": str(error)}))
        else:
            self._answer(200, "application/json", _json(_state(snapshot)))

    def _answer(self, status: int, content_type: str, body: bytes, allow: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if allow:
            self.send_header("Allow", allow)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        event(_log, logging.DEBUG, "metrics request", line=format % args)


def _check(snapshot: Mapping[str, object]) -> None:
    online = snapshot.get("log_directory_online", {})
    offline = [labels[0] for labels, up in online.items() if not up] if isinstance(online, Mapping) else []
    if offline:
        raise UnhealthyError(f"offline: log directory {', '.join(offline)}")


def _state(snapshot: Mapping[str, object]) -> dict[str, object]:
    """Damaged files are shown, but the answer stays 200: to start the broker again would not help."""
    damage = snapshot.get("damage")
    if not isinstance(damage, list) or not damage:
        return {"status": "healthy"}
    return {"status": "damaged", "count": len(damage), "damage": damage[:DAMAGE_LINES_MAX]}


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
