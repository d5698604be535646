"""What `headrace top` opens: a topic's messages as they come, a group's members and offsets, the list of keys."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Static

from headrace.cli.columns import cell
from headrace.cli.records.view import ShownRecord, as_pretty, time_text
from headrace.cli.top.source import Source
from headrace.cli.top.tables import Rows, columns, fill

if TYPE_CHECKING:
    from headrace.client.group_admin import Position
    from headrace.client.groups import GroupDetails

MESSAGES_MAX = 500  # that are kept; the oldest go
VALUE_WIDTH = 200
DETAIL_WIDTH = 100
STOP_S_MAX = 2.0
BACK: list[BindingType] = [Binding("escape,backspace", "app.pop_screen", "Back"), Binding("q", "app.quit", "Quit")]
STYLE = """
    .head { height: 1; background: $primary; color: $text; padding: 0 1; }
    .error { height: auto; background: $error; color: $text; padding: 0 1; display: none; }
    .title { height: 1; color: $accent; padding: 0 1; text-style: bold; }
"""
KEYS = """\
tab, shift+tab    from topics to groups and back
↑ ↓ PgUp PgDn     move
enter             a topic's messages, a group's members; there: the whole message
escape            back
/                 show only names with a text in them; escape clears it
s                 sort by name, by rate, by amount (records, lag)
i                 show or hide internal topics
p                 pause, go on
q                 quit"""


class _Live(Screen[None]):
    """A screen that a thread of its own feeds."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def on_mount(self) -> None:
        self.begin()
        self._thread = threading.Thread(target=self._run, name="headrace-top-screen", daemon=True)
        self._thread.start()

    def on_unmount(self) -> None:
        self._ended.set()
        self.end()
        if self._thread is not None:
            self._thread.join(STOP_S_MAX)

    def begin(self) -> None:
        """Before the thread starts."""

    def end(self) -> None:
        """Whatever makes the thread end soon."""

    def feed(self) -> None:
        """On the thread."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self.feed()
        except Exception as error:
            text = str(error)
            self.tell(lambda: self._failed(text))

    def tell(self, work: Callable[[], None]) -> None:
        if self._ended.is_set():
            return
        with suppress(Exception):  # the screen, or the whole program, has gone meanwhile
            self.app.call_from_thread(work)

    def _failed(self, text: str) -> None:
        banner = self.query_one(".error", Static)
        banner.update(text)
        banner.display = True


class TopicScreen(_Live):
    CSS = f"""
    {STYLE}
    #messages {{ height: 1fr; }}
    #detail {{ height: auto; max-height: 50%; border-top: solid $accent; display: none; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("f", "follow", "Follow"), *BACK]

    def __init__(self, topic: str, source: Source) -> None:
        super().__init__(source)
        self._topic = topic
        self._messages = source.messages(topic)
        self._records: dict[str, ShownRecord] = {}
        self._count = 0
        self._follow = True

    def compose(self) -> ComposeResult:
        yield Static(f"{self._topic}: waiting for messages …", classes="head", markup=False)
        yield Static("", classes="error", markup=False)
        yield DataTable(id="messages", cursor_type="row")
        with VerticalScroll(id="detail"):
            yield Static("", id="record", markup=False)
        yield Footer()

    def begin(self) -> None:
        columns(self._table, ("partition", "offset", "time", "key", "value"))
        self._table.focus()

    def end(self) -> None:
        self._messages.stop()

    def feed(self) -> None:
        for batch in self._messages.batches():
            if self._ended.is_set():
                return
            # It returns when the screen has drawn them: a topic with a million a second is read no faster than that.
            self.tell(lambda batch=batch: self._add(batch))  # type: ignore[misc]

    def _add(self, batch: list[ShownRecord]) -> None:
        self._count += len(batch)
        table = self._table
        fresh = {f"{each.partition}-{each.offset}": each for each in batch[-MESSAGES_MAX:]}
        fresh = {key: each for key, each in fresh.items() if key not in self._records}
        self._records |= fresh
        if len(self._records) > MESSAGES_MAX:
            # Taking rows away one by one costs far more than drawing those that stay.
            fresh = self._records = dict(list(self._records.items())[-MESSAGES_MAX:])
            table.clear()
        for key, record in fresh.items():
            table.add_row(*_message_cells(record), key=key)
        if self._follow and table.row_count:
            table.move_cursor(row=table.row_count - 1, animate=False)
        state = "following" if self._follow else "not following (f)"
        text = f"{self._topic}: {self._count:,} messages seen, the last {len(self._records):,} kept, {state}"
        self.query_one(".head", Static).update(text)

    def action_follow(self) -> None:
        self._follow = not self._follow
        self._add([])

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        record = self._records.get(str(event.row_key.value))
        if record is not None:
            self._follow = False
            self.query_one("#record", Static).update(as_pretty(record, colours=False, width=DETAIL_WIDTH).decode())
            self.query_one("#detail").display = True
            self._add([])

    @property
    def _table(self) -> "DataTable[Any]":
        return self.query_one("#messages", DataTable)


