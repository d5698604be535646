"""A log among replicas: who waits for what, batches taken as the leader has them, and the end cut off again."""

import random
import shutil

import pytest
from harness import NOW_MS, Answer, Bench, batch, read_all
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import InvariantError, PeerError, StorageError
from headrace.log.transactions import Marker, build_marker
from headrace.protocol import error_codes as codes
from headrace.protocol.batch import STAMP
from headrace.protocol.records import Record, build_batch


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def produce(bench, log, data, *, until_committed=True):
    answer = Answer()
    view = memoryview(bytearray(data))
    log.appender.stage(view, 0, len(view), NOW_MS, answer, until_committed=until_committed, transactional=True)
    bench.writer.end_of_turn()
    return answer


# ── written, settled, committed ──────────────────────────────────────────────────────────────────────────────────────


def test_acks_1_waits_for_this_broker_and_acks_all_for_the_high_watermark(bench):
    log = bench.create()
    log.share()
    seen = []
    log.on_settled.append(lambda: seen.append(("settled", log.settled_offset)))
    log.on_high_watermark.append(lambda: seen.append(("committed", log.high_watermark)))
    one, every = produce(bench, log, batch(2), until_committed=False), produce(bench, log, batch(3))
    assert (one.ok, every.pending, every.is_written) == (True, True, True)
    assert (log.end_offset, log.settled_offset, log.high_watermark) == (5, 5, 0)
    assert read_all(log) == []
    log.commit_to(4)
    assert every.pending
    log.commit_to(5)
    assert every.ok
    assert seen == [("settled", 2), ("settled", 5), ("committed", 4), ("committed", 5)]


def test_the_high_watermark_never_falls_and_never_passes_the_end(bench):
    log = bench.create()
    log.share()
    produce(bench, log, batch(3))
    log.commit_to(2)
    log.commit_to(1)
    assert log.high_watermark == 2
    with pytest.raises(InvariantError):
        log.commit_to(4)


def test_what_is_not_committed_fails_when_another_broker_leads(bench):
    log = bench.create()
    log.share()
    answer = produce(bench, log, batch())
    log.fail_uncommitted(PeerError(codes.NOT_LEADER_OR_FOLLOWER, "elsewhere"))
    assert answer.failed
    log.commit_to(1)
    assert len(answer.calls) == 1


def test_a_duplicate_waits_for_the_commit_of_the_first(bench):
    log = bench.create()
    log.share()
    first = produce(bench, log, batch(2, producer=7, sequence=0))
    again = produce(bench, log, batch(2, producer=7, sequence=0))
    quick = produce(bench, log, batch(2, producer=7, sequence=0), until_committed=False)
    assert (first.pending, again.pending, quick.ok, log.end_offset) == (True, True, True, 2)
    log.commit_to(2)
    assert (first.ok, again.ok) == (True, True)
    assert produce(bench, log, batch(2, producer=7, sequence=0)).ok


def test_the_high_watermark_comes_from_its_checkpoint_where_there_are_other_replicas(bench):
    log = bench.create()
    log.share()
    produce(bench, log, batch(6))
    log.commit_to(4)
    bench.stop()
    bench.start()
    assert bench.log.high_watermark == 6
    bench.log.share()
    assert (bench.log.high_watermark, bench.log.end_offset) == (4, 6)


def test_a_flush_that_the_topic_asks_for_comes_before_this_replica_vouches(bench):
    log = bench.create(flush_messages=1)
    log.share()
    bench.flushers.held = True
    produce(bench, log, batch(2))
    assert (log.end_offset, log.settled_offset) == (2, 0)
    bench.flushers.run()
    assert (log.end_offset, log.settled_offset, log.high_watermark) == (2, 2, 0)


