"""The small files beside a log: indexes, aborted transactions, producers; and what is wrong in them."""

import os
import struct
import sys
from dataclasses import dataclass, field

from headrace.cli.kafka.log_dump import base_offset_of, batches
from headrace.protocol.batch import HEADER_BYTES, BatchHeader, read_header

_OFFSETS = struct.Struct(">ii")  # offset, less the base; position
_TIMES = struct.Struct(">qi")  # timestamp; offset, less the base
_ABORTED = struct.Struct(">hqqqq")  # version, producer, first and last offset, last stable offset
_SNAPSHOT = struct.Struct(">hIi")  # version, CRC, entries
_PRODUCER = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION, _SNAPSHOT_CRC_END = 1, 6

Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class IndexFaults:
    """What does not fit together, by file; said at the end."""

    mismatched: dict[str, Pairs] = field(default_factory=dict)
    mistimed: dict[str, Pairs] = field(default_factory=dict)
    out_of_order: dict[str, Pairs] = field(default_factory=dict)
    not_found: dict[str, Pairs] = field(default_factory=dict)

    def report(self) -> int:
        for title, line, found in (
            ("Mismatches in :", "  Index offset: {}, log offset: {}", self.mismatched),
            ("Found timestamp mismatch in :", "  Index timestamp: {}, log timestamp: {}", self.mistimed),
            (
                "Found out of order timestamp in :",
                "  Index timestamp: {}, Previously indexed timestamp: {}",
                self.out_of_order,
            ),
            (
                "The following indexed offsets are not found in :",
                "Indexed offset: {}, found log offset: {}",
                self.not_found,
            ),
        ):
            for path, pairs in found.items():
                print(f"{title}{os.path.abspath(path)}", file=sys.stderr)
                for pair in pairs:
                    print(line.format(*pair), file=sys.stderr)
        return 1 if self.mismatched or self.mistimed or self.out_of_order or self.not_found else 0


def dump_index(path: str, faults: IndexFaults, *, sane: bool, verify: bool) -> None:
    base = base_offset_of(path)
    entries = _entries(path, _OFFSETS)
    if not entries:
        print(f"{path} is empty.")
        return
    if sane:
        _check_sane(path, _OFFSETS)
        return
    with open(_beside(path, ".log"), "rb") as log:
        for number, (relative, position) in enumerate(entries):
            if relative == 0 and number > 0:
                return  # a sparse file: nothing but zeros follows
            header = _header_at(log.fileno(), position)
            found = -1 if header is None else header.last_offset
            if found != base + relative:
                faults.mismatched.setdefault(path, []).append((base + relative, found))
            if not verify:
                print(f"offset: {base + relative} position: {position}")


def dump_time_index(path: str, faults: IndexFaults, *, sane: bool, verify: bool) -> None:
    base = base_offset_of(path)
    if sane:
        _check_sane(path, _TIMES)
        return
    ends = {header.last_offset: header.max_timestamp for _, header, _ in batches(_beside(path, ".log"))}
    previous = -1
    for number, (timestamp, relative) in enumerate(_entries(path, _TIMES)):
        offset = base + relative
        if relative == 0 and number > 0:
            return
        if offset not in ends:
            later = min((end for end in ends if end >= offset), default=-1)
            faults.not_found.setdefault(path, []).append((offset, later))
        else:
            if ends[offset] != timestamp:
                faults.mistimed.setdefault(path, []).append((timestamp, ends[offset]))
            if previous >= timestamp:
                faults.out_of_order.setdefault(path, []).append((timestamp, previous))
        if not verify:
            print(f"timestamp: {timestamp} offset: {offset}")
        previous = timestamp


def dump_txn_index(path: str) -> None:
    for version, producer, first, last, stable in _entries(path, _ABORTED):
        print(
            f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}"
        )


def dump_snapshot(path: str) -> None:
    from crc32c import crc32c

    with open(path, "rb") as file:
        data = file.read()
    if len(data) < _SNAPSHOT.size:
        print(f"Snapshot failed schema validation: {len(data)} bytes", file=sys.stderr)
        return
    version, crc, count = _SNAPSHOT.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        print(f"Snapshot contained an unknown file version {version}", file=sys.stderr)
        return
    computed = crc32c(data[_SNAPSHOT_CRC_END:])
    if crc != computed:
        print(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}",
            file=sys.stderr,
        )
        return
    for at in range(count):
        fields = _PRODUCER.unpack_from(data, _SNAPSHOT.size + at * _PRODUCER.size)
        producer, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = fields
        open_since = f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {producer} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
            f"currentTxnFirstOffset: {open_since} lastTimestamp: {timestamp}"
        )
        if offset >= 0:
            first_sequence = (sequence - delta) & 0x7FFFFFFF
            line += (
                f" firstSequence: {first_sequence} lastSequence: {sequence} lastOffset: {offset} offsetDelta: {delta} "
                f"timestamp: {timestamp}"
            )
        print(line)


def _entries(path: str, entry: struct.Struct) -> list[tuple[int, ...]]:
    with open(path, "rb") as file:
        data = file.read()
    return list(entry.iter_unpack(data[: len(data) - len(data) % entry.size]))


def _check_sane(path: str, entry: struct.Struct) -> None:
    """What a broker asks of an index when it starts: whole entries, and the last not before the first."""
    size = os.path.getsize(path)
    entries = _entries(path, entry)
    if size % entry.size:
        why = f"the file has {size} bytes, which is not a multiple of {entry.size}"
    elif entries and entries[-1][0] < entries[0][0]:
        why = f"its last entry {entries[-1]} is before its first {entries[0]}"
    else:
        print(f"{path} passed sanity check.")
        return
    from headrace.cli.kafka.tool import ToolError

    raise ToolError(f"{path}: the index is corrupt: {why}; a broker makes it again when it starts")


def _beside(path: str, suffix: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, name.partition(".")[0] + suffix)


def _header_at(descriptor: int, position: int) -> BatchHeader | None:
    data = os.pread(descriptor, HEADER_BYTES, position)
    return read_header(data) if len(data) == HEADER_BYTES else None
