import errno
import os
import uuid

import pytest
from harness import NODE_ID, NOW_MS, TOPIC_ID, Bench, batch, offsets_of

from headrace.core.errors import OperatorError, StorageError
from headrace.core.files import OpenFiles
from headrace.log import checkpoints
from headrace.log.clean_notes import TAIL_BYTES
from headrace.log.config import LogConfig
from headrace.log.directory import CLEAN_STOP_FILE
from headrace.log.log_writer import LogWriter
from headrace.log.store import LogStore


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "a")
    yield made
    made.crash()


@pytest.fixture
def jbod(tmp_path):
    made = Bench(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    yield made
    made.crash()


def another(bench):
    files = OpenFiles(bench.disk, 8)
    writer = LogWriter(bench.disk, bench.writers.submit, bench.flushers.submit)
    return LogStore(bench.paths, files, writer, bench.clock)


# ── making and finding ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_log_is_empty_and_is_found(bench):
    log = bench.create("orders", 3)
    assert bench.store.find("orders", 3) is log
    assert bench.store.find("orders", 4) is None
    assert (log.start_offset, log.high_watermark, log.end_offset) == (0, 0, 0)
    assert os.path.basename(log.path) == "orders-3"
    with open(os.path.join(log.path, checkpoints.PARTITION_METADATA_FILE)) as file:
        assert checkpoints.decode_partition_metadata(file.read(), "f") == TOPIC_ID


@pytest.mark.parametrize("clean", [True, False])
def test_logs_are_found_again_whatever_their_names(bench, clean):
    for topic, index in (("a", 0), ("a-1", 0), ("a", 1), ("with.dots_and-dashes-7", 12), ("empty", 5)):
        log = bench.create(topic, index)
        if topic != "empty":
            bench.append(log, batch(index + 1))
    if clean:
        bench.stop()
    else:
        bench.crash()
    bench.start()
    assert {key: log.end_offset for key, log in bench.store.logs.items()} == {
        ("a", 0): 1,
        ("a-1", 0): 1,
        ("a", 1): 2,
        ("with.dots_and-dashes-7", 12): 13,
        ("empty", 5): 0,
    }


def test_other_things_in_the_directory_are_left_alone(bench):
    bench.create()
    for name in ("notes", "no-number", "lost+found"):
        os.mkdir(os.path.join(bench.paths[0], name))
    open(os.path.join(bench.paths[0], "file-3"), "w").close()
    bench.stop()
    bench.start()
    assert list(bench.store.logs) == [("t", 0)]
    assert os.path.isdir(os.path.join(bench.paths[0], "notes"))


def test_a_log_that_cannot_be_made_is_an_error_and_is_not_there(bench):
    bench.disk.fail("make_directory", errno.ENOSPC)
    with pytest.raises(StorageError, match=r"t-0: could not make .*: No space left"):
        bench.create()
    assert bench.store.find("t", 0) is None
    bench.disk.repair()
    assert bench.append(bench.create(), batch()) == [0]


def test_a_directory_belongs_to_one_broker_at_a_time(bench):
    with pytest.raises(OperatorError, match="another process"):
        another(bench).open(NODE_ID)


def test_a_directory_of_another_broker_is_refused(bench):
    bench.store.directories[0].write_meta("cluster", NODE_ID)
    bench.stop()
    with pytest.raises(OperatorError, match=r"belongs to broker 1, not 2; set broker.id=1"):
        another(bench).open(2)
    bench.start()
    assert bench.store.directories[0].cluster_id == "cluster"


def test_a_directory_that_is_only_formatted_is_new(bench):
    bench.store.directories[0].write_meta("cluster", NODE_ID)
    bench.crash()
    bench.start()
    directory = bench.store.directories[0]
    assert (directory.cluster_id, directory.is_new) == ("cluster", True)
    bench.create()
    bench.crash()
    bench.start()
    assert not bench.store.directories[0].is_new


# ── stopping and starting ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_start_after_a_clean_stop_reads_no_record_and_keeps_everything(bench):
    log = bench.create(segment_bytes=5000)
    bench.append(log, *[batch(3, size=300, producer=8, sequence=3 * i) for i in range(20)])
    log.delete_records_before(10)
    segments = [(segment.base_offset, segment.size) for segment in log.segments]
    log = bench.restart(clean=True)
    assert bench.store.recovered_bytes == 0
    assert bench.disk.bytes_read < 500 + TAIL_BYTES + 1000  # the checkpoints, and what the note is compared with
    assert (log.start_offset, log.high_watermark, log.end_offset) == (10, 60, 60)
    assert [(segment.base_offset, segment.size) for segment in log.segments] == segments
    offset, answer = bench.stage(log, batch(3, size=300, producer=8, sequence=60))
    assert offset == 60
    bench.writer.end_of_turn()
    assert answer.ok
    assert offsets_of(log)[-3:] == [60, 61, 62]


def test_a_clean_stop_is_believed_once(bench):
    marker = os.path.join(bench.paths[0], CLEAN_STOP_FILE)
    bench.append(bench.create(), batch())
    bench.stop()
    assert os.path.exists(marker)
    bench.start()
    assert not os.path.exists(marker)
    bench.append(bench.log, batch(5, size=3000))
    bench.crash()
    bench.start()
    assert bench.log.end_offset == 6


@pytest.mark.parametrize("count", [2, 70])
def test_a_clean_stop_is_marked_only_when_all_that_it_trusts_is_on_the_disk(bench, count):
    logs = [bench.create(index=i, segment_bytes=10_000) for i in range(count)]
    for log in logs:
        bench.append(log, *[batch(size=3000, producer=1, sequence=i) for i in range(5)])
    marked = []
    rename = bench.disk.rename

    def watched(old, new):
        if new.endswith(CLEAN_STOP_FILE):
            marked.append({os.path.basename(path) for path in bench.disk.unsynced})
        rename(old, new)

    bench.disk.rename = watched
    bench.stop()
    assert marked == [{name for name in marked[0] if name in ("leader-epoch-checkpoint", "partition.metadata")}]
    bench.start()


@pytest.mark.parametrize(
    "fault",
    [
        ("sync", ".log"),
        ("write", ".timeindex"),
        ("write", ".snapshot"),
        ("write", checkpoints.RECOVERY_POINT_FILE),
        ("write", CLEAN_STOP_FILE),
    ],
)
def test_a_stop_that_could_not_write_everything_is_not_marked_as_clean(bench, fault):
    log = bench.create()
    sent = [batch(size=3000, producer=1, sequence=i, timestamp=NOW_MS + i) for i in range(6)]
    bench.append(log, *sent[:5])
    bench.housekeeping.checkpoint()
    bench.append(log, sent[5])
    bench.disk.fail(fault[0], errno.ENOSPC, path=fault[1])
    bench.stop()
    bench.disk.repair()
    assert not os.path.exists(os.path.join(bench.paths[0], CLEAN_STOP_FILE))
    bench.start()
    assert offsets_of(bench.log) == list(range(6))
    assert bench.log.producers.get(1).batches[-1].last_sequence == 5


def test_an_untouched_log_costs_a_stop_nothing(bench):
    for index in range(5):
        bench.append(bench.create(index=index), batch())
    bench.stop()
    bench.start()
    bench.disk.synced.clear()
    bench.append(bench.log, batch())
    bench.stop()
    assert [name for name in bench.disk.synced if name.endswith(".log")] == ["00000000000000000000.log"]
    bench.start()


def test_recovery_points_that_are_lost_mean_a_full_check(bench):
    bench.append(bench.create(), batch(5))
    bench.stop()
    os.unlink(os.path.join(bench.paths[0], checkpoints.RECOVERY_POINT_FILE))
    bench.start()
    assert bench.store.recovered_bytes > 0
    assert bench.log.end_offset == 5


def test_checkpoints_say_what_kafka_expects(bench):
    log = bench.create()
    bench.append(log, batch(7))
    log.delete_records_before(3)
    bench.stop()
    for name, offset in (
        (checkpoints.RECOVERY_POINT_FILE, 7),
        (checkpoints.LOG_START_FILE, 3),
        (checkpoints.HIGH_WATERMARK_FILE, 7),
    ):
        with open(os.path.join(bench.paths[0], name)) as file:
            assert file.read() == f"0\n1\nt 0 {offset}\n"
    bench.start()


def test_a_broken_checkpoint_is_never_taken_for_an_empty_one(bench):
    bench.create()
    bench.stop()
    path = os.path.join(bench.paths[0], checkpoints.LOG_START_FILE)
    with open(path, "w") as file:
        file.write("0\n5\nt 0")
    with pytest.raises(OperatorError, match=checkpoints.LOG_START_FILE):
        bench.start()
    os.unlink(path)
    bench.start()


# ── deleting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_deleted_log_is_gone_at_once_and_its_files_soon(bench):
    bench.flushers.held = True
    log = bench.create()
    bench.append(log, batch())
    bench.store.delete(log)
    assert bench.store.find("t", 0) is None
    assert not os.path.exists(log.path)
    (doomed,) = [name for name in os.listdir(bench.paths[0]) if name.endswith("-delete")]
    assert doomed.startswith("t-0.")
    bench.flushers.run()
    assert doomed not in os.listdir(bench.paths[0])


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start(bench):
    bench.flushers.held = True
    bench.append(bench.create(), batch())
    bench.store.delete(bench.log)
    bench.crash()
    bench.start()
    assert bench.store.logs == {}
    assert not [name for name in os.listdir(bench.paths[0]) if name.endswith("-delete")]


def test_a_log_of_the_same_name_starts_anew(bench):
    bench.append(bench.create(), batch(5))
    bench.store.delete(bench.log)
    log = bench.create()
    assert bench.append(log, batch(2)) == [0]
    assert offsets_of(bench.restart(clean=False)) == [0, 1]


def test_the_longest_topic_name_can_be_deleted(bench):
    log = bench.create("n" * 249, 100)
    bench.store.delete(log)
    assert bench.store.directories[0].online


# ── several directories ──────────────────────────────────────────────────────────────────────────────────────────────


def test_logs_are_spread_over_the_directories(jbod):
    for index in range(9):
        jbod.create(index=index)
    assert [directory.log_count for directory in jbod.store.directories] == [3, 3, 3]
    for log in [log for log in jbod.store.logs.values() if log.directory is jbod.store.directories[1]]:
        jbod.store.delete(log)
    logs = [jbod.create("more", index) for index in range(3)]
    assert {log.directory for log in logs} == {jbod.store.directories[1]}


def test_the_spread_is_counted_anew_after_a_restart(jbod):
    for index in range(4):
        jbod.create(index=index)
    jbod.stop()
    jbod.start()
    assert [directory.log_count for directory in jbod.store.directories] == [2, 1, 1]
    assert jbod.create("x").directory is not jbod.store.directories[0]


def test_a_directory_that_fails_takes_its_own_logs_offline_and_no_other(jbod):
    logs = [jbod.create(index=i) for i in range(3)]
    for log in logs:
        jbod.append(log, batch())
    seen = []
    jbod.store.on_offline = seen.append
    jbod.disk.fail("write", errno.EIO, path=f"{logs[1].directory.path}/")
    answers = [jbod.stage(log, batch())[1] for log in logs]
    jbod.writer.end_of_turn()
    assert [answer.ok for answer in answers] == [True, False, True]
    assert seen == [logs[1].directory]
    assert [directory.online for directory in jbod.store.directories] == [True, False, True]
    assert jbod.create("new").directory is not logs[1].directory
    jbod.housekeeping.checkpoint()
    jbod.housekeeping.delete_expired()
    jbod.append(logs[0], batch())


@pytest.mark.parametrize("late", [False, True])
def test_a_stop_with_a_broken_directory_is_clean_for_the_others(jbod, late):
    logs = [jbod.create(index=i) for i in range(3)]
    sequences = iter(range(10))
    for checkpoints_before in (1, 1, 0):
        sequence = next(sequences)
        for log in logs:
            jbod.append(log, batch(producer=1, sequence=sequence))
        for _ in range(checkpoints_before):
            jbod.housekeeping.checkpoint()
    directory = f"{logs[1].directory.path}/"
    if late:  # everything is flushed, but the recovery points cannot be written
        jbod.disk.fail("rename", errno.EIO, path=f"{directory}recovery-point")
        jbod.disk.fail("unlink", errno.EIO, path=directory)
        jbod.housekeeping.checkpoint()
    else:
        for operation in ("write", "sync", "open", "unlink", "rename", "truncate"):
            jbod.disk.fail(operation, errno.EIO, path=directory)
        jbod.stage(logs[1], batch())
    jbod.stop()
    clean = [os.path.exists(os.path.join(path, CLEAN_STOP_FILE)) for path in jbod.paths]
    assert clean == [True, False, True]
    jbod.disk.repair()
    jbod.start()
    assert [jbod.store.find("t", i).end_offset for i in range(3)] == [3, 3, 3]


@pytest.mark.parametrize("operation", ["read", "open", "make_directory"])
def test_a_directory_that_is_broken_at_the_start_is_offline_and_the_rest_go_on(jbod, operation):
    for index in range(3):
        jbod.append(jbod.create(index=index), batch())
    jbod.stop()
    jbod.disk.fail(operation, errno.EIO, path=jbod.paths[1])
    jbod.start()
    assert [directory.online for directory in jbod.store.directories] == [True, False, True]
    assert [jbod.store.find("t", i) is None for i in (0, 2)] == [False, False]
    assert not jbod.store.is_complete
    jbod.disk.repair()


def test_without_any_directory_there_is_no_broker(jbod):
    jbod.stop()
    jbod.disk.fail("make_directory", errno.EACCES)
    with pytest.raises(OperatorError, match="cannot be written"):
        jbod.start()
    jbod.disk.repair()
    jbod.start()


def test_with_every_directory_offline_nothing_can_be_made(jbod):
    for directory in jbod.store.directories:
        jbod.store.take_offline(directory, "broken")
        jbod.store.take_offline(directory, "again")
    assert {directory.error for directory in jbod.store.directories} == {"broken"}
    with pytest.raises(StorageError, match="no log directory is online"):
        jbod.store.create("t", 0, uuid.uuid4(), LogConfig())


def test_a_log_that_cannot_be_renamed_away_takes_its_directory_offline(jbod):
    log = jbod.create()
    jbod.disk.fail("rename", errno.EIO)
    jbod.store.delete(log)
    assert not log.directory.online
    assert jbod.store.find("t", 0) is None


def test_the_room_on_a_directorys_disk_is_told(bench):
    total, usable = bench.store.directories[0].usable()
    assert 0 < usable <= total