def test_an_epoch_is_on_the_disk_before_it_writes(bench):
    log = bench.create()
    produce(bench, log, batch(2))
    log.begin_epoch(4)
    with open(f"{log.path}/leader-epoch-checkpoint") as file:
        assert file.read().split() == ["0", "2", "0", "0", "4", "2"]
    assert (log.leader_epoch, log.end_offset_for_epoch(0)) == (4, (0, 2))
    produce(bench, log, batch(1))
    log = bench.restart(clean=False)
    assert (log.leader_epoch, log.end_offset_for_epoch(0), log.end_offset_for_epoch(4)) == (4, (0, 2), (4, 3))


# ── batches as the leader has them ───────────────────────────────────────────────────────────────────────────────────


def replicate(bench, follower, batches, epoch=9):
    """Batches as bytes, each with the offset and epoch that its leader gave it, all in one turn."""
    answers = []
    for data in batches:
        answers.append(Answer())
        view = memoryview(bytearray(data))
        follower.appender.stage_replica(view, 0, len(view), epoch, NOW_MS, answers[-1])
    bench.writer.end_of_turn()
    return answers


def stamped(data, offset, epoch=0):
    data = bytearray(data)
    STAMP.pack_into(data, 0, offset, len(data) - 12, epoch)
    return data


def test_a_follower_takes_the_leaders_bytes_as_they_are_gaps_included(bench):
    follower = bench.create()
    follower.share()
    sent = [stamped(batch(2), 0, 1), stamped(batch(3), 7, 1), stamped(batch(1), 10, 4)]
    assert all(answer.ok for answer in replicate(bench, follower, sent))
    assert (follower.end_offset, follower.high_watermark, follower.epochs.entries) == (11, 0, [(1, 0), (4, 10)])
    follower.commit_to(11)
    assert [data for _, data in read_all(follower)] == [bytes(data) for data in sent]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (stamped(batch(), 1), "below the end 2"),
        (stamped(batch(), 2, 6), "a batch of epoch 6"),
        (stamped(batch(), 2, -1), "none can be negative"),
        (stamped(batch(), 2)[:-1], "bytes"),
        (stamped(batch(), 2)[:-1] + b"?", "CRC"),
    ],
)
def test_what_no_leader_sends_is_refused_and_nothing_changes(bench, data, says):
    follower = bench.create()
    replicate(bench, follower, [stamped(batch(2), 0)], 5)
    view = memoryview(bytearray(data))
    with pytest.raises(PeerError, match=says):
        follower.appender.stage_replica(view, 0, len(view), 5, NOW_MS, Answer())
    assert (follower.next_offset, follower.end_offset) == (2, 2)


def test_a_write_that_fails_leaves_the_epoch_to_the_next_one(bench):
    follower = bench.create()
    bench.disk.fail("write", times=1)
    assert replicate(bench, follower, [stamped(batch(), 0, 3)])[0].failed
    bench.disk.repair()
    follower.directory.error = None
    assert replicate(bench, follower, [stamped(batch(), 0, 3)])[0].ok
    assert follower.epochs.entries == [(3, 0)]


# ── any history, copied and cut ──────────────────────────────────────────────────────────────────────────────────────


def history(random_source, count):
    """Batches of a leader: plain, idempotent and transactional ones, markers, several epochs. Each with its offset."""
    made, offset, epoch = [], 0, 0
    sequences, open_ones = {}, set()
    for _ in range(count):
        if random_source.random() < 0.15:
            epoch += random_source.randint(1, 2)
        kind = random_source.choice(["plain", "idempotent", "transactional", "transactional", "marker"])
        size = random_source.choice([10, 300, 3000])
        timestamp = NOW_MS + random_source.randint(-5000, 5000)
        if kind == "marker" and open_ones:
            producer = random_source.choice(sorted(open_ones))
            open_ones.discard(producer)
            data = build_marker(Marker(producer, 0, 1, random_source.random() < 0.5), timestamp)
            records = 1
        else:
            records = random_source.randint(1, 4)
            values = [Record(at, timestamp, None, bytes(size)) for at in range(records)]
            if kind == "plain" or kind == "marker":
                data = build_batch(values)
            else:
                producer = random_source.randint(1, 3) + (10 if kind == "transactional" else 0)
                sequence = sequences.get(producer, 0)
                sequences[producer] = sequence + records
                transactional = kind == "transactional"
                if transactional:
                    open_ones.add(producer)
                data = build_batch(
                    values, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=transactional
                )
        made.append(stamped(data, offset, epoch))
        offset += records
    return made


