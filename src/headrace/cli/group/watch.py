"""The view of `headrace group lag --watch`: one row for each group and topic, renewed in place on a terminal."""

import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from headrace.client.group_admin import Position

CLEAR = "\x1b[H\x1b[J"  # home, then erase to the end: flickers less than erasing all


class LagRow(NamedTuple):
    group: str
    topic: str
    partitions: int
    lag: int
    committed: int
    end: int


class LagChange(NamedTuple):
    row: LagRow
    read_rate: float | None  # records a second since the last time
    write_rate: float | None

    @property
    def seconds_left(self) -> float | None:
        """How long it takes to catch up if nothing changes; None if it does not."""
        if self.row.lag == 0:
            return 0.0
        if self.read_rate is None or self.write_rate is None or self.read_rate <= self.write_rate:
            return None
        return self.row.lag / (self.read_rate - self.write_rate)


def rows_of(found: "dict[str, list[Position]]") -> list[LagRow]:
    rows = []
    for group, places in found.items():
        for topic in sorted({place.topic for place in places}):
            held = [place for place in places if place.topic == topic and place.lag is not None]
            rows.append(
                LagRow(
                    group,
                    topic,
                    len(held),
                    sum(place.lag or 0 for place in held),
                    sum(place.committed or 0 for place in held),
                    sum(place.end or 0 for place in held),
                )
            )
    return rows


def changes(rows: list[LagRow], before: "dict[tuple[str, str], LagRow]", seconds: float) -> list[LagChange]:
    found = []
    for row in rows:
        old = before.get((row.group, row.topic))
        if old is None or seconds <= 0:
            found.append(LagChange(row, None, None))
        else:
            found.append(LagChange(row, (row.committed - old.committed) / seconds, (row.end - old.end) / seconds))
    return found


class LagWatch:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._before: dict[tuple[str, str], LagRow] = {}
        self._at = 0.0

    def show(self, found: "dict[str, list[Position]]", now: float) -> None:
        rows = rows_of(found)
        changed = changes(rows, self._before, now - self._at if self._before else 0.0)
        self._before, self._at = {(row.group, row.topic): row for row in rows}, now
        if self._as_json:
            for each in changed:
                content = {"time_ms": int(now * 1000), **each.row._asdict()}
                click.echo(json.dumps(content | {"read_rate": each.read_rate, "write_rate": each.write_rate}))
            sys.stdout.flush()
            return
        self._draw(changed, now)

    def _draw(self, changed: list[LagChange], now: float) -> None:
        from headrace.cli.columns import lines

        terminal = sys.stdout.isatty()
        size = shutil.get_terminal_size()
        table: list[list[str | None]] = [
            [
                each.row.group,
                each.row.topic,
                str(each.row.partitions),
                f"{each.row.lag:,}",
                rate_text(each.read_rate),
                rate_text(each.write_rate),
                left_text(each),
            ]
            for each in changed
        ]
        header = ["group", "topic", "partitions", "lag", "read/s", "written/s", "caught up in"]
        drawn = list(
            lines(header, table, right=[False, False, *[True] * 5], width_max=size.columns if terminal else None)
        )
        if not changed:
            drawn = ["there are no groups yet"]
        stamp = time.strftime("%H:%M:%S", time.localtime(now))
        if terminal:
            room = max(1, size.lines - 2)
            more = [f"… and {len(drawn) - room + 1} more"] if len(drawn) > room else []
            drawn = drawn[: room - len(more)] + more
            click.echo(CLEAR + f"{stamp}  Ctrl-C ends\n" + "\n".join(drawn))
        else:
            click.echo(stamp + "\n" + "\n".join(drawn))
        sys.stdout.flush()


def rate_text(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}"


def left_text(change: LagChange) -> str:
    left = change.seconds_left
    if left is None:
        return "" if change.read_rate is None else "never"
    if left == 0:
        return "now"
    return f"{left:.0f} s" if left < 120 else f"{left / 60:.0f} min" if left < 7200 else f"{left / 3600:.0f} h"
