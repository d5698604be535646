"""A file of JSON lines with a copy in each log directory: appended, fsynced, and never half read.

Every line has a sequence number that never goes back. The copy with the highest one is the truth, whichever directory
was away in between; the others are written again from it. A last line that a crash tore is cut. A copy that was cut or
damaged is told from a whole one by the end that it notes (`journal_format`): if no copy has everything that was ever
noted, the journal is in doubt, and nothing is written before its owner has called `restart`. What the lines say is not
known here.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence

from headrace.broker.journal_format import Content, Entry, line, note, parse, whole_file
from headrace.core.errors import OperatorError, StorageError
from headrace.core.files import Disk

_log = logging.getLogger(__name__)

NOTHING_READ = -1


class JournalCopy:
    """One file. `size` is None where the file is not what it should be and must be written again."""

    __slots__ = ("fd", "path", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.size: int | None = None


class MirroredJournal:
    def __init__(self, directories: Sequence[str], name: str, disk: Disk, live: Callable[[], list[Entry]]) -> None:
        """`live` gives the entries that a file needs to hold now, for when one is written again."""
        self._disk = disk
        self._live = live
        self._copies = [JournalCopy(os.path.join(directory, name)) for directory in directories]
        self.sequence = 0
        self.line_count = 0
        self.behind: dict[str, int] = {}  # directories whose copy was not the newest at start: its last change
        self.doubtful: set[str] = set()  # directories whose copy does not tell how much was in it
        self.doubt = ""  # which files lost what, if that is not in any other copy

    def load(self) -> list[Entry]:
        """The entries of the newest copy, in order; none if there is no copy at all."""
        found: dict[str, Content] = {}
        unreadable: list[str] = []
        for copy in self._copies:
            try:
                data = self._disk.read_file(copy.path)
            except OSError as error:
                unreadable.append(f"{copy.path} cannot be read: {error.strerror or error}")
                continue
            if data is not None:
                found[copy.path] = parse(data)
        best_path, best = self._newest(found)
        self.sequence = max([best.last, *(content.noted for content in found.values())])
        self._judge(found, unreadable, best_path, best)
        for copy in self._copies:
            content = found.get(copy.path)
            last = NOTHING_READ if content is None else max(content.last, content.noted)
            if content is not None and content.is_exact and content.last == self.sequence and not self.doubt:
                copy.size = content.size
            if last < self.sequence:
                self.behind[os.path.dirname(copy.path)] = last
        self.line_count = len(best.entries)
        return best.entries

    def _newest(self, found: dict[str, Content]) -> tuple[str, Content]:
        best_path, best = "", Content()
        for path, content in found.items():
            if not content.bad_line and content.last > best.last:
                best_path, best = path, content
        for path, content in found.items():
            if content.bad_line and not best.entries:
                what = f"{path}:{content.bad_line}: this line is damaged, and others follow it"
                raise OperatorError(f"{what}; restore the file from a backup or from another log directory")
        return best_path, best

    def _judge(self, found: dict[str, Content], unreadable: list[str], best_path: str, best: Content) -> None:
        """Says what is wrong with the copies, and whether all that was noted is in the newest."""
        problems = [f"{path} {content.problem}" for path, content in found.items() if content.problem] + unreadable
        known = {os.path.dirname(path) for path, content in found.items() if content.end_is_known}
        held = {os.path.dirname(path) for path in found}
        self.doubtful = held - known
        lost = _loss(best.last + 1, self.sequence)
        if lost or (problems and not known):
            self.doubt = "; ".join([*problems, lost or "changes may be lost"])
            return
        for problem in problems:
            _log.warning("%s; it is written again from %s, which has all %d changes", problem, best_path, best.last)

    def append(self, entries: Iterable[Entry]) -> None:
        """On disk in at least one directory when this returns; `StorageError` otherwise."""
        lines = []
        for entry in entries:
            self.sequence += 1
            lines.append(line(self.sequence, entry))
        data = b"".join(lines)
        self.line_count += len(lines)
        self._write_copies(data)

    def repair(self) -> None:
        """Writes the copies again that are missing, old or damaged."""
        if any(copy.size is None for copy in self._copies):
            self._write_copies(b"")

    def restart(self) -> None:
        """What is live now is the truth, and newer than any copy; the end of a doubt."""
        self.sequence += 1
        self.doubt = ""
        self.compact()

    def compact(self) -> None:
        """All copies again, with what is live and nothing else."""
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
                # What the file holds now is not known: the next change writes it again.
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
        # Only now: a note on disk must never be ahead of the lines. It need not be synced, it may be behind them.
        self._disk.write(copy.fd, [note(copy.size, self.sequence)], 0)

    def _rewrite(self, copy: JournalCopy, data: bytes) -> None:
        live = self._live()
        more_count = data.count(b"\n")
        whole = whole_file(self.sequence - more_count, live, data, self.sequence)
        self._close(copy)
        self._disk.replace_file(copy.path, whole)
        self._disk.sync_directory(os.path.dirname(copy.path) or ".")
        copy.size = len(whole)
        self.line_count = len(live) + more_count

    def _close(self, copy: JournalCopy) -> None:
        if copy.fd >= 0:
            self._disk.close(copy.fd)
            copy.fd = -1

    def close(self) -> None:
        for copy in self._copies:
            self._close(copy)


def _loss(first: int, last: int) -> str:
    if first > last:
        return ""
    return f"change {last} is lost" if first == last else f"changes {first} to {last} are lost"
