"""The bytes of a journal: its first line notes where it ends, each other line is JSON with a number and a checksum.

The note has a fixed width and is written in place after an append is on disk, so a file never ends before the end that
it notes, unless somebody cut it; what lies behind the noted end is an append that was under way. Files that older
versions wrote have neither note nor checksums and are read all the same. Nothing here touches a disk.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Entry = Mapping[str, Any]

_NOTE = '{"journal":1,"end":"%016d","seq":"%016d"}'
_CHECKSUM = b',"crc":"'
NO_NUMBER = -1


def note(end: int, sequence: int) -> bytes:
    """The first line of a file that holds `end` bytes with this line, up to the change `sequence`."""
    return _sealed((_NOTE % (end, sequence)).encode())


def line(sequence: int, entry: Entry) -> bytes:
    return _sealed(json.dumps({"seq": sequence, **entry}, separators=(",", ":")).encode())


def whole_file(sequence: int, entries: Sequence[Entry], more: bytes = b"", last: int | None = None) -> bytes:
    """A file written at once. Its lines have one number: that of the last change they know of; `more` are further
    lines, up to number `last`."""
    body = b"".join(line(sequence, entry) for entry in entries) + more
    return note(NOTE_BYTES + len(body), sequence if last is None else last) + body


@dataclass(slots=True)
class Content:
    """What could be read of a file, and what is wrong with it."""

    entries: list[Entry] = field(default_factory=list)
    size: int = 0  # bytes of good lines
    last: int = 0  # number of the last change that was read
    noted: int = NO_NUMBER  # number of the last change that was once in the file, where that is known
    is_exact: bool = False  # nothing is in the file but the note and good lines
    problem: str = ""
    bad_line: int = 0  # its number, where good lines follow a bad one: this was no cut

    @property
    def end_is_known(self) -> bool:
        return not self.problem or self.noted != NO_NUMBER


def parse(data: bytes) -> Content:
    content = Content()
    if not data:
        content.problem = "is empty"
        return content
    lines = data.split(b"\n")
    tail = lines.pop()  # empty, unless the file ends in the middle of a line
    found = _read_note(lines[0]) if lines else None
    if found is not None:
        end, content.noted = found
        content.size = NOTE_BYTES
        _read_lines(content, lines, 1, tail, end)
        if content.size < end and not content.bad_line:
            what = f"ends at byte {len(data)}" if len(data) < end else f"is damaged from byte {content.size} on"
            content.problem = f"{what}, though {end} bytes were written"
    elif not lines or (_read_line(lines[0]) is None and any(_has_checksum(each) for each in lines[1:])):
        content.size = len(lines[0]) + 1 if lines else 0
        content.problem = "has lost its first line, which notes where it ends"
        _read_lines(content, lines, 1, tail, 0)
    else:
        _read_lines_of_old(content, lines, tail)
    content.is_exact = found is not None and content.size == len(data) and not content.problem
    return content


def _read_lines(content: Content, lines: list[bytes], first: int, tail: bytes, end: int) -> None:
    """Up to the first bad line. Below `end` it means damage, behind it an append that was under way."""
    for index in range(first, len(lines)):
        if not _take(content, lines[index]):
            if content.size < end and any(_has_checksum(each) for each in lines[index + 1 :]):
                _damaged_within(content, index + 1)
            return
    if tail and _has_checksum(tail) and _take(content, tail):
        return  # only the line feed is missing


def _read_lines_of_old(content: Content, lines: list[bytes], tail: bytes) -> None:
    for number, each in enumerate(lines, 1):
        if not _take(content, each):
            if number < len(lines) or tail:
                _damaged_within(content, number)
                return
            tail = each
    if tail:
        content.problem = f"ends at byte {content.size + len(tail)}, in the middle of a line"


def _damaged_within(content: Content, number: int) -> None:
    content.bad_line = number
    content.problem = f"has a damaged line, {number}, and others follow it"


def _take(content: Content, each: bytes) -> bool:
    entry = _read_line(each)
    if entry is None or entry["seq"] < content.last:
        return False
    content.entries.append(entry)
    content.last = entry["seq"]
    content.size += len(each) + 1
    return True


def _sealed(text: bytes) -> bytes:
    return b'%s%s%08x"}\n' % (text[:-1], _CHECKSUM, zlib.crc32(text))


def _unsealed(each: bytes) -> bytes | None:
    """The line without its checksum; None if that is wrong, or if there is none."""
    text, mark, checksum = each.rpartition(_CHECKSUM)
    text += b"}"
    return text if mark and checksum == b'%08x"}' % zlib.crc32(text) else None


def _has_checksum(each: bytes) -> bool:
    return _unsealed(each) is not None


def _read_line(each: bytes) -> Entry | None:
    text = _unsealed(each)
    if text is None:
        if _CHECKSUM in each:
            return None
        text = each
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "op" in entry and type(entry.get("seq")) is int else None


def _read_note(each: bytes) -> tuple[int, int] | None:
    """(end, number of the last change)"""
    text = _unsealed(each)
    if text is None or len(each) + 1 != NOTE_BYTES or not text.startswith(b'{"journal":1,'):
        return None
    noted = json.loads(text)
    return int(noted["end"]), int(noted["seq"])


NOTE_BYTES = len(note(0, 0))
