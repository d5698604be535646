"""A record as it is shown: for people, as one line of JSON, or as its bare bytes; and as the filter sees it.

What is not text is shown in base64 in JSON (`value_base64`) and escaped for people; nothing can move the cursor.
"""

import base64
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from headrace.cli.columns import cell, width_of

Headers = Sequence[tuple[str, bytes | None]]


class ShownRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Format = Callable[[ShownRecord], bytes]


def shown(message: Any) -> ShownRecord:
    """Of a confluent-kafka message."""
    kind, stamp = message.timestamp()
    return ShownRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        stamp if kind else None,
        message.key(),
        message.value(),
        message.headers() or (),
    )


def format_for(name: str, *, colours: bool, separator: str | None = None) -> Format:
    """`pretty`, `json` or `raw`."""
    if name == "json":
        return as_json
    if name == "raw":
        between = None if separator is None else separator.encode()
        return lambda record: as_raw(record, between)
    width = shutil.get_terminal_size().columns
    return lambda record: as_pretty(record, colours=colours, width=width)


# ── raw ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_raw(record: ShownRecord, separator: bytes | None = None) -> bytes:
    value = record.value or b""
    return value + b"\n" if separator is None else (record.key or b"") + separator + value + b"\n"


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_json(record: ShownRecord) -> bytes:
    return json.dumps(content_of(record), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def content_of(record: ShownRecord) -> dict[str, Any]:
    content: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "time": time_text(record.timestamp_ms),
    }
    content |= _field("key", record.key) | _field("value", record.value)
    headers: dict[str, Any] = {}
    for name, value in record.headers:
        text = _text(value)
        one: Any = {"base64": base64.b64encode(value or b"").decode()} if text is None and value is not None else text
        if name in headers:  # a name may stand many times
            held = headers[name]
            headers[name] = [*held, one] if isinstance(held, list) else [held, one]
        else:
            headers[name] = one
    if headers:
        content["headers"] = headers
    return content


def _field(name: str, data: bytes | None) -> dict[str, Any]:
    text = _text(data)
    if text is None and data is not None:
        return {f"{name}_base64": base64.b64encode(data).decode()}
    return {name: text if text is None else _structure(text, text)}


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _structure(text: str, otherwise: Any) -> Any:
    """A JSON object or list as such; anything else stays text, so that `1` and `"1"` remain two things."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return otherwise
    return otherwise


def time_text(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────────


def as_pretty(record: ShownRecord, *, colours: bool, width: int) -> bytes:
    """A line about the record, then its value; JSON is laid out if it does not fit on a line."""
    parts = [_style(f"{record.topic}-{record.partition} @{record.offset}", colours, fg="cyan")]
    when = time_text(record.timestamp_ms)
    if when is not None:
        parts.append(_style(when.replace("T", " ")[:-1], colours, dim=True))
    if record.key is not None:
        parts.append(f"key={_style(_readable(record.key), colours, fg='yellow')}")
    for name, value in record.headers:
        parts.append(_style(f"{cell(name)}=", colours, dim=True) + _readable(value))
    lines = [_style("null", colours, dim=True)] if record.value is None else _value_lines(record.value, width - 2)
    return ("  ".join(parts) + "\n" + "".join(f"  {line}\n" for line in lines)).encode("utf-8", "replace")


def _value_lines(value: bytes, width: int) -> list[str]:
    text = _text(value)
    if text is None:
        return [_readable(value)]
    parsed = _structure(text, None)
    if parsed is not None:
        short = json.dumps(parsed, ensure_ascii=False)
        if width_of(short) <= width:
            return [cell(short)]
        return [cell(line) for line in json.dumps(parsed, ensure_ascii=False, indent=2).split("\n")]
    return [cell(line) for line in text.split("\n")]


def _readable(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = _text(data)
    return cell(text) if text is not None else "".join(chr(b) if 32 <= b < 127 else f"\\x{b:02x}" for b in data)


def _style(text: str, colours: bool, **how: Any) -> str:
    return click.style(text, **how) if colours else text


# ── for the filter ───────────────────────────────────────────────────────────────────────────────────────────────────


class FilterView(Mapping[str, Any]):
    """A record as an expression sees it; what an expression does not ask for is not decoded."""

    def __init__(self, record: ShownRecord) -> None:
        self._record = record

    def __getitem__(self, name: str) -> Any:
        record = self._record
        if name == "value":
            return _any_json(_lenient(record.value))
        if name == "text":
            return _lenient(record.value)
        if name == "key":
            text = _lenient(record.key)
            return None if text is None else _structure(text, text)
        if name == "headers":
            return {header: _lenient(value) for header, value in record.headers}
        if name == "size":
            return len(record.key or b"") + len(record.value or b"")
        if name == "timestamp":
            return record.timestamp_ms
        return getattr(record, name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]

    def __iter__(self) -> Any:
        raise TypeError("fields are asked for by name")

    def __len__(self) -> int:
        raise TypeError("fields are asked for by name")


def _lenient(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _any_json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
