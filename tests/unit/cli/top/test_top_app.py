"""The screen of `headrace top` with Textual's own pilot, over a source that the test decides about."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static
from waits import WAIT_S_MAX

from headrace.cli.records.view import ShownRecord
from headrace.cli.top.app import TopApp
from headrace.cli.top.screens import MESSAGES_MAX, GroupScreen, HelpScreen, TopicScreen
from headrace.client.cluster import BrokerAddress
from headrace.client.group_admin import Position
from headrace.client.groups import GroupDetails, MemberFacts
from headrace.client.look import BrokerRow, GroupRow, Look, rates
from headrace.client.topic_admin import TopicSummary
from headrace.core.errors import OperatorError


def summary(name: str, records: int, *, internal: bool = False, offline: int = 0) -> TopicSummary:
    return TopicSummary(name, internal, 2, 1, offline, 0, records, records * 10)


def a_look(at: float, **ends: int) -> Look:
    return Look(
        at=at,
        cluster_id="id",
        brokers=(BrokerRow(1, "127.0.0.1:9092", True, 3, 3, 1000, ""),),
        topics=tuple(
            [summary(name, end) for name, end in sorted(ends.items())]
            + [summary("__consumer_offsets", 1, internal=True)]
        ),
        ends=ends,
        groups=(
            GroupRow("billing", "Stable", 1, ends.get("orders", 0), ("orders",), 10),
            GroupRow("audit", "Empty", 0, None, (), 0),
        ),
    )


class FakeMessages:
    def __init__(self, batches: list[list[ShownRecord]]) -> None:
        self._batches = batches
        self.stopped = threading.Event()

    def batches(self) -> Iterator[list[ShownRecord]]:
        yield from self._batches
        self.stopped.wait(WAIT_S_MAX)

    def stop(self) -> None:
        self.stopped.set()


class FakeSource:
    where = "127.0.0.1:9092"

    def __init__(self, *looks: Look) -> None:
        self.looks = list(looks)
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0
        self.batches: list[list[ShownRecord]] = []
        self.opened: list[FakeMessages] = []
        self.hangs_at_the_end = False

    def look(self) -> Look:
        self.asked += 1
        self.gate.wait(WAIT_S_MAX)
        if self.error is not None:
            raise self.error
        if self.hangs_at_the_end and not self.looks:
            self.gate.clear()
            self.gate.wait(WAIT_S_MAX)
        if self.hangs_at_the_end:
            return self.looks.pop(0)
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def group(self, name: str) -> tuple[GroupDetails, list[Position]]:
        if name == "audit":
            raise OperatorError("group audit is gone")
        member = MemberFacts("m-1", None, "app-1", "/10.0.0.7", (("orders", 0),))
        return GroupDetails(name, "Stable", "range", BrokerAddress(1, "h", 1), (member,)), [
            Position("orders", 0, 7, 10, 3, "app-1", "/10.0.0.7")
        ]

    def messages(self, topic: str) -> FakeMessages:
        self.opened.append(FakeMessages(self.batches))
        return self.opened[-1]


def scenario(source: FakeSource, play: Callable[[TopApp, Pilot[None]], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        app = TopApp(source, interval_s=0.05)
        async with app.run_test(size=(110, 32)) as pilot:
            await play(app, pilot)

    asyncio.run(asyncio.wait_for(run(), 2 * WAIT_S_MAX))


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not holds():
            await pilot.pause(0.02)


def cells(app: TopApp, name: str) -> list[list[str]]:
    table: DataTable[Any] = app.screen.query_one(f"#{name}", DataTable)
    return [[str(cell) for cell in table.get_row(row.key)] for row in table.ordered_rows]


def text(app: TopApp, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).content)


def test_rates_are_what_changed_in_the_time_between() -> None:
    found = rates(a_look(10.0, orders=100), a_look(12.0, orders=300, users=5))
    assert found.written == {"orders": 100.0, "users": None}
    assert found.read == {"billing": 0.0, "audit": 0.0}
    assert found.total == 100.0
    assert rates(None, a_look(1.0, orders=1)).total is None
    assert rates(a_look(1.0, orders=9), a_look(2.0, orders=0)).written == {"orders": 0.0}, (
        "made again, not read backwards"
    )


def test_it_shows_brokers_topics_rates_groups_and_lag() -> None:
    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "50 records/s in" in text(app, "#head"))
        assert cells(app, "brokers") == [["1 *", "127.0.0.1:9092", "3", "3", "1.0 kB", "ok"]]
        assert cells(app, "topics") == [["orders", "2", "50", "200", "2.0 kB", "ok"]]
        assert cells(app, "groups") == [
            ["billing", "Stable", "1", "200", "0", "orders"],
            ["audit", "Empty", "0", "", "0", ""],
        ]
        assert "1 broker(s)  1 topics  2 groups  50 records/s in" in text(app, "#head")

    source = FakeSource(a_look(0.0, orders=100), a_look(2.0, orders=200))
    source.hangs_at_the_end = True
    scenario(source, play)


NO_TOPICS = Look(at=0.0, cluster_id="id", brokers=(BrokerRow(1, "127.0.0.1:9092", True, 0, 0, 0, ""),))


def hint(app: TopApp, name: str) -> str:
    """What stands in the place of a table; empty if nothing does."""
    shown = app.query_one(f"#{name}-hint", Static)
    return str(shown.content) if shown.display else ""


def test_a_broker_without_topics_says_what_to_type() -> None:
    source = FakeSource(NO_TOPICS)

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(hint(app, "topics")))
        assert hint(app, "topics").splitlines()[-1] == "  echo hello | headrace produce greetings --create"
        assert hint(app, "groups") == "No consumer groups yet."
        source.looks = [a_look(1.0, greetings=1)]
        await until(pilot, lambda: len(cells(app, "topics")) == 1)
        assert (hint(app, "topics"), hint(app, "groups")) == ("", "")

    scenario(source, play)


def test_what_to_type_names_the_broker_and_a_topic_that_there_is() -> None:
    topics = (summary("__consumer_offsets", 1, internal=True), summary("orders", 1))
    source = FakeSource(Look(at=0.0, cluster_id="id", topics=topics))
    source.where = "kafka1:9092"

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(hint(app, "groups")))
        command = "headrace consume orders --follow --group readers -b kafka1:9092"
        assert hint(app, "groups").splitlines()[-1] == f"  {command}"
        assert hint(app, "topics") == ""

    scenario(source, play)


def test_a_filter_that_leaves_nothing_says_so() -> None:
    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(cells(app, "topics")) == 1)
        await pilot.press("slash", "x", "y")
        await until(pilot, lambda: cells(app, "topics") == [])
        assert hint(app, "topics") == "No topic has 'xy' in its name; type / and then escape to see all."
        assert hint(app, "groups") == "No group has 'xy' in its name; type / and then escape to see all."
        await pilot.press("escape")
        await until(pilot, lambda: len(cells(app, "topics")) == 1)
        assert hint(app, "topics") == ""

    scenario(FakeSource(a_look(0.0, orders=1)), play)


def test_keys_work_while_a_look_hangs() -> None:
    source = FakeSource(a_look(0.0, orders=1))
    source.gate.clear()

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: source.asked == 1)
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, HelpScreen))
        assert source.asked == 1, "it waits for the first answer and does not ask again"
        source.gate.set()
        await until(pilot, lambda: len(cells(app, "topics")) == 1)

    scenario(source, play)


def test_it_ends_while_a_look_hangs() -> None:
    source = FakeSource(a_look(0.0, orders=1))
    source.gate.clear()

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: source.asked == 1)
        await pilot.press("q")

    try:
        scenario(source, play)
    finally:
        source.gate.set()


def test_a_broker_that_goes_away_is_said_and_what_was_seen_stays() -> None:
    source = FakeSource(a_look(0.0, orders=1))

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(cells(app, "topics")) == 1)
        source.error = OperatorError("no broker answers at 127.0.0.1:9092")
        await until(pilot, lambda: bool(app.query_one("#error").display))
        assert text(app, "#error").startswith("no broker answers at 127.0.0.1:9092; trying again")
        assert len(cells(app, "topics")) == 1
        source.error = None
        await until(pilot, lambda: not app.query_one("#error").display)

    scenario(source, play)


def test_sorting_filtering_and_internal_topics() -> None:
    source = FakeSource(a_look(0.0, big=1000, small=1, medium=50))

    def names(app: TopApp) -> list[str]:
        return [row[0] for row in cells(app, "topics")]

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names(app) == ["big", "medium", "small"])
        await pilot.press("down")
        await pilot.press("s", "s")
        await until(
            pilot, lambda: names(app) == ["big", "medium", "small"] and "sorted by amount" in text(app, "#head")
        )
        await pilot.press("i")
        await until(pilot, lambda: "__consumer_offsets" in names(app))
        await pilot.press("i", "slash", "m", "e", "d")
        await until(pilot, lambda: names(app) == ["medium"])
        await pilot.press("enter")
        await until(pilot, lambda: "filter: med" in text(app, "#head"))
        await pilot.press("slash", "escape")
        await until(pilot, lambda: len(names(app)) == 3)

    scenario(source, play)


def test_the_cursor_stays_on_its_topic_when_the_order_changes() -> None:
    source = FakeSource(a_look(0.0, b=5, c=1))

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(cells(app, "topics")) == 2)
        await pilot.press("down")
        source.looks = [a_look(1.0, a=1, b=5, c=1)]
        await until(pilot, lambda: len(cells(app, "topics")) == 3)
        table: DataTable[Any] = app.query_one("#topics", DataTable)
        assert str(table.get_row_at(table.cursor_row)[0]) == "c"

    scenario(source, play)


def record(offset: int, value: bytes = b'{"a": 1}') -> ShownRecord:
    return ShownRecord("orders", 0, offset, 1_700_000_000_000, b"k", value, (("h", b"v"),))


def test_enter_looks_into_a_topics_messages_and_at_one_of_them() -> None:
    source = FakeSource(a_look(0.0, orders=1))
    source.batches = [[record(0), record(1)], [record(2, b"\x1b[2Jtext")]]

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(cells(app, "topics")) == 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TopicScreen))
        await until(pilot, lambda: len(cells(app, "messages")) == 3)
        assert cells(app, "messages")[2] == ["0", "2", "22:13:20.000", "k", "\\x1b[2Jtext"]
        await pilot.press("up", "up", "enter")
        await until(pilot, lambda: bool(app.screen.query_one("#detail").display))
        assert 'orders-0 @0  2023-11-14 22:13:20.000  key=k  h=v\n  {"a": 1}' in text(app, "#record")
        assert "not following" in text(app, ".head")
        await pilot.press("slash", "s", "i", "p", "question_mark")  # keys of the other screen: nothing happens
        assert isinstance(app.screen, TopicScreen)
        before = source.asked
        await until(pilot, lambda: source.asked > before + 1)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, TopicScreen))
        assert "PAUSED" not in text(app, "#head")
        assert source.opened[0].stopped.is_set(), "nobody reads on for a screen that is closed"

    scenario(source, play)


def test_a_flood_of_messages_is_bounded() -> None:
    source = FakeSource(a_look(0.0, orders=1))
    source.batches = [[record(at) for at in range(start, start + 300)] for start in range(0, 900, 300)]

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(cells(app, "topics")) == 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TopicScreen) and "900 messages seen" in text(app, ".head"))
        shown = app.screen.query_one("#messages", DataTable)
        assert shown.row_count == MESSAGES_MAX

    scenario(source, play)


@pytest.mark.parametrize("name", ["billing", "audit"])
def test_enter_looks_into_a_groups_members_or_says_that_it_is_gone(name: str) -> None:
    source = FakeSource(a_look(0.0, orders=1))

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(cells(app, "groups")) == 2)
        await pilot.press("tab", *(["down"] if name == "audit" else []), "enter")
        await until(pilot, lambda: isinstance(app.screen, GroupScreen))
        if name == "audit":
            await until(pilot, lambda: text(app, ".error") == "group audit is gone")
            return
        await until(pilot, lambda: len(cells(app, "members")) == 1)
        assert cells(app, "members") == [["app-1", "10.0.0.7", "orders-0", "m-1"]]
        assert cells(app, "offsets") == [["orders", "0", "7", "10", "3", "app-1"]]
        assert text(app, ".head") == "billing: Stable, 1 member, 3 behind"

    scenario(source, play)
