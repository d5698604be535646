"""The small files of a pipeline, wherever its tables lie: in a directory, or in an object store by its URL.

Spark and deltalake read and write tables and checkpoints themselves. This is for what lies beside them: the catalog, a
version's code, how a run goes, the counts of expectations. A file is read whole and replaced whole; a reader never
sees half of one.
"""

import os
import shutil
from typing import Protocol

from headrace.core.files import Disk


class TableStorage(Protocol):
    @property
    def replace_s_min(self) -> float:
        """How often a file may be replaced that nobody waits for: an object store counts its requests."""

    def read(self, path: str) -> bytes | None:
        """None when there is none."""

    def write(self, path: str, data: bytes, *, safe: bool = True) -> None:
        """With `safe` it outlives the machine's power; what is written again in a moment need not."""

    def append(self, path: str, data: bytes) -> int:
        """How many bytes the file then has."""

    def names(self, path: str) -> list[str]:
        """What lies directly in a directory, in order; nothing when there is none."""

    def changed_ms(self, path: str) -> int: ...

    def remove_tree(self, path: str) -> None: ...


class Directories:
    """The file system of this machine."""

    replace_s_min = 0.0

    def read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, data: bytes, *, safe: bool = True) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if safe:
            Disk().replace_file(path, data)
            return
        temporary = f"{path}.{os.getpid()}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)

    def append(self, path: str, data: bytes) -> int:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab") as file:
            file.write(data)
            return file.tell()

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def changed_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)


_DIRECTORIES = Directories()


def is_url(path: str) -> bool:
    return "://" in path


def storage_of(path: str) -> TableStorage:
    if not is_url(path):
        return _DIRECTORIES
    from headrace.tables.object_store import object_store

    return object_store(path)


def is_delta(path: str) -> bool:
    """Whether a Delta table lies there."""
    if is_url(path):
        return bool(storage_of(path).names(f"{path}/_delta_log"))
    return os.path.isdir(os.path.join(path, "_delta_log"))
