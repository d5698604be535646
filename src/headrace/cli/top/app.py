"""The screen of `headrace top`, with Textual. It draws what threads bring, and never asks a broker itself."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from headrace.cli.columns import cut
from headrace.cli.tabling import bytes_text
from headrace.cli.top.hints import groups_hint, topics_hint
from headrace.cli.top.screens import GroupScreen, HelpScreen, TopicScreen
from headrace.cli.top.source import Source
from headrace.cli.top.tables import Rows, columns, fill
from headrace.client.look import Look, Rates, rates

BROKER_COLUMNS = ("broker", "address", "leads", "replicas", "size", "disks")
TOPIC_COLUMNS = ("topic", "partitions", "written/s", "records", "size", "state")
GROUP_COLUMNS = ("group", "state", "members", "lag", "read/s", "topics")
NAME_WIDTH_MAX = 40  # so that the numbers beside it are seen; what it opens shows the whole name
SORTS = ("name", "rate", "amount")
MAIN_ACTIONS = frozenset({"filter", "sort", "internal", "pause", "help"})


class TopApp(App[None]):
    CSS = """
    #head { height: 1; background: $primary; color: $text; padding: 0 1; }
    #error { height: auto; background: $error; color: $text; padding: 0 1; display: none; }
    #filter { display: none; height: 3; }
    .title { height: 1; color: $accent; padding: 0 1; text-style: bold; }
    .hint { height: auto; padding: 0 1; color: $text-muted; display: none; }
    #brokers { height: auto; max-height: 20%; }
    #topics-part { height: 1fr; }
    #groups-part { height: 1fr; }
    DataTable { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("slash", "filter", "Filter"),
        Binding("s", "sort", "Sort"),
        Binding("i", "internal", "Internal"),
        Binding("p", "pause", "Pause"),
        Binding("question_mark", "help", "Help"),
    ]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "headrace top"

    def __init__(self, source: Source, *, interval_s: float = 2.0, internal: bool = False) -> None:
        super().__init__()
        self._source = source
        self._interval_s = interval_s
        self._internal = internal
        self._sort = SORTS[0]
        self._pattern = ""
        self._paused = False
        self._ended = threading.Event()
        self._look: Look | None = None
        self._rates = Rates({}, {})

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of the main screen mean nothing on those that it opens."""
        return action not in MAIN_ACTIONS or len(self.screen_stack) == 1

    def compose(self) -> ComposeResult:
        yield Static(f"headrace top  {self._source.where}  …", id="head", markup=False)
        yield Static("", id="error", markup=False)
        yield Input(placeholder="show only names with …", id="filter")
        yield DataTable(id="brokers", cursor_type="none")
        with Vertical(id="topics-part"):
            yield Static("Topics", classes="title")
            yield Static("", id="topics-hint", classes="hint", markup=False)
            yield DataTable(id="topics", cursor_type="row")
        with Vertical(id="groups-part"):
            yield Static("Groups", classes="title")
            yield Static("", id="groups-hint", classes="hint", markup=False)
            yield DataTable(id="groups", cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        columns(self._table("brokers"), BROKER_COLUMNS)
        columns(self._table("topics"), TOPIC_COLUMNS)
        columns(self._table("groups"), GROUP_COLUMNS)
        self._table("brokers").can_focus = False
        self._table("topics").focus()
        # A daemon: a look that hangs must not keep the program from ending.
        threading.Thread(target=self._go_on_looking, name="headrace-top", daemon=True).start()

    def on_unmount(self) -> None:
        self._ended.set()

    # ── looking, on a thread ─────────────────────────────────────────────────────────────────────────────────────

    def _go_on_looking(self) -> None:
        while not self._ended.is_set():
            if not self._paused:
                try:
                    found = self._source.look()
                except Exception as error:
                    self._tell(lambda error=error: self._failed(error))  # type: ignore[misc]
                else:
                    self._tell(lambda found=found: self._seen(found))  # type: ignore[misc]
            self._ended.wait(self._interval_s)

    def _tell(self, work: Callable[[], None]) -> None:
        """To the UI; if that is gone, nobody needs to know any more."""
        if self._ended.is_set():
            return
        with suppress(Exception):
            self.call_from_thread(work)

    # ── showing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _failed(self, error: Exception) -> None:
        banner = self._main.query_one("#error", Static)
        banner.update(f"{error}; trying again every {self._interval_s:g} s")
        banner.display = True
        self._draw_head()

    def _seen(self, found: Look) -> None:
        self._main.query_one("#error", Static).display = False
        self._rates = rates(self._look, found)
        self._look = found
        self._draw()

    def _draw(self) -> None:
        if self._look is None:
            return
        self._draw_head()
        fill(self._table("brokers"), _broker_rows(self._look))
        topics, groups = self._topic_rows(self._look), self._group_rows(self._look)
        fill(self._table("topics"), topics)
        fill(self._table("groups"), groups)
        where, pattern = self._source.where, self._pattern
        self._hint("topics", "" if topics else topics_hint(self._look, where=where, pattern=pattern))
        self._hint("groups", "" if groups else groups_hint(self._look, where=where, pattern=pattern))

    def _hint(self, name: str, text: str) -> None:
        hint = self._main.query_one(f"#{name}-hint", Static)
        hint.update(text)
        hint.display = bool(text)

    def _draw_head(self) -> None:
        found = self._look
        words = ["headrace top", self._source.where]
        words += ["PAUSED"] if self._paused else []
        words += [f"filter: {self._pattern}"] if self._pattern else []
        words += [f"sorted by {self._sort}"] if self._sort != SORTS[0] else []
        if found is not None:
            count = sum(not each.internal for each in found.topics)
            words += [f"{len(found.brokers)} broker(s)", f"{count} topics", f"{len(found.groups)} groups"]
            if self._rates.total is not None:
                words.append(f"{self._rates.total:,.0f} records/s in")
        self._main.query_one("#head", Static).update("  ".join(words))

    def _topic_rows(self, found: Look) -> Rows:
        written = self._rates.written
        topics = [
            each
            for each in found.topics
            if (self._internal or not each.internal) and self._pattern.lower() in each.name.lower()
        ]
        if self._sort == "rate":
            topics.sort(key=lambda each: (-(written.get(each.name) or 0), each.name))
        elif self._sort == "amount":
            topics.sort(key=lambda each: (-each.records, each.name))
        rows: Rows = {}
        for each in topics:
            state = Text("ok", style="green")
            if each.offline:
                state = Text(f"{each.offline} without a leader", style="bold red")
            elif each.under_replicated:
                state = Text(f"{each.under_replicated} under-replicated", style="yellow")
            rows[each.name] = [
                Text(cut(each.name, NAME_WIDTH_MAX)),
                _right(str(each.partitions)),
                _right(_rate(written.get(each.name))),
                _right(f"{each.records:,}"),
                _right("" if each.size_bytes is None else bytes_text(each.size_bytes)),
                state,
            ]
        return rows

    def _group_rows(self, found: Look) -> Rows:
        read = self._rates.read
        groups = [each for each in found.groups if self._pattern.lower() in each.name.lower()]
        if self._sort == "rate":
            groups.sort(key=lambda each: (-(read.get(each.name) or 0), each.name))
        elif self._sort == "amount":
            groups.sort(key=lambda each: (-(each.lag or 0), each.name))
        rows: Rows = {}
        for each in groups:
            colour = "green" if each.state == "Stable" else "yellow" if each.members else "dim"
            rows[each.name] = [
                Text(cut(each.name, NAME_WIDTH_MAX)),
                Text(each.state, style=colour),
                _right(str(each.members)),
                _right("" if each.lag is None else f"{each.lag:,}"),
                _right(_rate(read.get(each.name))),
                Text(", ".join(each.topics)),
            ]
        return rows

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        name = event.row_key.value
        if name is None:
            return
        if event.data_table.id == "topics":
            self.push_screen(TopicScreen(name, self._source))
        elif event.data_table.id == "groups":
            self.push_screen(GroupScreen(name, self._source, self._interval_s))

    def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._draw()

    def action_internal(self) -> None:
        self._internal = not self._internal
        self._draw()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._draw_head()

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_filter(self) -> None:
        entry = self._main.query_one("#filter", Input)
        entry.display = True
        self.set_focus(entry)  # now, not soon: what is typed next belongs to it

    def on_input_changed(self, event: Input.Changed) -> None:
        self._pattern = event.value.strip()
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close_filter()

    def on_key(self, event: Any) -> None:
        if event.key == "escape" and self._main.query_one("#filter", Input).has_focus:
            self._main.query_one("#filter", Input).value = ""
            self._close_filter()

    def _close_filter(self) -> None:
        self._main.query_one("#filter", Input).display = False
        self._table("topics").focus()
        self._draw_head()

    @property
    def _main(self) -> Screen[Any]:
        """Not the one on top of it: what is looked at goes on being drawn below."""
        return self.screen_stack[0]

    def _table(self, name: str) -> "DataTable[Any]":
        return self._main.query_one(f"#{name}", DataTable)


def _broker_rows(found: Look) -> Rows:
    return {
        str(each.id): [
            Text(f"{each.id}{' *' if each.controller else ''}"),
            Text(each.address),
            _right(f"{each.leads:,}"),
            _right(f"{each.replicas:,}"),
            _right("" if each.size_bytes is None else bytes_text(each.size_bytes)),
            Text(each.trouble, style="bold red") if each.trouble else Text("ok", style="green"),
        ]
        for each in found.brokers
    }


def _right(text: str) -> Text:
    return Text(text, justify="right")


def _rate(rate: float | None) -> str:
    return "…" if rate is None else f"{rate:,.0f}"
