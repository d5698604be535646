"""The process that compacts: it reads segments and writes `.cleaned` files, and touches nothing else.

`python -m headrace.log.compaction.worker PID_OF_BROKER` takes requests on its standard input, a line of JSON each, and
answers each with a line. It ends when nothing has come for a while, when its input ends, or when its broker is gone.
Between two requests of a compaction it keeps the map of keys and what it has seen of transactions.
"""

import contextlib
import json
import os
import select
import sys
from collections.abc import Callable
from typing import Any

from headrace.core.errors import HeadraceError, PeerError
from headrace.core.files import Disk
from headrace.log.compaction.files import CleanedSegment, DamagedError, Pace, damaged, read_batches
from headrace.log.compaction.filter import BatchFilter
from headrace.log.compaction.map import KeyMap
from headrace.log.compaction.requests import (
    Answer,
    CompactionRefused,
    MapAnswer,
    MapRequest,
    MergeAnswer,
    MergeRequest,
    from_plain,
    to_plain,
)
from headrace.log.compaction.transactions import CleanedTransactions
from headrace.log.transactions import Aborted, read_marker
from headrace.protocol.batch import CONTROL, TRANSACTIONAL, read_header
from headrace.protocol.record_spans import inflate, spans

IDLE_S_MAX = 60.0
NICENESS = 10  # clients come first


class CompactionWorker:
    """One compaction at a time; a `MapRequest` begins the next."""

    def __init__(self, disk: Disk, still_wanted: Callable[[], bool] = lambda: True) -> None:
        self._disk = disk
        self._still_wanted = still_wanted
        self._round = -1
        self._request: MapRequest | None = None
        self._pace = Pace(1.0, still_wanted)
        self._filter: BatchFilter | None = None
        self._place = ("", 0)  # file and position of the batch that is looked at

    def answer(self, plain: dict[str, Any]) -> dict[str, Any]:
        answer: Answer
        try:
            request = from_plain(plain)
            answer = self._map(request) if isinstance(request, MapRequest) else self._merge(request)
        except OSError as error:
            answer = CompactionRefused(why=f"{error.filename or 'compaction'}: {error.strerror}")
        except DamagedError as error:
            answer = CompactionRefused(why=str(error), damaged=True, path=error.path)
        except PeerError as error:
            answer = CompactionRefused(why=str(damaged(*self._place, str(error))), damaged=True)
        except HeadraceError as error:
            answer = CompactionRefused(why=str(error))
        return to_plain(answer)

    def _map(self, request: MapRequest) -> MapAnswer:
        self._filter = None
        self._round, self._request = request.round, request
        self._pace = Pace(request.bytes_per_second_max, self._still_wanted)
        aborted = [Aborted(*entry) for entry in request.aborted]
        keys = self._key_map(request, [entry for entry in aborted if entry.last_offset >= request.start_offset])
        self._filter = BatchFilter(
            keys,
            CleanedTransactions(aborted),
            now_ms=request.now_ms,
            delete_retention_ms=request.delete_retention_ms,
        )
        return MapAnswer(end_offset=max(keys.latest_offset + 1, request.start_offset), keys=len(keys))

    def _key_map(self, request: MapRequest, aborted: list[Aborted]) -> KeyMap:
        keys = KeyMap(request.keys_max)
        transactions = CleanedTransactions(aborted)
        start_offset = request.start_offset
        for path, size, end_offset in request.segments:
            for header, batch, position in read_batches(self._disk, path, size, request.piece_bytes, self._pace):
                self._place = (path, position)
                last_offset = header.last_offset
                if last_offset < start_offset:
                    continue
                if keys.is_full:  # before a batch, never inside one: so there is progress however small the map
                    return keys
                if header.attributes & CONTROL:
                    marker = read_marker(batch, header.producer_id, header.producer_epoch)
                    transactions.marker(header.producer_id, last_offset, marker)
                elif not transactions.batch(
                    header.producer_id, last_offset, transactional=bool(header.attributes & TRANSACTIONAL)
                ):
                    base_offset, put = header.base_offset, keys.put
                    for _, _, _, _, _, offset_delta, key, _ in spans(inflate(header, batch), header.record_count):
                        if key is not None and base_offset + offset_delta >= start_offset:
                            put(key, base_offset + offset_delta)
                keys.latest_offset = last_offset
            keys.latest_offset = max(keys.latest_offset, end_offset - 1)  # what follows was compacted away before
        return keys

    def _merge(self, request: MergeRequest) -> MergeAnswer:
        found, begun = self._filter, self._request
        if found is None or begun is None or request.round != self._round:
            return _gone(request)
        found.producers = {producer: (last_offset, epoch) for producer, last_offset, epoch in request.producers}
        found.seen = found.kept = 0
        found.retired = []
        path, interval = request.path, request.index_interval_bytes
        target = CleanedSegment(self._disk, path, request.base_offset, interval, self._pace)
        try:
            last = max(at for at, (_, size) in enumerate(request.sources) if size)
            for at, (source, size) in enumerate(request.sources):
                for header, batch, position in read_batches(self._disk, source, size, begun.piece_bytes, self._pace):
                    self._place = (source, position)
                    is_last = at == last and position + header.size == size
                    kept = found.filter(header, batch, is_last=is_last)
                    if kept is not None:
                        target.append(header if kept is batch else read_header(kept), kept)
            target.finish(found.retired, os.stat(request.sources[-1][0]).st_mtime_ns)
        finally:
            target.close()
        return MergeAnswer(size=target.size, records=found.seen, records_kept=found.kept)


def _gone(request: MergeRequest) -> MergeAnswer:
    raise HeadraceError(f"{request.path}: compaction {request.round} was not begun in this process")


def main() -> None:
    broker = int(sys.argv[1])  # told, not asked: it may be gone before this process has come so far
    _give_way()
    worker = CompactionWorker(Disk(), lambda: os.getppid() == broker)
    requests = sys.stdin.buffer
    while select.select([requests], [], [], IDLE_S_MAX)[0]:
        line = requests.readline()
        if not line:
            return
        sys.stdout.write(json.dumps(worker.answer(json.loads(line))) + "\n")
        sys.stdout.flush()


def _give_way() -> None:
    """To everyone who waits for something, inside this session and, where sessions are scheduled as one, outside it."""
    os.nice(NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as autogroup:
        autogroup.write(str(NICENESS))


if __name__ == "__main__":
    main()
