"""The batches and records of a `.log` file, line by line as Kafka's DumpLogSegments shows them."""

import os
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from headrace.cli.kafka.options import GivenOptions
from headrace.cli.kafka.tool import ToolError
from headrace.core.errors import PeerError
from headrace.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_END,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from headrace.protocol.records import Record, iter_records

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_INT_MAX = 2**31 - 1
_CONTROL_KEY = struct.Struct(">hh")  # version, type
_CONTROL_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_MARKERS = {0: "ABORT", 1: "COMMIT"}

Decoder = Callable[[bytes], bytes]
Parser = Callable[[Record], tuple[bytes | None, bytes | None]]  # key and value as they are shown


@dataclass(slots=True, kw_only=True)
class LogDump:
    parser: Parser
    contents: bool
    deep: bool
    metadata: bool
    bytes_max: int
    _gaps: dict[str, dict[int, int]] = field(default_factory=dict)

    def run(self, path: str) -> None:
        print(f"Log starting offset: {base_offset_of(path)}")
        last = -1
        end = 0
        for position, header, batch in batches(path, self.bytes_max):
            print(_batch_line(position, header, batch))
            end = position + header.size
            if not self.deep:
                continue
            try:
                for index, record in enumerate(iter_records(batch)):
                    if record.offset != last + 1:
                        self._gaps.setdefault(path, {})[last] = record.offset
                    last = record.offset
                    self._show(header, index, record)
            except PeerError as error:
                raise ToolError(f"{path}: the batch at offset {header.base_offset} cannot be read: {error}") from error
        left = min(os.path.getsize(path), self.bytes_max) - end
        if left > 0 and self.bytes_max == _INT_MAX:
            print(f"Found {left} invalid bytes at the end of {os.path.basename(path)}")

    def report(self) -> int:
        """Says where offsets are missing, as after compaction. That is no failure, in Kafka's tool neither."""
        for path, gaps in self._gaps.items():
            print(f"Non-consecutive offsets in {os.path.abspath(path)}", file=sys.stderr)
            for before, after in sorted(gaps.items()):
                print(f"  {before} is followed by {after}", file=sys.stderr)
        return 0

    def _show(self, header: BatchHeader, index: int, record: Record) -> None:
        line = bytearray()
        control = bool(header.attributes & CONTROL)
        if self.metadata:
            line += _record_line(header, index, record, control).encode()
        if self.contents and not control:
            prefix = b" " if self.metadata else b"| "
            key, value = self.parser(record)
            if key is not None:
                line += prefix + b"key: " + key
                prefix = b" "
            if value is not None:
                line += prefix + b"payload: " + value
        sys.stdout.flush()
        sys.stdout.buffer.write(bytes(line) + b"\n")
        sys.stdout.buffer.flush()


def base_offset_of(path: str) -> int:
    name = os.path.basename(path).partition(".")[0]
    if not name.isdigit():
        raise ToolError(f"{path}: a log's files are named after their first offset, like 00000000000000000000.log")
    return int(name)


def batches(path: str, bytes_max: int = _INT_MAX) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Position, header and bytes of each whole batch; what is torn at the end is left out."""
    with open(path, "rb") as file:
        size = min(os.fstat(file.fileno()).st_size, bytes_max)
        position = 0
        while position + HEADER_BYTES <= size:
            file.seek(position)
            header = read_header(file.read(HEADER_BYTES))
            if header.magic != MAGIC or header.size < HEADER_BYTES or position + header.size > size:
                return
            file.seek(position)
            yield position, header, file.read(header.size)
            position += header.size


def _batch_line(position: int, header: BatchHeader, batch: bytes) -> str:
    attributes = header.attributes
    sequence = header.base_sequence
    last_sequence = -1 if sequence < 0 else (sequence + header.last_offset_delta) & _INT_MAX
    horizon = f"OptionalLong[{header.base_timestamp}]" if attributes & DELETE_HORIZON else "OptionalLong.empty"
    codec = attributes & CODEC_MASK
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {sequence} lastSequence: {last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {_flag(attributes & TRANSACTIONAL)} isControl: {_flag(attributes & CONTROL)} "
        f"deleteHorizonMs: {horizon} position: {position} {_stamp_type(attributes)}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} "
        f"compresscodec: {_CODECS[codec] if codec < len(_CODECS) else codec} crc: {header.crc} "
        f"isvalid: {_flag(crc32c(batch[CRC_END:]) == header.crc)}"
    )


def _record_line(header: BatchHeader, index: int, record: Record, control: bool) -> str:
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & _INT_MAX
    names = ",".join(name for name, _ in record.headers)
    line = (
        f"| offset: {record.offset} {_stamp_type(header.attributes)}: {record.timestamp} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{names}]"
    )
    return line + _marker(record) if control else line


def _marker(record: Record) -> str:
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        return " controlType: UNKNOWN(-1)"
    kind = _CONTROL_KEY.unpack_from(record.key)[1]
    if kind in _MARKERS and record.value is not None:
        epoch = _CONTROL_VALUE.unpack_from(record.value)[1]
        return f" endTxnMarker: {_MARKERS[kind]} coordinatorEpoch: {epoch}"
    return f" controlType: UNKNOWN({kind})"


def _flag(value: object) -> str:
    return "true" if value else "false"


def _stamp_type(attributes: int) -> str:
    return "LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def record_parser(given: GivenOptions) -> Parser:
    if given.has("offsets-decoder"):
        from headrace.cli.kafka.internal_records import group_record

        return _internal(group_record)
    if given.has("transaction-log-decoder"):
        from headrace.cli.kafka.internal_records import transaction_record

        return _internal(transaction_record)
    keys, values = _decoder(given.one("key-decoder-class")), _decoder(given.one("value-decoder-class"))
    return lambda record: (
        None if record.key is None else keys(record.key),
        None if record.value is None else values(record.value),
    )


def _decoder(name: str) -> Decoder:
    short = name.rpartition(".")[2]
    if short in ("StringDecoder", "DefaultDecoder"):
        return bytes
    if short in ("IntegerDecoder", "LongDecoder"):
        shape = struct.Struct(">i" if short == "IntegerDecoder" else ">q")
        return lambda data: str(shape.unpack_from(data)[0]).encode() if len(data) >= shape.size else data
    raise ToolError(f"{name}: Java classes cannot be loaded; known are StringDecoder, IntegerDecoder and LongDecoder")


def _internal(read: Callable[[bytes, bytes | None], tuple[int, Any, int, Any]]) -> Parser:
    from headrace.cli.kafka.internal_records import UnknownType, dense_json, open_protocol

    def parse(record: Record) -> tuple[bytes | None, bytes | None]:
        if record.key is None:
            raise ToolError(
                f"Failed to decode message at offset {record.offset} using the specified decoder (message had a "
                "missing key)"
            )
        try:
            number, key, version, value = read(record.key, record.value)
        except UnknownType as error:
            return f"Unknown record type {error.number} at offset {record.offset}, skipping.".encode(), None
        except ValueError as error:
            return f"Error at offset {record.offset}, skipping. {error}".encode(), None
        shown = dense_json({"type": str(number), "data": key}).encode()
        if record.value is None:
            return shown, b"<DELETE>"
        return shown, dense_json({"version": str(version), "data": open_protocol(value)}).encode()

    return parse
