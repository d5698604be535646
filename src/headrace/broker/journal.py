"""A file of JSON lines with a copy in each log directory: appended, fsynced, and never half read.

Every line has a sequence number that never goes back. The copy with the highest one is the truth,
whichever directory was away in between; the others are written anew from it. A last line that a crash
tore is cut; a bad line with good ones behind it means a damaged file, which is never taken for a whole
one. What the lines say is not known here.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.core.errors import OperatorError, StorageError
from headrace.core.files import Disk

Entry = Mapping[str, Any]

_log = logging.getLogger(__name__)


class JournalCopy:
    """One file. `size` is None where the file is not what it should be and must be written anew."""

    __slots__ = ("fd", "path", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.size: int | None = None


class Journal:
    def __init__(self, directories: Sequence[str], name: str, disk: Disk, live: Callable[[], list[Entry]]) -> None:
        """`live` gives the entries that a file needs to hold now, for when one is written anew."""
        self._disk = disk
        self._live = live
        self._copies = [JournalCopy(os.path.join(directory, name)) for directory in directories]
        self._sequence = 0
        self.line_count = 0
        self.behind: set[str] = set()  # directories whose copy was not the newest one at start

    def load(self) -> list[Entry]:
        """The entries of the newest whole copy, in order; none if there is no copy at all."""
        best: list[Entry] = []
        damaged: list[str] = []
        lengths: dict[str, tuple[int, int]] = {}
        for copy in self._copies:
            try:
                data = self._disk.read_file(copy.path)
            except OSError as error:
                _log.warning("%s cannot be read: %s", copy.path, error)
                continue
            if data is None:
                continue
            try:
                entries, size = _parse(data, copy.path)
            except ValueError as error:
                damaged.append(str(error))
                continue
            last = entries[-1]["seq"] if entries else 0
            lengths[copy.path] = (last, size if size == len(data) else -1)
            if last > self._sequence:
                best, self._sequence = entries, last
        if damaged and not best:
            raise OperatorError(f"{damaged[0]}; restore the file from a backup or from another log directory")
        for problem in damaged:
            _log.warning("%s; it is written anew from another directory", problem)
        for copy in self._copies:
            last, size = lengths.get(copy.path, (-1, -1))
            copy.size = size if last == self._sequence and size > 0 else None
            if last < self._sequence:
                self.behind.add(os.path.dirname(copy.path))
        self.line_count = len(best)
        return best

    def append(self, entries: Iterable[Entry]) -> None:
        """On disk in at least one directory when this returns; `StorageError` otherwise."""
        lines = []
        for entry in entries:
            self._sequence += 1
            lines.append(_line(self._sequence, entry))
        data = b"".join(lines)
        self.line_count += len(lines)
        self._write_copies(data)

    def repair(self) -> None:
        """Writes the copies anew that are missing, old or damaged."""
        if any(copy.size is None for copy in self._copies):
            self._write_copies(b"")

    def compact(self) -> None:
        """All copies anew, with what is live and nothing else."""
        for copy in self._copies:
            copy.size = None
        self._write_copies(b"")

    def _write_copies(self, data: bytes) -> None:
        errors = []
        for copy in self._copies:
            try:
                if copy.size is None:
                    self._rewrite(copy, data)
                elif data:
                    self._extend(copy, data, copy.size)
            except OSError as error:
                # What the file holds now is not known: the next change writes it anew.
                copy.size = None
                self._close(copy)
                errors.append(f"{copy.path}: {error}")
        for error_text in errors:
            _log.warning("%s; the change is not in this copy", error_text)
        if errors and len(errors) == len(self._copies):
            raise StorageError(f"{errors[0]}; no log directory takes the change")

    def _extend(self, copy: JournalCopy, data: bytes, size: int) -> None:
        if copy.fd < 0:
            copy.fd = self._disk.open(copy.path)
        self._disk.write(copy.fd, [data], size)
        self._disk.sync(copy.fd)
        copy.size = size + len(data)

    def _rewrite(self, copy: JournalCopy, data: bytes) -> None:
        live = self._live()
        # A file that is written at once has one number throughout: that of the last change it knows of.
        known = self._sequence - data.count(b"\n")
        whole = b"".join(_line(known, entry) for entry in live) + data
        self._close(copy)
        self._disk.replace_file(copy.path, whole)
        self._disk.sync_directory(os.path.dirname(copy.path) or ".")
        copy.size = len(whole)
        self.line_count = len(live) + data.count(b"\n")

    def _close(self, copy: JournalCopy) -> None:
        if copy.fd >= 0:
            self._disk.close(copy.fd)
            copy.fd = -1

    def close(self) -> None:
        for copy in self._copies:
            self._close(copy)


def _line(sequence: int, entry: Entry) -> bytes:
    return json.dumps({"seq": sequence, **entry}, separators=(",", ":")).encode() + b"\n"


def _parse(data: bytes, path: str) -> tuple[list[Entry], int]:
    """The whole lines, and the bytes that they take. ValueError if a bad line is not the last one."""
    lines = data.split(b"\n")
    tail = lines.pop()  # empty, unless the last line was torn
    entries: list[Entry] = []
    size = 0
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if not isinstance(entry["seq"], int) or (entries and entry["seq"] < entries[-1]["seq"]):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            if number == len(lines) and not tail:
                break
            raise ValueError(f"{path}:{number}: this line is damaged, and others follow it") from None
        entries.append(entry)
        size += len(line) + 1
    return entries, size
