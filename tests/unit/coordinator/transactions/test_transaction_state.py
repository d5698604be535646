"""One transactional id: who may do what when, and what is written first."""

import itertools

import pytest

from headrace.coordinator.transactions.state import LEGAL_PREVIOUS, TransactionMachine
from headrace.coordinator.transactions.transaction import Refuse, TransactionState, Write, WriteMarkers
from headrace.core.errors import InvariantError, StorageError
from headrace.protocol import error_codes as codes

A, B, C = ("a", 0), ("b", 1), ("c", 2)
PID, NEXT_PID = 7, 1000
NOW, TIMEOUT = 50_000, 10_000
V1, V2 = 0, 2


def no_id():
    raise AssertionError("no new producer id is needed here")


def next_id():
    return NEXT_PID


class Id:
    """A machine whose writes succeed, and whose markers are written only when the test says so."""

    def __init__(self, epoch=0):
        self.machine = TransactionMachine.new("t", PID, TIMEOUT, NOW)
        self.mark = None
        self.do(self.machine.init_producer_id(TIMEOUT, None, NOW, no_id))
        self.set(producer_epoch=epoch)

    def set(self, **changes):
        self.machine.current = self.machine.current.__class__(
            **{name: getattr(self.now, name) for name in self.now.__slots__} | changes
        )

    @property
    def now(self):
        return self.machine.current

    def do(self, verdict):
        assert isinstance(verdict, Write), verdict
        self.mark = self.machine.written(NOW)
        return self.mark

    def init(self, expected=None, new_id=no_id, timeout_ms=TIMEOUT):
        return self.machine.init_producer_id(timeout_ms, expected, NOW, new_id)

    def add(self, *partitions, epoch=None, pid=PID, version=V2, now=NOW):
        epoch = self.now.producer_epoch if epoch is None else epoch
        return self.machine.add_partitions(pid, epoch, partitions, version, now)

    def end(self, commit=True, epoch=None, pid=PID, version=V2, new_id=no_id):
        epoch = self.now.producer_epoch if epoch is None else epoch
        return self.machine.end(pid, epoch, commit, version, NOW + 5, new_id)

    def complete(self):
        assert self.machine.written(NOW + 9) is None

    def begin(self, *partitions, **how):
        self.do(self.add(*(partitions or (A,)), **how))
        return self

    def finish(self, commit=True, **how):
        self.do(self.end(commit, **how))
        self.complete()
        return self


@pytest.fixture
def txn():
    return Id()


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_state_says_what_may_come_before_it():
    assert set(LEGAL_PREVIOUS) == set(TransactionState)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(TransactionState, TransactionState)))
def test_a_step_that_the_table_does_not_have_is_a_bug(before, after):
    txn = Id()
    txn.set(state=before)
    if before in LEGAL_PREVIOUS[after]:
        txn.machine._write(after)
    else:
        with pytest.raises(InvariantError, match="cannot follow"):
            txn.machine._write(after)


def test_two_steps_at_a_time_are_a_bug(txn):
    txn.add(A)
    with pytest.raises(InvariantError, match="pending"):
        txn.machine._write(TransactionState.ONGOING)


# ── getting an epoch ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_epoch_is_0_and_each_init_takes_the_next(txn):
    assert (txn.now.producer_id, txn.now.producer_epoch, txn.now.state) == (PID, 0, TransactionState.EMPTY)
    txn.do(txn.init(timeout_ms=99))
    assert (txn.now.producer_id, txn.now.producer_epoch, txn.now.timeout_ms) == (PID, 1, 99)


def test_nothing_changes_before_it_is_written(txn):
    txn.init()
    assert txn.now.producer_epoch == 0
    txn.machine.failed()
    assert txn.now.producer_epoch == 0
    txn.do(txn.init())
    assert txn.now.producer_epoch == 1


def test_init_during_a_write_must_wait(txn):
    txn.add(A)
    assert txn.init() == Refuse(codes.CONCURRENT_TRANSACTIONS)


