"""The log directories of a broker (JBOD), and the logs in them.

Each directory has Kafka's layout: `.lock`, `meta.properties`, the checkpoints, a directory for each partition. A new
log goes to the directory that holds the fewest. A directory that fails takes its logs offline; the rest go on.
"""

import logging
import os
import shutil
import uuid
from collections.abc import Callable

from headrace.core.clock import Clock
from headrace.core.errors import OperatorError, StorageError
from headrace.core.files import BROKEN_ERRORS, Disk, OpenFiles
from headrace.log import checkpoints
from headrace.log.clean_notes import Key, NoteTaker, PartitionNote, forget_notes, read_notes, write_notes
from headrace.log.compaction.checkpoint import read_clean_offsets
from headrace.log.config import NEVER, LogConfig
from headrace.log.directory import DELETE_SUFFIX, LogDirectory
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.log_writer import LogWriter
from headrace.log.offset_checkpoints import Gathered, gather, write
from headrace.log.opening import recover
from headrace.log.partition_log import PartitionLog
from headrace.log.recovered import Recovered
from headrace.log.segment import Segment
from headrace.log.snapshots import Snapshots
from headrace.log.truncation import lower_recovery_point, recovery_point_below, start_again_at, truncate_to

logger = logging.getLogger(__name__)

DEFAULT_CONFIG = LogConfig()
SYNCED_ONE_BY_ONE_MAX = 64  # more logs than this are flushed together, by their file system


