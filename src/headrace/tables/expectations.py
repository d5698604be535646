"""How the expectations of a node were met, batch by batch: `_expectations/<node>.jsonl`, one line per batch.

    {"batch": 12, "at": "2026-10-05T12:00:00.000Z", "rows": 100, "unparsed": 0, "quarantined": 2,
     "late": 0, "extra": {"coupon": 3}, "expectations": {"amount is positive": {"action": "quarantine", "failed": 2}}}

A batch that is run again writes its line again, and the last line of a batch counts. A line that a crash cut short is
skipped: its batch runs again. When the file gets long, its older lines become one with their sums.

A node that runs writes it through a `Ledger`; everybody else only reads.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headrace.tables.storage import storage_of
from headrace.tables.versions import time_of, time_text

FIELDS_MAX = 100
OTHER_FIELDS = "(others)"
LEDGER_BYTES_MAX = 1 << 20  # some five thousand batches one by one; what is older is kept as a sum


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
    unparsed: int = 0
    quarantined: int = 0
    late: int = 0
    extra: Mapping[str, int] = field(default_factory=dict)  # records with a field that the schema lacks, by field

    def to_line(self) -> str:
        content = {
            "batch": self.batch,
            "at": time_text(self.at),
            "rows": self.rows,
            "unparsed": self.unparsed,
            "quarantined": self.quarantined,
            "late": self.late,
            "extra": dict(self.extra),
            "expectations": {
                name: {"action": each.action, "failed": each.failed} for name, each in self.expectations.items()
            },
        }
        return json.dumps(content, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationSummary:
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
            unparsed=int(content.get("unparsed", 0)),
            quarantined=int(content.get("quarantined", 0)),
            late=int(content.get("late", 0)),
            extra={str(name): int(count) for name, count in content.get("extra", {}).items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def summarize(outcomes: list[BatchOutcome]) -> list[ExpectationSummary]:
    found: dict[str, ExpectationSummary] = {}
    for outcome in outcomes:
        for name, each in outcome.expectations.items():
            old = found.get(name)
            last = outcome.batch if each.failed else (old.batch_last_failed if old else None)
            found[name] = ExpectationSummary(
                name=name,
                action=each.action,
                rows=(old.rows if old else 0) + outcome.rows,
                failed=(old.failed if old else 0) + each.failed,
                batch_last_failed=last,
            )
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over batches."""

    rows: int = 0
    unparsed: int = 0
    quarantined: int = 0
    late: int = 0
    extra: Mapping[str, int] = field(default_factory=dict)
    expectations: Mapping[str, Outcome] = field(default_factory=dict)

    def plus(self, outcome: BatchOutcome, sign: int = 1) -> "Totals":
        by_name = dict(self.expectations)
        for name, each in outcome.expectations.items():
            old = by_name.get(name, Outcome(action=each.action, failed=0))
            by_name[name] = Outcome(action=old.action, failed=old.failed + sign * each.failed)
        return Totals(
            rows=self.rows + sign * outcome.rows,
            unparsed=self.unparsed + sign * outcome.unparsed,
            quarantined=self.quarantined + sign * outcome.quarantined,
            late=self.late + sign * outcome.late,
            extra=_added(self.extra, outcome.extra, sign),
            expectations=by_name,
        )


def _added(totals: Mapping[str, int], news: Mapping[str, int], sign: int) -> dict[str, int]:
    """A producer that makes up names without end fills FIELDS_MAX of them, and the rest count as one."""
    sums = dict(totals)
    for name, count in news.items():
        known = name if name in sums or len(sums) < FIELDS_MAX else OTHER_FIELDS
        sums[known] = sums.get(known, 0) + sign * count
    return {name: count for name, count in sums.items() if count > 0}


class Ledger:
    """The file while its node runs. It is read once; from then on the totals are kept up with what is added."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._totals = Totals()
        self._last: BatchOutcome | None = None
        self._storage = storage_of(path)
        for outcome in read_outcomes(path):
            self._take(outcome)

    @property
    def totals(self) -> Totals:
        return self._totals

    def add(self, outcome: BatchOutcome) -> None:
        bytes_now = self._storage.append(self._path, outcome.to_line().encode())
        self._take(outcome)
        if bytes_now > LEDGER_BYTES_MAX:
            self._fold()

    def _fold(self) -> None:
        """The older half of the lines becomes one with their sums: the file is bounded, the totals stay."""
        outcomes = read_outcomes(self._path)
        middle = len(outcomes) // 2
        if middle < 2:
            return
        sums = Totals()
        for outcome in outcomes[:middle]:
            sums = sums.plus(outcome)
        folded = BatchOutcome(
            batch=outcomes[middle - 1].batch,
            at=outcomes[middle - 1].at,
            rows=sums.rows,
            unparsed=sums.unparsed,
            quarantined=sums.quarantined,
            late=sums.late,
            extra=sums.extra,
            expectations=sums.expectations,
        )
        lines = [outcome.to_line() for outcome in (folded, *outcomes[middle:])]
        self._storage.write(self._path, "".join(lines).encode())

    def _take(self, outcome: BatchOutcome) -> None:
        # Batches only go forward, so that only the last one can come again.
        if self._last is not None and self._last.batch == outcome.batch:
            self._totals = self._totals.plus(self._last, -1)
        self._totals = self._totals.plus(outcome)
        self._last = outcome