def test_init_aborts_an_ongoing_transaction_under_the_next_epoch(txn):
    mark = txn.begin(A, B).do(txn.init())
    assert mark == WriteMarkers(PID, 1, False, (A, B), txn.machine.pending)
    assert txn.now.state is TransactionState.PREPARE_ABORT
    assert txn.init() == Refuse(codes.CONCURRENT_TRANSACTIONS)
    txn.complete()
    txn.do(txn.init())
    assert (txn.now.state, txn.now.producer_epoch) == (TransactionState.EMPTY, 2)


def test_a_producer_that_gives_its_epoch_gets_the_next_and_the_same_again_if_it_retries(txn):
    txn.do(txn.init((PID, 0)))
    assert txn.now.producer_epoch == 1
    txn.do(txn.init((PID, 0)))
    assert txn.now.producer_epoch == 1


@pytest.mark.parametrize("expected", [(PID, 3), (PID, 6), (PID + 1, 5), (-5, 5)])
def test_a_producer_that_gives_another_epoch_or_id_is_fenced(expected):
    assert Id(epoch=5).init(expected) == Refuse(codes.PRODUCER_FENCED)


def test_a_producer_whose_transactional_id_was_forgotten_may_go_on_with_a_new_one():
    machine = TransactionMachine.new("t", PID, TIMEOUT, NOW)
    verdict = machine.init_producer_id(TIMEOUT, (99, 5), NOW, no_id)
    assert (verdict.next.producer_id, verdict.next.producer_epoch) == (PID, 0)


def test_after_the_last_epoch_comes_a_new_producer_id():
    txn = Id(epoch=32766)
    txn.do(txn.init(new_id=next_id))
    assert (txn.now.producer_id, txn.now.producer_epoch, txn.now.previous_producer_id) == (NEXT_PID, 0, PID)


def test_a_retry_of_getting_a_new_producer_id_gets_the_same_one():
    txn = Id(epoch=32766)
    txn.do(txn.init((PID, 32766), new_id=next_id))
    txn.do(txn.init((PID, 32766)))
    assert (txn.now.producer_id, txn.now.producer_epoch) == (NEXT_PID, 0)
    assert txn.init((PID, 32765)) == Refuse(codes.PRODUCER_FENCED)


def test_no_new_producer_id_leaves_everything_as_it_was():
    def broken():
        raise StorageError("no")

    txn = Id(epoch=32766)
    with pytest.raises(StorageError):
        txn.init(new_id=broken)
    assert txn.machine.pending is None


# ── adding ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_partition_begins_the_transaction_and_others_join_it(txn):
    txn.do(txn.add(A, now=NOW))
    txn.do(txn.add(B, C, now=NOW + 7))
    assert txn.now.state is TransactionState.ONGOING
    assert list(txn.now.partitions) == [A, B, C]
    assert (txn.now.started_ms, txn.now.updated_ms) == (NOW, NOW + 7)


def test_what_is_in_the_transaction_already_need_not_be_written(txn):
    assert txn.begin(A, B).add(B, A) == Refuse(codes.NONE)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"pid": PID + 1}, codes.INVALID_PRODUCER_ID_MAPPING),
        ({"epoch": 4}, codes.PRODUCER_FENCED),
        ({"epoch": 6}, codes.PRODUCER_FENCED),
    ],
)
def test_only_the_current_producer_may_add(how, code):
    assert Id(epoch=5).add(A, **how) == Refuse(code)


def test_nothing_is_added_while_a_write_or_the_markers_are_under_way(txn):
    txn.add(A)
    assert txn.add(B) == Refuse(codes.CONCURRENT_TRANSACTIONS)
    txn.machine.written(NOW)
    txn.do(txn.end())
    assert txn.add(B) == Refuse(codes.CONCURRENT_TRANSACTIONS)