class LogStore:
    def __init__(self, paths: tuple[str, ...], files: OpenFiles, writer: LogWriter, clock: Clock) -> None:
        self.files = files
        self.writer = writer
        self.clock = clock
        self.directories = [LogDirectory(path, files.disk) for path in paths]
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.on_offline: Callable[[LogDirectory], None] = lambda directory: None
        self.recovered_bytes = 0  # read again at this start, since the last stop was not clean
        self.cut_bytes = 0  # of it, torn and taken away
        self.poison_batches = 0  # of it, stored with records that make no sense, and kept
        self._notes: dict[LogDirectory, dict[Key, PartitionNote]] = {}  # of the last clean close
        self._gone: dict[Key, int] = {}  # logs whose directory is missing, and where they ended
        self._saving = False  # the checkpoints, in a thread
        writer.on_failure = self.failed

    # ── opening and closing ──────────────────────────────────────────────────────────────────────────────────────

    def open(self, node_id: int) -> None:
        """Locks and loads every directory. One that cannot be used is offline; if none can, that is an error."""
        failures = []
        for directory in self.directories:
            try:
                directory.open(node_id)
                self._load(directory)
            except OperatorError as error:
                if directory.locked_by_other or len(self.directories) == 1:
                    self.close_locks()
                    raise
                failures.append(str(error))
                self.take_offline(directory, str(error))
            except OSError as error:
                failure = f"{directory.path}: {error.strerror}; repair the disk, or take it out of log.dirs"
                failures.append(failure)
                self.take_offline(directory, failure)
        for directory in self.directories:
            if directory.online:
                self._miss(directory)
        if not all(directory.was_clean or directory.is_new for directory in self.directories if directory.online):
            read, cut = self.recovered_bytes, self.cut_bytes
            logger.info(
                "the last stop was not clean: read %d bytes of %d logs again, cut %d", read, len(self.logs), cut
            )
        if not any(directory.online for directory in self.directories):
            self.close_locks()
            raise OperatorError("; ".join(failures))

    def _load(self, directory: LogDirectory) -> None:
        recovery_points = directory.read_offsets(checkpoints.RECOVERY_POINT_FILE)
        start_offsets = directory.read_offsets(checkpoints.LOG_START_FILE)
        clean_offsets = read_clean_offsets(directory)
        high_watermarks = self._high_watermarks(directory)
        notes = read_notes(directory, self.files.disk) if directory.was_clean else {}
        self._notes[directory] = notes
        points_changed_ns = directory.changed_ns(checkpoints.RECOVERY_POINT_FILE)
        for topic, index, path in directory.partitions():
            key = (topic, index)
            point = recovery_points.get(key, 0)
            found = recover(
                path,
                self.files,
                clean=directory.was_clean and key in recovery_points,
                recovery_point=point,
                start_offset=start_offsets.get(key, 0),
                index_interval_bytes=DEFAULT_CONFIG.index_interval_bytes,
                now_ms=self.clock.now_ms(),
                clean_offset=clean_offsets.get(key, 0),
                high_watermark=high_watermarks.get(key, 0),
                note=notes.get(key),
                points_changed_ns=points_changed_ns,
                book=directory.damage,
                keeps_end=topic.startswith("__"),  # a coordinator must see that its journal is damaged
            )
            self.recovered_bytes += found.bytes_read
            self.cut_bytes += found.bytes_cut
            self.poison_batches += found.poison_batches
            log = self._log(topic, index, directory, path, DEFAULT_CONFIG, found, point, high_watermarks.get(key, 0))
            log.touched = not directory.was_clean or found.bytes_read > 0 or found.reread
            self.logs[key] = log
        directory.forget_clean_stop()
        forget_notes(directory, self.files.disk)

    def _miss(self, directory: LogDirectory) -> None:
        """Says which logs of the note are in no directory; where they ended, new ones of their name begin."""
        for (topic, index), note in self._notes.get(directory, {}).items():
            if (topic, index) not in self.logs and note.end_offset > note.start_offset:
                gone = os.path.join(directory.path, f"{topic}-{index}")
                why = "the directory of the partition is missing"
                directory.damage.lost(f"{topic}-{index}", gone, note.start_offset, note.end_offset, why)
                self._gone[topic, index] = note.end_offset

    def _high_watermarks(self, directory: LogDirectory) -> dict[Key, int]:
        """They decide whether a start offset is believable, and what a replica may show before it hears of others."""
        try:
            return directory.read_offsets(checkpoints.HIGH_WATERMARK_FILE)
        except OperatorError as error:
            logger.warning("a damaged file is ignored and will be replaced: %s", error)
            return {}

    def _log(
        self,
        topic: str,
        index: int,
        directory: LogDirectory,
        path: str,
        config: LogConfig,
        found: Recovered,
        flushed_offset: int,
        high_watermark: int = 0,
    ) -> PartitionLog:
        directory.log_count += 1
        return PartitionLog(
            topic=topic,
            index=index,
            directory=directory,
            path=path,
            config=config,
            files=self.files,
            writer=self.writer,
            segments=found.segments,
            start_offset=found.start_offset,
            end_offset=found.end_offset,
            flushed_offset=min(flushed_offset, found.end_offset),
            epochs=found.epochs,
            snapshots=found.snapshots,
            open_transactions=found.snapshots.open_transactions(),
            high_watermark=high_watermark,
        )

    def flush_recovered(self) -> None:
        """What was found after a crash and lies above the recovery point is visible now. Where a topic promises that
        what is visible was flushed, it must be."""
        for log in self.logs.values():
            if (
                log.config.flush_messages != NEVER
                and log.directory.online
                and log.flush_state.flushed_offset < log.end_offset
            ):
                try:
                    for file in log.flush_state.files(log):
                        self.files.disk.sync(file.fd)
                        file.unpin()
                    log.flush_state.flushed_offset = log.end_offset
                except OSError as error:
                    logger.warning("%s", self.failed(log, error))

    def close(self) -> None:
        """A clean stop: everything flushed, every index written, so that the next start reads nothing."""
        unclean: set[LogDirectory] = set()
        for directory in self.directories:
            if directory.online:
                dirty = [log for log in self.logs.values() if log.directory is directory and log.touched]
                try:
                    self._flush_all(directory, dirty)
                except OSError as error:
                    unclean.add(directory)
                    logger.warning("%s: not stopped cleanly: %s", directory.path, error)
        unclean |= self.save_checkpoints()
        for directory in self.directories:
            if directory.online and directory not in unclean:
                self._note(directory)
        self.files.close()
        for directory in self.directories:
            if directory.online and directory not in unclean:
                try:
                    directory.mark_clean_stop()
                except OSError as error:
                    logger.warning("%s: not stopped cleanly: %s", directory.path, error.strerror)
        self.close_locks()

    def _note(self, directory: LogDirectory) -> None:
        """What the files look like now. Without a note the next start trusts them, as Kafka does."""
        disk = self.files.disk
        taker = NoteTaker(disk, self._notes.get(directory, {}))
        try:
            logs = ((key, log) for key, log in self.logs.items() if log.directory is directory)
            write_notes(directory, disk, {key: taker.note(log) for key, log in logs})
        except OSError as error:
            logger.warning("%s: its files could not be noted: %s", directory.path, error.strerror)

    def _flush_all(self, directory: LogDirectory, logs: list[PartitionLog]) -> None:
        disk = self.files.disk
        unflushed = [log for log in logs if log.recovery_point < log.end_offset]
        for log in logs:
            if log.next_offset != log.end_offset:
                raise OSError(f"{log.name}: {log.next_offset - log.end_offset} records were staged and never written")
            log.checkpoint()
        if len(unflushed) > SYNCED_ONE_BY_ONE_MAX:
            disk.sync_file_system(directory.path)
        else:
            for log in unflushed:
                for file in log.flush_state.files(log):
                    disk.sync(file.fd)
                    file.unpin()
        for log in logs:
            log.flush_state.all_on_disk(log.end_offset)

    def close_locks(self) -> None:
        for directory in self.directories:
            directory.release()

    def damage(self) -> dict[str, object]:
        """What is known to be damaged or lost, as metrics; `damage` is in words, for /health."""
        books = [directory.damage for directory in self.directories]
        unreadable: dict[tuple[str, ...], int] = {}
        lost: dict[tuple[str, ...], int] = {}
        for book in books:
            unreadable.update(book.counts(lost=False))
            lost.update(book.counts(lost=True))
        return {
            "damaged_batches": unreadable,
            "lost_records": lost,
            "damage": [entry.text for book in books for entry in book.entries],
        }

    # ── logs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, topic: str, index: int) -> PartitionLog | None:
        return self.logs.get((topic, index))

    @property
    def is_complete(self) -> bool:
        """False if a log that is not found may be in a directory that is away, or that an empty one stands in for."""
        return all(directory.online and not directory.is_new for directory in self.directories)

    def create(self, topic: str, index: int, topic_id: uuid.UUID, config: LogConfig) -> PartitionLog:
        online = [directory for directory in self.directories if directory.online]
        if not online:
            raise StorageError(f"{topic}-{index}: no log directory is online; repair one and start again")
        directory = min(online, key=lambda each: each.log_count)
        path = os.path.join(directory.path, f"{topic}-{index}")
        disk = self.files.disk
        try:
            disk.make_directory(path)
            metadata = checkpoints.encode_partition_metadata(topic_id)
            disk.write_file(os.path.join(path, checkpoints.PARTITION_METADATA_FILE), metadata.encode())
            base = self._gone.pop((topic, index), 0)  # no offset is given twice
            segment = Segment(path, base, self.files, self.clock.now_ms())  # its files come with the first record
        except OSError as error:
            raise StorageError(f"{topic}-{index}: could not make {path}: {error.strerror}") from error
        found = Recovered(
            segments=[segment],
            end_offset=base,
            start_offset=base,
            epochs=LeaderEpochs(),
            snapshots=Snapshots(path, disk, []),
        )
        log = self._log(topic, index, directory, path, config, found, base)
        self.logs[topic, index] = log
        return log

    def delete(self, log: PartitionLog) -> None:
        """Gone at once for clients; its files go in the background."""
        self.logs.pop((log.topic, log.index), None)
        self._gone.pop((log.topic, log.index), None)
        log.directory.log_count -= 1
        log.deleted = True
        log.directory.damage.forget(log.name)
        gone = StorageError(f"{log.name}: was deleted")
        log.appender.undo([], gone)
        log.flush_state.failed(log, gone)
        log.fail_uncommitted(gone)
        for segment in log.segments:
            segment.deleted = True
            segment.forget_files()
        log.let_go()
        doomed = os.path.join(log.directory.path, f"{log.topic[:150]}-{log.index}.{uuid.uuid4().hex}{DELETE_SUFFIX}")
        try:
            self.files.disk.rename(log.path, doomed)
        except OSError as error:
            self.take_offline(log.directory, f"{log.path}: could not be renamed: {error.strerror}")
            return
        self.remove_later(doomed)

    def truncate(self, cuts: dict[PartitionLog, int]) -> None:
        """Cuts each log at its offset: see `truncation`. The recovery points are on the disk before anything goes."""
        for log, offset in cuts.items():
            lower_recovery_point(log, recovery_point_below(log, offset))
        failed = self.save_checkpoints()
        for log, offset in cuts.items():
            if log.directory in failed:
                raise StorageError(f"{log.name}: not cut, its recovery point could not be written; free the disk")
            try:
                truncate_to(log, offset)
            except OSError as error:
                raise self.failed(log, error) from error

    def start_again(self, log: PartitionLog, offset: int) -> None:
        """Empties a log that begins again at `offset`."""
        lower_recovery_point(log, 0)
        if log.directory in self.save_checkpoints():
            raise StorageError(f"{log.name}: not emptied, its recovery point could not be written; free the disk")
        try:
            start_again_at(log, offset, self.clock.now_ms())
        except OSError as error:
            raise self.failed(log, error) from error

    def remove_later(self, path: str) -> None:
        self.writer.in_background(lambda: shutil.rmtree(path, ignore_errors=True))

    def failed(self, log: PartitionLog, error: OSError) -> StorageError:
        """A read, write or flush went wrong. If it is the disk that fails, its directory is offline from now on."""
        if error.errno in BROKEN_ERRORS:
            self.take_offline(log.directory, f"{log.path}: {error.strerror or error}")
        return StorageError(
            f"{log.name}: {error.strerror or error}; free or repair the disk {log.directory.path} is on"
        )

    def take_offline(self, directory: LogDirectory, reason: str) -> None:
        if directory.error is None:
            directory.error = reason
            logger.error("log directory %s is offline: %s", directory.path, reason)
            self.on_offline(directory)

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────

    def save_checkpoints(self) -> set[LogDirectory]:
        """Here and now. Returns the directories where it did not work."""
        gathered = gather(self.directories, self.logs.values())
        return self._saved(gathered, write(gathered))

    def save_checkpoints_soon(self) -> None:
        """In a thread. If the disk is so slow that the last time is not over, this time is left out."""
        if self._saving:
            return
        self._saving = True
        gathered = gather(self.directories, self.logs.values())
        failures: dict[LogDirectory, OSError] = {}

        def saved(_: object, error: BaseException | None) -> None:
            self._saving = False
            if error is not None:
                raise error
            self._saved(gathered, failures)

        self.writer.in_thread(lambda: failures.update(write(gathered)), saved)

    def _saved(self, gathered: Gathered, failures: dict[LogDirectory, OSError]) -> set[LogDirectory]:
        for directory, error in failures.items():
            logger.warning("%s: its checkpoints could not be written: %s", directory.path, error.strerror)
            if error.errno in BROKEN_ERRORS:
                self.take_offline(directory, f"{directory.path}: {error.strerror}")
        for directory, offsets in gathered.items():
            if not directory.online or directory in failures:
                continue
            for log, point in offsets.logs:
                if log.touched and not log.deleted:
                    log.snapshots.keep_from(point)
        return set(failures)


__all__ = ["Disk", "LogDirectory", "LogStore"]
