"""A line of input to a record, as Kafka's console producer reads it. Bytes in, bytes out: nothing is decoded."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.cli.kafka.tool import ToolError

KNOWN = frozenset(
    {
        "parse.key",
        "key.separator",
        "parse.headers",
        "headers.delimiter",
        "headers.separator",
        "headers.key.separator",
        "ignore.error",
        "null.marker",
    }
)


class Line(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """`headers` before `key` before value, each only if asked for."""

    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    ignore_error: bool = False
    null_marker: bytes | None = None

    def __post_init__(self) -> None:
        names = ("headers_delimiter", "headers_separator", "headers_key_separator")
        pairs = [*((a, b) for at, a in enumerate(names) for b in names[at + 1 :])]
        pairs += [("null_marker", each) for each in ("key_separator", *names)]
        for first, second in pairs:
            if getattr(self, first) == getattr(self, second):
                dotted = (first.replace("_", "."), second.replace("_", "."))
                raise ToolError(f"{dotted[0]} and {dotted[1]} may not be equal")

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "LineReader":
        values: dict[str, bool | bytes] = {}
        for key, value in properties.items():
            name = key.replace(".", "_")
            if key in ("parse.key", "parse.headers", "ignore.error"):
                values[name] = value.strip().lower() == "true"
            elif key in KNOWN:
                values[name] = value.encode()
        return cls(**values)  # type: ignore[arg-type]

    def read(self, line: bytes, number: int) -> Line:
        rest = line
        headers, rest = self._part(self.parse_headers, rest, self.headers_delimiter, "headers delimiter", line, number)
        key, rest = self._part(self.parse_key, rest, self.key_separator, "key separator", line, number)
        found = [] if headers is None or headers == self.null_marker else self._headers(headers, number)
        return Line(self._or_null(key), self._or_null(rest), found)

    def _part(
        self, wanted: bool, rest: bytes, separator: bytes, name: str, line: bytes, number: int
    ) -> tuple[bytes | None, bytes]:
        if not wanted:
            return None, rest
        part, found, after = rest.partition(separator)
        if found:
            return part, after
        if self.ignore_error:
            return None, rest
        raise ToolError(f"No {name} found on line number {number}: '{line.decode(errors='replace')}'")

    def _headers(self, text: bytes, number: int) -> list[tuple[str, bytes | None]]:
        found: list[tuple[str, bytes | None]] = []
        # Kafka takes the separator for a regular expression.
        for pair in re.split(self.headers_separator, text):
            key, separator, value = pair.partition(self.headers_key_separator)
            if not separator:
                if not self.ignore_error:
                    shown = pair.decode(errors="replace")
                    raise ToolError(f"No header key separator found in pair '{shown}' on line number {number}")
                found.append((pair.decode(errors="replace"), None))
                continue
            if key == self.null_marker:
                marker = key.decode(errors="replace")
                raise ToolError(f"Header keys should not be equal to the null marker '{marker}' as they can't be null")
            found.append((key.decode(errors="replace"), self._or_null(value)))
        return found

    def _or_null(self, value: bytes | None) -> bytes | None:
        return None if value == self.null_marker else value