def everything(log):
    """All that a log knows, and all that its files say."""
    log.commit_to(log.end_offset)
    return {
        "batches": [data for _, data in read_all(log)],
        "end": log.end_offset,
        "producers": log.producers.encode_snapshot(),
        "open": dict(log.open_transactions),
        "stable": log.last_stable_offset,
        "aborted": sorted(log.aborted_between(0, log.end_offset)),
        "epochs": log.epochs.entries,
        "latest": log.max_timestamp(),
        "times": [log.offset_for_time(NOW_MS + at) for at in (-6000, 0, 2500, 6000)],
        "size": log.size_bytes,
    }


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), end=st.sampled_from(["as it is", "killed", "stopped"]))
def test_a_log_that_was_cut_anywhere_is_one_that_never_had_more(tmp_path_factory, seed, end):
    source = random.Random(seed)
    folder = tmp_path_factory.mktemp("cut")
    config = {"segment_bytes": source.choice([2000, 9000, 1 << 30]), "index_interval_bytes": source.choice([1, 4096])}
    bench, oracle = Bench(folder / "cut"), Bench(folder / "oracle")
    log, other = bench.create(**config), oracle.create(**config)
    log.share()
    other.share()
    batches = history(source, source.randint(1, 40))
    for data in batches:
        replicate(bench, log, [data], 99)
        if source.random() < 0.2:
            log.checkpoint()
            bench.writer.flush(log)
    kept = source.randint(0, len(batches) - 1)
    first_gone = int.from_bytes(batches[kept][:8], "big")
    last_gone = first_gone + int.from_bytes(batches[kept][23:27], "big")
    bench.store.truncate({log: source.randint(first_gone, last_gone)})
    for data in batches[:kept]:
        replicate(oracle, other, [data], 99)
    assert everything(log) == everything(other)
    if end != "as it is":
        log = bench.restart(clean=end == "stopped", **config)
        log.share()
        assert everything(log) == everything(other)
    for data in batches[kept:]:
        replicate(bench, log, [data], 99)
        replicate(oracle, other, [data], 99)
    assert everything(log) == everything(other)
    bench.crash()
    oracle.crash()
    shutil.rmtree(folder)


def test_the_recovery_point_is_lowered_before_anything_is_cut(bench):
    log = bench.create()
    log.share()
    produce(bench, log, batch(3))
    produce(bench, log, batch(3))
    log.checkpoint()
    bench.writer.flush(log)
    bench.store.save_checkpoints()
    bench.disk.fail("truncate")
    with pytest.raises(StorageError):
        bench.store.truncate({log: 3})
    bench.disk.repair()
    log = bench.restart(clean=False)
    assert log.end_offset == 6
    assert log.directory.damage.entries == []
    bench.store.truncate({log: 3})
    assert bench.restart(clean=False).end_offset == 3
    assert bench.log.directory.damage.entries == []


def test_a_log_under_way_is_not_cut(bench):
    log = bench.create()
    bench.stage(log, batch(3))
    with pytest.raises(InvariantError):
        bench.store.truncate({log: 1})


def test_an_emptied_log_goes_on_where_its_leader_begins(bench):
    log = bench.create(segment_bytes=300)
    log.share()
    for sequence in range(5):
        produce(bench, log, batch(1, size=200, producer=3, sequence=sequence))
    bench.store.start_again(log, 40)
    assert (log.start_offset, log.high_watermark, log.end_offset, len(log.segments)) == (40, 40, 40, 1)
    assert (len(log.producers), log.epochs.entries) == (0, [])
    assert replicate(bench, log, [stamped(batch(2), 40, 3)])[0].ok
    log = bench.restart(clean=False)
    assert (log.start_offset, log.end_offset) == (40, 42)
    assert log.directory.damage.entries == []
