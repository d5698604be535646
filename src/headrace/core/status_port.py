"""An optional port with GET /metrics, for Prometheus, and GET /health.

One daemon thread serves one request at a time, and each has a deadline, so that nobody who reaches this port can tie
up more than this thread. What is answered is given by two functions, which are called on that thread.
"""

import io
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

from headrace.core.errors import OperatorError
from headrace.core.telemetry import event

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_log = logging.getLogger(__name__)

REQUEST_S_MAX = 2.0  # how long a client may take to send its request, and then to read the answer
REQUEST_BYTES_MAX = 8192


class UnhealthyError(Exception):
    """Why there is no answer, or why it is a bad one; `more` is said beside it."""

    def __init__(self, reason: str, **more: object) -> None:
        super().__init__(reason)
        self.more = more


class StatusPort:
    """`start()` binds and serves, `port` is the bound port, `stop()` ends it. Both functions may raise UnhealthyError.
    `remedy` says what to do about a port that cannot be had."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        metrics: "Callable[[], Iterator[Metric]]",
        health: Callable[[], Mapping[str, object]],
        remedy: str,
    ) -> None:
        self._host = host
        self._wanted_port = port
        self._metrics = metrics
        self._health = health
        self._remedy = remedy
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        return int(self._server.server_address[1]) if self._server else -1

    def start(self) -> None:
        try:
            self._server = _Server((self._host, self._wanted_port), self._metrics, self._health)
        except (OSError, OverflowError) as error:
            address = f"{self._host}:{self._wanted_port}"
            raise OperatorError(f"cannot listen for metrics on {address}: {_reason(error)}; {self._remedy}") from error
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


class _Collector:
    def __init__(self, families: "Iterator[Metric]") -> None:
        self._families = families

    def collect(self) -> "Iterator[Metric]":
        return self._families


class _Server(HTTPServer):
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(
        self,
        address: tuple[str, int],
        metrics: "Callable[[], Iterator[Metric]]",
        health: Callable[[], Mapping[str, object]],
    ) -> None:
        # Imported here: before the first scrape, and only when the port is on.
        from prometheus_client import CollectorRegistry, ProcessCollector, exposition

        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.health = health
        self._metrics = metrics
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
        registry.register(_Collector(self._metrics()))
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
            state = self.server.health()
        except UnhealthyError as error:
            self._answer(503, "application/json", _json({"status": "unhealthy", "reason": str(error), **error.more}))
        else:
            self._answer(200, "application/json", _json(state))

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


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
