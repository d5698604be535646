"""What `headrace produce` sends: lines, JSON lines, records as `consume --json` prints them, or whole files.

Each record remembers where it came from, so that whatever goes wrong names the line.
"""

import base64
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from headrace.core.errors import OperatorError

STDIN = "-"
LINE_BYTES_MAX = 64 << 20


class Outgoing(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int = -1
    timestamp_ms: int = 0  # 0: now
    source: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFormat:
    """How records are made of input."""

    kind: str = "lines"  # lines, json, records, file
    key: bytes | None = None
    key_separator: bytes | None = None
    key_field: tuple[str, ...] = ()
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = -1
    empty_is_null: bool = False


def total_bytes(paths: Sequence[str]) -> int | None:
    """How much there is to read, if that can be known."""
    total = 0
    for path in paths or (STDIN,):
        try:
            status = os.fstat(sys.stdin.fileno()) if path == STDIN else os.stat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


def records(form: InputFormat, paths: Sequence[str], goes_on: Callable[[], bool] = lambda: True) -> Iterator[Outgoing]:
    """All that there is to send. While the input is quiet, `goes_on` is asked again and again, and may say no."""
    for path in paths or (STDIN,):
        source = "stdin" if path == STDIN else path
        with _opened(path) as file:
            if form.kind == "file":
                yield _made(form, file.read(), source, 0)
                continue
            yield from _from_lines(form, _lines(file, source, goes_on), source)


def _opened(path: str) -> AbstractContextManager[IO[bytes]]:
    if path == STDIN:
        return nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OperatorError(f"{path}: {reason}; give a file, or - for standard input") from error


def _from_lines(form: InputFormat, lines: Iterable[bytes], source: str) -> Iterator[Outgoing]:
    for number, line in enumerate(lines, 1):
        if form.kind == "lines":
            yield _made(form, line, source, number)
        elif not line.strip():
            continue
        elif form.kind == "json":
            yield _json_value(form, line, source, number)
        else:
            yield parse_record(form, line, source, number)


def _lines(file: IO[bytes], source: str, goes_on: Callable[[], bool]) -> Iterator[bytes]:
    from headrace.cli.kafka.input_lines import input_lines

    for number, line in enumerate(input_lines(file, goes_on, LINE_BYTES_MAX), 1):
        if len(line) > LINE_BYTES_MAX:
            raise OperatorError(
                f"{source}:{number}: the line is longer than {LINE_BYTES_MAX:,} bytes; use --format file"
            )
        yield line


def _made(form: InputFormat, data: bytes, source: str, number: int) -> Outgoing:
    key, value = form.key, data
    if form.key_separator is not None:
        before, found, after = data.partition(form.key_separator)
        if not found:
            separator = form.key_separator.decode("utf-8", "replace")
            raise OperatorError(
                f"{source}:{number}: no {separator!r} in it, so it has no key; correct the line or --key-separator"
            )
        key, value = before, after
    empty = form.empty_is_null and not value
    return Outgoing(None if empty else value, key, form.headers, form.partition, 0, source, number)


def _json_value(form: InputFormat, line: bytes, source: str, number: int) -> Outgoing:
    content = _parsed(line, source, number)
    made = Outgoing(line.strip(), form.key, form.headers, form.partition, 0, source, number)
    if not form.key_field:
        return made
    found = content
    for step in form.key_field:
        if not isinstance(found, dict) or step not in found:
            raise OperatorError(f"{source}:{number}: it has no field {'.'.join(form.key_field)} to be its key")
        found = found[step]
    return made._replace(key=_bytes_of(found))


def _parsed(line: bytes, source: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        what = getattr(error, "msg", str(error))
        at = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise OperatorError(
            f"{source}:{number}: not JSON: {what.lower()}{at}; use --format lines to send text"
        ) from None


def parse_record(form: InputFormat, line: bytes, source: str, number: int) -> Outgoing:
    """A line as `consume --json` prints it. Only key, value, headers, partition and timestamp count."""
    content = _parsed(line, source, number)
    if not isinstance(content, dict) or not ({"value", "value_base64"} & set(content)):
        raise OperatorError(f'{source}:{number}: not a record; write {{"key": …, "value": …, "headers": {{…}}}}')
    headers = content.get("headers") or {}
    timestamp, partition = content.get("timestamp"), content.get("partition")
    if not isinstance(headers, dict) or not all(isinstance(each, int | None) for each in (timestamp, partition)):
        raise OperatorError(f"{source}:{number}: headers must be an object, timestamp and partition numbers")
    try:
        key = _field(content, "key")
        made = [*form.headers, *(pair for name, value in headers.items() for pair in _header(name, value))]
        value = _field(content, "value")
    except ValueError as error:
        raise OperatorError(f"{source}:{number}: {error}; base64 is expected") from None
    return Outgoing(
        value,
        form.key if key is None else key,
        made,
        form.partition,  # the partition of where it came from need not exist here
        timestamp if isinstance(timestamp, int) and timestamp > 0 else 0,
        source,
        number,
    )


def _field(content: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in content:
        return base64.b64decode(content[f"{name}_base64"], validate=True)
    return _bytes_of(content.get(name))


def _header(name: str, value: Any) -> Iterator[tuple[str, bytes | None]]:
    if isinstance(value, list):
        for each in value:
            yield from _header(name, each)
    elif isinstance(value, dict) and set(value) == {"base64"}:
        yield name, base64.b64decode(value["base64"], validate=True)
    else:
        yield name, _bytes_of(value)


def _bytes_of(value: Any) -> bytes | None:
    """Text as it is; null as nothing; anything else as JSON."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