def test_a_batch_is_allowed_only_into_a_partition_of_the_transaction(txn):
    txn.begin(A)
    assert txn.machine.verify(PID, 0, A) == codes.NONE
    assert txn.machine.verify(PID, 0, B) == codes.TRANSACTION_ABORTABLE
    assert txn.machine.verify(PID + 1, 0, A) == codes.INVALID_PRODUCER_ID_MAPPING
    assert txn.machine.verify(PID, 1, A) == codes.PRODUCER_FENCED
    txn.end(version=V1)
    assert txn.machine.verify(PID, 0, A) == codes.NONE  # the outcome is not decided yet
    txn.machine.written(NOW)
    assert txn.machine.verify(PID, 0, A) == codes.CONCURRENT_TRANSACTIONS
    txn.complete()
    assert txn.machine.verify(PID, 0, A) == codes.TRANSACTION_ABORTABLE


# ── ending: the epoch stays ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("commit", "decided", "complete"),
    [
        (True, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
        (False, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
    ],
)
def test_version_1_ends_a_transaction_under_its_own_epoch(txn, commit, decided, complete):
    mark = txn.begin(A, B, version=V1).do(txn.end(commit, version=V1))
    assert mark == WriteMarkers(PID, 0, commit, (A, B), txn.machine.pending)
    assert txn.now.state is decided
    assert txn.end(commit, version=V1) == Refuse(codes.CONCURRENT_TRANSACTIONS)
    txn.complete()
    assert (txn.now.state, txn.now.producer_epoch, dict(txn.now.partitions)) == (complete, 0, {})
    assert txn.end(commit, version=V1) == Refuse(codes.NONE)
    assert txn.end(not commit, version=V1) == Refuse(codes.INVALID_TXN_STATE)


def test_version_1_cannot_end_what_has_not_begun(txn):
    assert txn.end(True, version=V1) == Refuse(codes.INVALID_TXN_STATE)
    assert txn.end(False, version=V1) == Refuse(codes.INVALID_TXN_STATE)


@pytest.mark.parametrize("version", [V1, V2])
def test_only_the_current_producer_may_end(version):
    txn = Id(epoch=5).begin()
    assert txn.end(epoch=4, version=version) == Refuse(codes.PRODUCER_FENCED)
    assert txn.end(epoch=6, version=version) == Refuse(codes.PRODUCER_FENCED)
    assert txn.end(pid=1, version=version) == Refuse(codes.INVALID_PRODUCER_ID_MAPPING)


# ── ending: the epoch moves ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("commit", [True, False])
def test_version_2_ends_a_transaction_under_the_next_epoch(txn, commit):
    mark = txn.begin(A).do(txn.end(commit))
    assert mark == WriteMarkers(PID, 1, commit, (A,), txn.machine.pending)
    assert (mark.complete.producer_id, mark.complete.producer_epoch) == (PID, 1)
    assert txn.end(commit, epoch=0) == Refuse(codes.CONCURRENT_TRANSACTIONS)
    txn.complete()
    assert txn.now.producer_epoch == 1
    assert txn.end(commit, epoch=0) == Refuse(codes.NONE)
    assert txn.end(not commit, epoch=0) == Refuse(codes.INVALID_TXN_STATE)


def test_version_2_cannot_commit_what_has_not_begun(txn):
    assert txn.end(True) == Refuse(codes.INVALID_TXN_STATE)
    txn.begin().finish()
    assert txn.end(True) == Refuse(codes.INVALID_TXN_STATE)
    txn.begin().finish(False)
    assert txn.end(True) == Refuse(codes.INVALID_TXN_STATE)


def test_version_2_may_abort_what_has_not_begun_to_get_the_next_epoch(txn):
    mark = txn.do(txn.end(False))
    assert (mark.partitions, txn.now.started_ms) == ((), NOW + 5)
    txn.complete()
    assert (txn.now.state, txn.now.producer_epoch) == (TransactionState.COMPLETE_ABORT, 1)
    txn.finish(False)
    assert txn.now.producer_epoch == 2
    txn.begin().finish(True).finish(False)
    assert txn.now.producer_epoch == 4


def test_the_end_of_the_last_epoch_gives_a_new_producer_id_once_the_old_ones_markers_are_written():
    txn = Id(epoch=32766).begin(A)
    mark = txn.do(txn.end(new_id=next_id))
    assert (mark.producer_id, mark.producer_epoch) == (PID, 32767)
    assert (mark.complete.producer_id, mark.complete.producer_epoch) == (NEXT_PID, 0)
    assert (txn.now.producer_id, txn.now.next_producer_id) == (PID, NEXT_PID)
    txn.complete()
    assert (txn.now.producer_id, txn.now.producer_epoch, txn.now.next_producer_id) == (NEXT_PID, 0, -1)
    assert txn.end(epoch=32766) == Refuse(codes.NONE)
    assert txn.end(False, epoch=32766) == Refuse(codes.INVALID_TXN_STATE)
    assert txn.end(epoch=32765) == Refuse(codes.INVALID_PRODUCER_ID_MAPPING)


def test_the_last_epoch_can_still_be_fenced():
    txn = Id(epoch=32766).begin(A)
    mark = txn.do(txn.init(new_id=next_id))
    assert (mark.producer_epoch, mark.complete.producer_id) == (32767, NEXT_PID)


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_transaction_times_out_after_its_producers_timeout_and_its_producer_is_fenced(txn):
    txn.begin(A)
    assert txn.machine.time_out(NOW + TIMEOUT, no_id) is None
    mark = txn.do(txn.machine.time_out(NOW + TIMEOUT + 1, no_id))
    assert mark == WriteMarkers(PID, 1, False, (A,), txn.machine.pending)
    txn.complete()
    assert txn.add(B, epoch=0) == Refuse(codes.PRODUCER_FENCED)
    assert txn.end(True, epoch=0) == Refuse(codes.INVALID_TXN_STATE)


def test_what_is_not_open_or_is_being_written_does_not_time_out(txn):
    assert txn.machine.time_out(NOW * 9, no_id) is None
    txn.begin().end()
    assert txn.machine.time_out(NOW * 9, no_id) is None


@pytest.mark.parametrize("commit", [None, True, False])
def test_an_id_that_is_idle_expires(txn, commit):
    if commit is not None:
        txn.begin().finish(commit)
    last = txn.now.updated_ms
    assert not txn.machine.expire(last + 99, 100)
    assert txn.machine.expire(last + 100, 100)
    assert txn.init() == Refuse(codes.CONCURRENT_TRANSACTIONS)
    assert not txn.machine.expire(last + 100, 100)
    txn.machine.failed()
    assert txn.machine.expire(last + 100, 100)


def test_an_open_transaction_never_expires(txn):
    assert not txn.begin().machine.expire(NOW * 99, 1)


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [V1, V2])
def test_a_decided_transaction_is_carried_on_after_a_crash(txn, commit, version):
    before = txn.begin(A, B).do(txn.end(commit, version=version))
    loaded = TransactionMachine(txn.now)
    after = loaded.resume(NOW + 5)
    assert (after.producer_id, after.producer_epoch, after.commit) == (
        before.producer_id,
        before.producer_epoch,
        commit,
    )
    assert after.partitions == (A, B)
    assert loaded.add_partitions(PID, txn.now.producer_epoch, [A], V2, NOW) == Refuse(codes.CONCURRENT_TRANSACTIONS)
    loaded.written(NOW)
    assert loaded.current.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)


def test_what_was_not_decided_is_not_carried_on(txn):
    assert TransactionMachine(txn.begin().now).resume(NOW) is None
    assert TransactionMachine(txn.finish().now).resume(NOW) is None


def test_a_second_outcome_is_never_possible(txn):
    txn.begin().do(txn.end(True))
    for verdict in (txn.end(False, epoch=0), txn.end(False), txn.end(False, version=V1), txn.init(), txn.add(B)):
        assert isinstance(verdict, Refuse)
        assert verdict.code != codes.NONE
    assert txn.machine.time_out(NOW * 99, no_id) is None
    assert not txn.machine.expire(NOW * 99, 1)
