"""What rows must satisfy: counted in the pass that writes them, and kept as one line a batch.

A predicate that is null is not true, so the row fails it. `fail` raises inside the query, before anything is written;
`drop` and `quarantine` leave rows out of what is written; `warn` only counts.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.streaming.declarations import Expectation
from headrace.tables.storage import storage_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBSERVED = "headrace.expected"
# Found again in the text of Spark's exception, to tell this failure from all others.
FAILED_MARK = "headrace expectation failed: "
ROW_CHARS_MAX = 500
LEDGER_BYTES_MAX = 1 << 20  # some five thousand batches one by one; what is older is kept as a sum
CAN_BE_PARSED = "can be parsed"  # what every record of a topic is expected of


def observe(frame: "DataFrame", expectations: tuple[Expectation, ...]) -> "DataFrame":
    """Counts rows and failures under OBSERVED, and raises on the first row that a `fail` does not hold for. Where
    nothing is expected, nothing is counted: that would cost a copy of each row."""
    from pyspark.sql import functions as F

    if not expectations:
        return frame
    counts = [F.count(F.lit(1)).alias("rows")]
    counts += [F.count_if(~holds(each)).alias(f"e{index}") for index, each in enumerate(expectations)]
    left_out = [~holds(each) for each in expectations if each.action == "quarantine"]
    counts.append((F.count_if(_any(left_out)) if left_out else F.count_if(F.lit(False))).alias("quarantined"))
    counted = frame.observe(OBSERVED, *counts)
    for each in expectations:
        if each.action == "fail":
            row = F.substring(F.to_json(F.struct(*[F.col(_quoted(name)) for name in dict.fromkeys(frame.columns)])),
                              1, ROW_CHARS_MAX)  # fmt: skip
            message = F.concat(F.lit(f"{FAILED_MARK}{each.name} ({each.predicate}) in "), row)
            counted = counted.where(F.when(holds(each), True).otherwise(F.raise_error(message).cast("boolean")))
    return counted


def kept(frame: "DataFrame", expectations: tuple[Expectation, ...]) -> "DataFrame":
    """Without the rows that are dropped or go to quarantine."""
    for each in expectations:
        if each.action in ("drop", "quarantine"):
            frame = frame.where(holds(each))
    return frame


def quarantined(frame: "DataFrame", expectations: tuple[Expectation, ...]) -> "tuple[DataFrame, Column]":
    """The rows that go to quarantine, and an expression of the reason."""
    from pyspark.sql import functions as F

    rules = [each for each in expectations if each.action == "quarantine"]
    names = [F.when(~holds(each), F.lit(f"{each.name} ({each.predicate})")) for each in rules]
    # A row that is dropped as well is in neither place: it was declared to go.
    for each in expectations:
        if each.action == "drop":
            frame = frame.where(holds(each))
    return frame.where(_any([~holds(each) for each in rules])), F.array_join(F.array_compact(F.array(*names)), "; ")


def holds(expectation: Expectation) -> "Column":
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(expectation.predicate).cast("boolean"), F.lit(False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of one batch: rows that the function returned, records that could not be parsed, failures by expectation."""

    batch: int
    rows: int
    unparsed: int
    failed: Mapping[str, int]
    quarantined: int

    def line(self, expectations: tuple[Expectation, ...]) -> str:
        by_name = {each.name: {"action": each.action, "failed": self.failed.get(each.name, 0)} for each in expectations}
        if self.unparsed:
            by_name[CAN_BE_PARSED] = {"action": "quarantine", "failed": self.unparsed}
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return json.dumps(
            {
                "batch": self.batch,
                "at": at,
                "rows": self.rows,
                "unparsed": self.unparsed,
                "quarantined": self.quarantined,
                "expectations": by_name,
            }
        )


def counts_of(
    batch: int, metrics: Mapping[str, Mapping[str, int]], expectations: tuple[Expectation, ...], unparsed: int
) -> Counts:
    row = metrics.get(OBSERVED, {})
    return Counts(
        batch=batch,
        rows=row.get("rows", 0),
        unparsed=unparsed,
        failed={each.name: row.get(f"e{index}", 0) for index, each in enumerate(expectations)},
        quarantined=row.get("quarantined", 0),
    )


class Ledger:
    """`_expectations/<node>.jsonl`: a line a batch, appended; of a batch that was run again, the last line counts.

    It is read once; from then on the totals are kept up with what is added.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._totals = Totals()
        self._last: tuple[int, dict[str, Any]] | None = None
        self._storage = storage_of(path)
        for batch, entry in sorted(_entries(path).items()):
            self._take(batch, entry)

    @property
    def totals(self) -> "Totals":
        return self._totals

    def add(self, counts: Counts, expectations: tuple[Expectation, ...]) -> None:
        line = counts.line(expectations)
        bytes_now = self._storage.append(self._path, f"{line}\n".encode())
        self._take(counts.batch, json.loads(line))
        if bytes_now > LEDGER_BYTES_MAX:
            self._fold()

    def _fold(self) -> None:
        """The older half of the lines becomes one with their sums: the file is bounded, the totals stay."""
        entries = sorted(_entries(self._path).items())
        middle = len(entries) // 2
        if middle < 2:
            return
        sums = Totals()
        for _, entry in entries[:middle]:
            sums = sums.plus(entry, 1)
        folded = {**entries[middle - 1][1], **asdict(sums)}
        lines = [json.dumps(entry) + "\n" for entry in (folded, *(entry for _, entry in entries[middle:]))]
        self._storage.write(self._path, "".join(lines).encode())

    def _take(self, batch: int, entry: dict[str, Any]) -> None:
        # Batches only go forward, so that only the last one can come again.
        if self._last is not None and self._last[0] == batch:
            self._totals = self._totals.plus(self._last[1], -1)
        self._totals = self._totals.plus(entry, 1)
        self._last = (batch, entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all batches."""

    rows: int = 0
    unparsed: int = 0
    quarantined: int = 0
    expectations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def plus(self, entry: Mapping[str, Any], sign: int) -> "Totals":
        by_name = {name: dict(each) for name, each in self.expectations.items()}
        for name, each in entry.get("expectations", {}).items():
            total = by_name.setdefault(name, {"action": each.get("action", ""), "failed": 0})
            total["failed"] += sign * int(each.get("failed", 0))
        return Totals(
            rows=self.rows + sign * int(entry.get("rows", 0)),
            unparsed=self.unparsed + sign * int(entry.get("unparsed", 0)),
            quarantined=self.quarantined + sign * int(entry.get("quarantined", 0)),
            expectations=by_name,
        )


def _entries(path: str) -> dict[int, dict[str, Any]]:
    entries: dict[int, dict[str, Any]] = {}
    for line in (storage_of(path).read(path) or b"").splitlines():
        try:
            entry = json.loads(line)
            entries[int(entry["batch"])] = entry
        except (ValueError, KeyError, TypeError):
            continue  # the last line of a process that was killed while it wrote
    return entries


def _any(columns: "list[Column]") -> "Column":
    result = columns[0]
    for column in columns[1:]:
        result = result | column
    return result


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
