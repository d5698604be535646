"""How the expectations of a node were met, batch by batch: `_expectations/<node>.jsonl`, one line a batch.

    {"batch": 12, "at": "2026-10-05T12:00:00.000Z", "rows": 100,
     "expectations": {"amount is positive": {"action": "quarantine", "failed": 2}}}

A batch that is run again writes its line again, and the last line of a batch counts. A line that a crash cut short is
skipped: its batch runs again. When the file gets long, its older lines become one with their sums.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from headrace.tables.storage import storage_of
from headrace.tables.versions import time_of, time_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    action: str  # warn, drop, quarantine, fail
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    batch: int
    at: datetime
    rows: int
    expectations: Mapping[str, Outcome]

    def to_line(self) -> str:
        content = {
            "batch": self.batch,
            "at": time_text(self.at),
            "rows": self.rows,
            "expectations": {
                name: {"action": each.action, "failed": each.failed} for name, each in self.expectations.items()
            },
        }
        return json.dumps(content, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One expectation over all batches."""

    name: str
    action: str
    rows: int
    failed: int
    batch_last_failed: int | None


def read_outcomes(path: str) -> list[BatchOutcome]:
    """In the order of their batches; [] if the node has written none."""
    batches: dict[int, BatchOutcome] = {}
    for line in (storage_of(path).read(path) or b"").decode(errors="replace").splitlines():
        outcome = _outcome(line)
        if outcome is not None:
            batches[outcome.batch] = outcome
    return [batches[batch] for batch in sorted(batches)]


def _outcome(line: str) -> BatchOutcome | None:
    try:
        content = json.loads(line)
        return BatchOutcome(
            batch=int(content["batch"]),
            at=time_of(content["at"]),
            rows=int(content["rows"]),
            expectations={
                str(name): Outcome(action=str(each["action"]), failed=int(each["failed"]))
                for name, each in content["expectations"].items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def summarize(outcomes: list[BatchOutcome]) -> list[Summary]:
    found: dict[str, Summary] = {}
    for outcome in outcomes:
        for name, each in outcome.expectations.items():
            old = found.get(name)
            last = outcome.batch if each.failed else (old.batch_last_failed if old else None)
            found[name] = Summary(
                name=name,
                action=each.action,
                rows=(old.rows if old else 0) + outcome.rows,
                failed=(old.failed if old else 0) + each.failed,
                batch_last_failed=last,
            )
    return list(found.values())
