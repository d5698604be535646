"""Delta tables for tests: written by deltalake, or by hand where deltalake cannot write what Spark can."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import duckdb
from deltalake import CommitProperties, write_deltalake

from headrace.tables.provenance import Provenance


def write(path: Path | str, sql: str, *, made_by: Provenance | None = None, **options: Any) -> None:
    """The rows of a query, appended as one commit."""
    if made_by is not None:
        options["commit_properties"] = CommitProperties(custom_metadata={"userMetadata": made_by.encode()})
    options.setdefault("mode", "append")
    with duckdb.connect() as connection:
        write_deltalake(str(path), connection.sql(sql), **options)


def write_parquet(path: Path, sql: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(f"copy ({sql}) to '{path}' (format parquet)")
    return path.stat().st_size


def field(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def add_action(
    path: Path, file: str, rows: int | None, partition: dict[str, str | None] | None = None
) -> dict[str, Any]:
    from urllib.parse import unquote

    return {
        "path": file,
        "partitionValues": partition or {},
        "size": (path / unquote(file)).stat().st_size,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
        **({} if rows is None else {"stats": json.dumps({"numRecords": rows})}),
    }


def write_log(
    path: Path,
    *,
    fields: list[dict[str, Any]],
    adds: list[dict[str, Any]],
    partitions: list[str] | None = None,
    protocol: dict[str, Any] | None = None,
    configuration: dict[str, str] | None = None,
) -> None:
    """Version 0 of a table, action by action, as the protocol has them."""
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE", "engineInfo": "by hand"}},
        {"protocol": protocol or {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "00000000-0000-0000-0000-000000000001",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": partitions or [],
                "configuration": configuration or {},
                "createdTime": 1_700_000_000_000,
            }
        },
        *({"add": each} for each in adds),
    ]
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")


_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def deletion_vector(rows: list[int]) -> dict[str, Any]:
    """An inline vector that deletes some of the first 65,536 rows of a file."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + struct.pack(f"<{len(rows)}H", *sorted(rows))
    data = struct.pack("<iqi", 1681511377, 1, 0) + bitmap
    padded = data + b"\0" * (-len(data) % 4)
    text = base64.b85encode(padded).translate(bytes.maketrans(_B85, _Z85)).decode()
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(rows)}


def write_with_deletions(path: Path, *, rows: int, deleted: list[int]) -> None:
    """A table of the integers below `rows`, of which some were deleted."""
    write_parquet(path / "a.parquet", f"select i::integer i from range({rows}) t(i)")
    add = add_action(path, "a.parquet", rows)
    if deleted:
        add["deletionVector"] = deletion_vector(deleted)
    write_log(
        path,
        fields=[field("i", "integer")],
        adds=[add],
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        },
    )