def _message_cells(record: ShownRecord) -> list[Text]:
    when = (time_text(record.timestamp_ms) or "")[11:-1]
    return [
        Text(str(record.partition), justify="right"),
        Text(f"{record.offset:,}", justify="right"),
        Text(when),
        Text(_short(record.key), style="yellow"),
        Text(_short(record.value)),
    ]


def _short(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = cell(data[: VALUE_WIDTH * 4].decode("utf-8", "replace"))
    return text if len(text) <= VALUE_WIDTH else text[:VALUE_WIDTH] + "…"


class GroupScreen(_Live):
    CSS = STYLE + "#members { height: 1fr; } #offsets { height: 2fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [*BACK]

    def __init__(self, group: str, source: Source, interval_s: float) -> None:
        super().__init__(source)
        self._group = group
        self._interval_s = interval_s

    def compose(self) -> ComposeResult:
        yield Static(f"{self._group}: …", classes="head", markup=False)
        yield Static("", classes="error", markup=False)
        yield Static("Members", classes="title")
        yield DataTable(id="members", cursor_type="row")
        yield Static("Partitions", classes="title")
        yield DataTable(id="offsets", cursor_type="row")
        yield Footer()

    def begin(self) -> None:
        columns(self.query_one("#members", DataTable), ("client", "host", "partitions", "member"))
        columns(self.query_one("#offsets", DataTable), ("topic", "partition", "committed", "end", "lag", "client"))
        self.query_one("#offsets", DataTable).focus()

    def feed(self) -> None:
        while not self._ended.is_set():
            try:
                facts, places = self._source.group(self._group)
            except Exception as error:
                self.tell(lambda text=str(error): self._failed(text))  # type: ignore[misc]
            else:
                self.tell(lambda facts=facts, places=places: self._show(facts, places))  # type: ignore[misc]
            self._ended.wait(self._interval_s)

    def _show(self, facts: "GroupDetails", places: "list[Position]") -> None:
        self.query_one(".error", Static).display = False
        lag = sum(place.lag or 0 for place in places)
        count = len(facts.members)
        head = f"{facts.group}: {facts.state}, {count} member{'' if count == 1 else 's'}, {lag:,} behind"
        self.query_one(".head", Static).update(head)
        members: Rows = {
            member.id: [
                Text(member.client_id),
                Text(member.host.lstrip("/")),
                Text(" ".join(f"{topic}-{number}" for topic, number in member.assignment)),
                Text(member.id, style="dim"),
            ]
            for member in facts.members
        }
        fill(self.query_one("#members", DataTable), members)
        offsets: Rows = {
            json.dumps([place.topic, place.partition]): [
                Text(place.topic),
                Text(str(place.partition), justify="right"),
                *(
                    Text("" if number is None else f"{number:,}", justify="right")
                    for number in (place.committed, place.end, place.lag)
                ),
                Text(place.member or ""),
            ]
            for place in places
        }
        fill(self.query_one("#offsets", DataTable), offsets)


class HelpScreen(ModalScreen[None]):
    CSS = "HelpScreen { align: center middle; } #keys { width: 80; height: auto; border: round $accent; padding: 1 2; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "app.pop_screen", "Back")]

    def compose(self) -> ComposeResult:
        yield Static(KEYS, id="keys", markup=False)
