"""A database's life as change events, and what one pass over a log of them leaves: computed here, without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

BEGAN_AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Change:
    id: int
    lsn: int
    op: str
    name: str | None

    def record(self) -> dict[str, Any]:
        return {"id": self.id, "lsn": self.lsn, "op": self.op, "name": self.name}


def life(seed: int, changes: int, ids: int) -> list[Change]:
    """Inserts, updates and deletes of a few rows, as their database wrote them."""
    chance = random.Random(seed)
    alive: set[int] = set()
    made = []
    for lsn in range(1, changes + 1):
        number = chance.randrange(ids)
        op = ("d" if chance.random() < 0.4 else "u") if number in alive else "c"
        alive = alive - {number} if op == "d" else alive | {number}
        made.append(Change(id=number, lsn=lsn, op=op, name=None if op == "d" else f"{number}@{lsn}"))
    return made


def redelivered(changes: list[Change], seed: int, times: int = 3) -> list[Change]:
    """As a connector delivers them that goes back a few times, and now and then swaps what it reads in parallel."""
    chance = random.Random(seed)
    log = list(changes)
    for _ in range(times):
        begin = chance.randrange(len(changes) - 1)
        again = changes[begin : begin + chance.randrange(1, len(changes) // 2)]
        at = chance.randrange(begin + 1, len(log) + 1)
        log[at:at] = again
    for at in range(0, len(log) - 1, 5):
        log[at], log[at + 1] = log[at + 1], log[at]
    return log


def split(log: list[Any], seed: int, batches: int) -> list[list[Any]]:
    cuts = sorted(random.Random(seed).sample(range(1, len(log)), batches - 1))
    return [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]


def one_pass(log: Iterable[Change], *, by_lsn: bool = True) -> dict[int, str | None]:
    """The table that a log means: of each id the change with the greatest lsn, or else the last one."""
    last: dict[int, Change] = {}
    for change in log:
        before = last.get(change.id)
        if before is None or not by_lsn or change.lsn >= before.lsn:
            last[change.id] = change
    return {number: change.name for number, change in last.items() if change.op != "d"}


def placed(log: list[Change]) -> Iterator[tuple[Any, ...]]:
    """With topic, partition, offset and time, an hour apart."""
    for offset, change in enumerate(log):
        at = BEGAN_AT + timedelta(hours=offset)
        yield (change.id, change.lsn, change.op, change.name, "changes", 0, offset, at)


def versions(log: Iterable[Change]) -> set[tuple[Any, ...]]:
    """What a table with history holds of a log: id, name, valid from, valid to, is current."""
    by_id: dict[int, dict[int, Change]] = {}
    for change in log:
        by_id.setdefault(change.id, {})[change.lsn] = change
    found = set()
    for number, changes in by_id.items():
        ordered = [changes[lsn] for lsn in sorted(changes)]
        for change, after in zip(ordered, [*ordered[1:], None], strict=True):
            if change.op != "d":
                ends = None if after is None else after.lsn
                found.add((number, change.name, change.lsn, ends, ends is None))
    return found


def parts(seed: int, changes: int, ids: int) -> list[tuple[int, int, str, str | None, int | None]]:
    """Changes that hold only a part of a row: id, lsn, op, name, age."""
    chance = random.Random(seed)
    made: list[tuple[int, int, str, str | None, int | None]] = []
    for lsn in range(1, changes + 1):
        op = "d" if chance.random() < 0.2 else "u"
        name = f"n{lsn}" if op == "u" and chance.random() < 0.5 else None
        age = lsn if op == "u" and chance.random() < 0.5 else None
        made.append((chance.randrange(ids), lsn, op, name, age))
    chance.shuffle(made)
    return made + made[: changes // 3]


def put_together(log: Iterable[tuple[int, int, str, str | None, int | None]]) -> dict[int, tuple[Any, ...]]:
    """In the order of the database: what a table holds in which a null leaves a value as it was."""
    rows: dict[int, tuple[Any, ...]] = {}
    for number, _, op, name, age in sorted(set(log), key=lambda change: change[1]):
        if op == "d":
            rows.pop(number, None)
        else:
            before = rows.get(number, (None, None))
            rows[number] = (name if name is not None else before[0], age if age is not None else before[1])
    return rows
