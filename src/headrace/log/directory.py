"""One log directory: whose it is, whether it was stopped cleanly, and what its checkpoint files say."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator

from headrace.core.errors import OperatorError
from headrace.core.files import DirectoryLock, Disk
from headrace.log import checkpoints
from headrace.log.damage import DamageBook

CLEAN_STOP_FILE = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
# What `kafka-storage.sh format` (ours and Kafka's) leaves in a directory that no broker has used yet.
FORMATTED_FILES = frozenset({".lock", checkpoints.META_PROPERTIES_FILE, "bootstrap.checkpoint"})


class LogDirectory:
    def __init__(self, path: str, disk: Disk) -> None:
        self.path = os.path.abspath(path)
        self.error: str | None = None
        self.log_count = 0
        self.was_clean = False
        self.locked_by_other = False
        self.is_new = False  # nothing was ever kept here, though it may be formatted
        self.cluster_id = ""
        self.directory_id = str(uuid.uuid4())  # of a new one; else what it says itself
        self.damage = DamageBook()
        self._disk = disk
        self._lock: DirectoryLock | None = None

    @property
    def online(self) -> bool:
        return self.error is None

    def open(self, node_id: int) -> None:
        try:
            self._disk.make_directory(self.path)
            self._lock = DirectoryLock(self.path)
        except OSError as error:
            raise OperatorError(
                f"{self.path}: cannot be written ({error.strerror}); give another directory with --data or log.dirs"
            ) from error
        except OperatorError:
            self.locked_by_other = True
            raise
        self._read_meta(node_id)
        self.was_clean = os.path.exists(os.path.join(self.path, CLEAN_STOP_FILE))

    def _read_meta(self, node_id: int) -> None:
        file = os.path.join(self.path, checkpoints.META_PROPERTIES_FILE)
        data = self._disk.read_file(file)
        if data is None:
            self.is_new = True
            return
        meta = checkpoints.decode_meta_properties(checkpoints.text_of(data, file), file)
        if meta.node_id != node_id:
            raise OperatorError(
                f"{self.path}: belongs to broker {meta.node_id}, not {node_id}; set broker.id={meta.node_id},"
                " or give another directory"
            )
        self.cluster_id = meta.cluster_id
        self.directory_id = str(meta.directory_id or self.path)
        self.is_new = FORMATTED_FILES.issuperset(os.listdir(self.path))

    def write_meta(self, cluster_id: str, node_id: int) -> None:
        """Once, when the directory is new."""
        if not self.cluster_id:
            own = uuid.UUID(self.directory_id)
            meta = checkpoints.MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=own)
            file = os.path.join(self.path, checkpoints.META_PROPERTIES_FILE)
            self._disk.replace_file(file, checkpoints.encode_meta_properties(meta).encode())
            self.cluster_id = cluster_id

    def partitions(self) -> Iterator[tuple[str, int, str]]:
        """(topic, partition, path) of each log here. What was being deleted when the broker stopped is removed."""
        for entry in os.scandir(self.path):
            if not entry.is_dir():
                continue
            if entry.name.endswith(DELETE_SUFFIX):
                shutil.rmtree(entry.path, ignore_errors=True)
                continue
            topic, _, index = entry.name.rpartition("-")
            if topic and index.isascii() and index.isdigit():
                yield topic, int(index), entry.path

    def mark_clean_stop(self) -> None:
        self._disk.replace_file(os.path.join(self.path, CLEAN_STOP_FILE), b'{"version":0,"brokerEpoch":-1}\n')

    def forget_clean_stop(self) -> None:
        """From now on a stop without `mark_clean_stop` is a crash."""
        self._disk.unlink(os.path.join(self.path, CLEAN_STOP_FILE))

    def read_offsets(self, name: str) -> dict[tuple[str, int], int]:
        file = os.path.join(self.path, name)
        data = self._disk.read_file(file)
        return checkpoints.decode_offsets(checkpoints.text_of(data, file), file) if data else {}

    def changed_ns(self, name: str) -> int:
        """When one of its files was last written; 0 if it is not there."""
        try:
            return os.stat(os.path.join(self.path, name)).st_mtime_ns
        except FileNotFoundError:
            return 0

    def write_offsets(self, name: str, offsets: dict[tuple[str, int], int], *, sync: bool = True) -> None:
        self._disk.replace_file(os.path.join(self.path, name), checkpoints.encode_offsets(offsets).encode(), sync=sync)

    def usable(self) -> tuple[int, int]:
        """(total bytes, usable bytes) of the disk that it is on; -1 where that cannot be told."""
        try:
            usage = shutil.disk_usage(self.path)
        except OSError:
            return -1, -1
        return usage.total, usage.free

    def release(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock.release()
            self._lock = None
