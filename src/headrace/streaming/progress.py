"""How a run goes, as plain values: for the screen, and for `run.json`, which `status` reads.

The file is replaced whole each time, so that a reader never sees half of one.
"""

import json
import os
import socket
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from headrace.tables.storage import storage_of

NodeStatus = Literal["waiting", "starting", "running", "restarting", "finished", "failed", "stopped"]
CAN_BE_PARSED = "can be parsed"  # the expectation that every topic's records have
RunStatus = Literal["starting", "running", "finished", "failed", "stopped"]


@dataclass(slots=True, kw_only=True)
class NodeProgress:
    name: str
    writes: str = ""
    table: str | None = None
    key: list[str] = field(default_factory=list)
    topic: str | None = None
    status: NodeStatus = "waiting"
    batch: int | None = None
    batches: int = 0
    rows_in: int = 0
    rows_out: int | None = None  # None where nobody can tell: what a function of the user's writes
    input_rate: float = 0.0
    rows_rate: float = 0.0
    lag: int | None = None
    reads_topics: bool = False
    batch_ms: int | None = None
    last_batch_at: str | None = None
    unparsed: int = 0
    quarantined: int = 0
    late: int = 0
    extra: dict[str, int] = field(default_factory=dict)  # records with a field that the schema does not have, by field
    expectations: dict[str, Any] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    restarts: int = 0
    message: str = ""


@dataclass(slots=True, kw_only=True)
class RunProgress:
    pipeline: str
    version: int
    status: RunStatus = "starting"
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    started_at: str = field(default_factory=lambda: now_text())
    updated_at: str = ""
    file: str = ""
    bootstrap: str = ""
    once: bool = False
    only: list[str] = field(default_factory=list)  # the nodes that this run was cut down to
    replay: bool = False
    caught_up: bool = False
    message: str = ""
    spark_log: str | None = None
    nodes: dict[str, NodeProgress] = field(default_factory=dict)

    def write(self, path: str) -> None:
        self.updated_at = now_text()
        storage_of(path).write(path, json.dumps(asdict(self), indent=1).encode(), safe=False)


def read_progress(path: str) -> RunProgress | None:
    """None when there is none, or it is not one that this version of Headrace wrote."""
    try:
        data = json.loads(storage_of(path).read(path) or b"")
        nodes = {name: NodeProgress(**node) for name, node in data.pop("nodes").items()}
        return RunProgress(**data, nodes=nodes)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def counted(count: int, noun: str) -> str:
    """`1 node`, `5 nodes`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
