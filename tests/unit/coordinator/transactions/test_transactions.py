"""The loop around the machines: nothing is answered before it is written, and what is decided is carried to its end."""

import random

import pytest
from group_harness import finish

from headrace.coordinator.journal import MemoryJournal
from headrace.coordinator.placing import partition_for
from headrace.coordinator.transactions.coordinator import Transactions
from headrace.coordinator.transactions.ledger import MARKERS_PER_TURN
from headrace.coordinator.transactions.records import decode_key, decode_value
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.core.clock import ManualClock
from headrace.core.errors import OperatorError, StorageError
from headrace.protocol import error_codes as codes

A, B = ("a", 0), ("b", 1)
V1, V2 = 0, 2
TIMEOUT = 60_000
EPOCH = 3  # of the leader


class Timer:
    def __init__(self, at, callback):
        self.at, self.callback = at, callback

    def cancel(self):
        self.callback = None


class World:
    """A disk and a clock that outlive the coordinators on them."""

    def __init__(self):
        self.journal = MemoryJournal(4)
        self.clock = ManualClock()
        self.next_producer_id = 1000
        self.no_producer_ids = False
        self.markers = []  # those that were written
        self.holds_markers = False
        self.held_markers = []
        self.epoch = EPOCH
        self.restart()

    def restart(self, start=True):
        self.timers = []
        self.held_markers = []
        self.journal.crash()
        self.transactions = Transactions(
            self.journal,
            self.clock,
            self.call_later,
            TransactionSettings(),
            self.producer_id,
            self,
            lambda group_id: partition_for(group_id, 50),
        )
        loads = [self.transactions.load(partition, EPOCH) for partition in range(4)]
        if start:
            self.transactions.start()
            for load in loads:
                finish(load)

    def call_later(self, seconds, callback):
        timer = Timer(self.clock.now_ms() + seconds * 1000, callback)
        self.timers.append(timer)
        return timer

    def advance(self, ms):
        """In steps, so that timers run when they are due."""
        end = self.clock.now_ms() + ms
        while due := [each for each in self.timers if each.callback and each.at <= end]:
            timer = min(due, key=lambda each: each.at)
            self.timers.remove(timer)
            self.clock.advance(int(max(0, timer.at - self.clock.now_ms())))
            timer.callback()
        self.clock.advance(int(end - self.clock.now_ms()))

    def turn(self):
        """What is due now; what that sets for at once is due in the next turn."""
        due = [each for each in self.timers if each.callback and each.at <= self.clock.now_ms()]
        self.timers = [each for each in self.timers if each not in due]
        for timer in due:
            timer.callback()

    def producer_id(self):
        if self.no_producer_ids:
            raise StorageError("no")
        self.next_producer_id += 1
        return self.next_producer_id

    def write(self, end, partitions, done):
        marker = (end.producer_id, end.producer_epoch, end.commit, tuple(partitions))
        assert end.coordinator_epoch == self.epoch
        if self.holds_markers:
            self.held_markers.append((marker, done))
        else:
            self.markers.append(marker)
            done(None)

    def release_markers(self, error=None):
        held, self.held_markers = self.held_markers, []
        for marker, done in held:
            if error is None:
                self.markers.append(marker)
            done(error)

    # ── what a client says ───────────────────────────────────────────────────────────────────────────────────────

    def init(self, name="t", timeout_ms=TIMEOUT, expected=None):
        return ask(lambda answer: self.transactions.init_producer_id(name, timeout_ms, expected, answer))

    def add(self, producer, *partitions, version=V2, name="t"):
        return ask(lambda answer: self.transactions.add_partitions(name, *producer, partitions, version, answer))

    def end(self, producer, commit=True, version=V2, name="t"):
        return ask(lambda answer: self.transactions.end(name, *producer, commit, version, answer))

    def producer(self, name="t"):
        answer = self.init(name)[0]
        assert answer["error_code"] == codes.NONE
        return answer["producer_id"], answer["producer_epoch"]

    def state(self, name="t"):
        return self.transactions.describe([name])[0]["transaction_state"]

    def written(self):
        found = []
        for partition in range(4):
            for record in self.journal.read_all(partition):
                name = decode_key(record.key)
                found.append((name, record.value and decode_value(name, record.value).state.label))
        return found


def ask(call):
    """The answers so far: none, or one."""
    answers = []
    call(answers.append)
    return answers


@pytest.fixture
def world():
    return World()


def test_a_transaction_from_its_first_epoch_to_its_commit(world):
    producer = world.producer()
    assert producer == (1001, 0)
    assert world.add(producer, A, B) == [codes.NONE]
    assert world.end(producer) == [{"error_code": codes.NONE, "producer_id": 1001, "producer_epoch": 1}]
    assert world.markers == [(1001, 1, True, (A, B))]
    assert [state for _, state in world.written()] == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]


def test_an_older_client_is_not_told_a_new_epoch(world):
    producer = world.producer()
    world.add(producer, A, version=V1)
    assert world.end(producer, version=V1) == [{"error_code": codes.NONE}]
    assert world.markers == [(1001, 0, True, (A,))]


def test_nothing_is_answered_before_it_is_written(world):
    producer = world.producer()
    steps = [
        lambda: world.init("other"),
        lambda: world.add(producer, A),
        lambda: world.end(producer),
    ]
    for step in steps:
        world.journal.holds = True
        answers = step()
        assert answers == []
        world.journal.holds = False
        world.journal.release()
        assert len(answers) == 1


def test_what_could_not_be_written_did_not_happen_and_may_be_tried_again(world):
    producer = world.producer()
    for step in (lambda: world.add(producer, A), lambda: world.end(producer)):
        world.journal.fails = True
        before = world.state()
        failed = step()[0]
        assert (failed if isinstance(failed, int) else failed["error_code"]) == codes.COORDINATOR_NOT_AVAILABLE
        assert world.state() == before
        world.journal.fails = False
        done = step()[0]
        assert (done if isinstance(done, int) else done["error_code"]) == codes.NONE


def test_an_id_that_was_never_written_is_forgotten(world):
    world.journal.fails = True
    assert world.init()[0]["error_code"] == codes.COORDINATOR_NOT_AVAILABLE
    assert world.state() == ""
    assert finish(world.transactions.find())["transaction_states"] == []


def test_the_end_is_answered_before_the_markers_are_written(world):
    producer = world.producer()
    world.add(producer, A)
    world.holds_markers = True
    assert world.end(producer)[0]["error_code"] == codes.NONE
    assert world.state() == "PrepareCommit"
    world.release_markers()
    assert world.state() == "CompleteCommit"


MANY = [("many", index) for index in range(3 * MARKERS_PER_TURN - 1)]


def test_a_transaction_of_very_many_partitions_writes_its_markers_in_several_turns(world):
    producer = world.producer()
    world.add(producer, *MANY)
    assert world.end(producer)[0]["error_code"] == codes.NONE
    for turn in (1, 2):
        assert len(world.markers) == turn
        assert world.state() == "PrepareCommit"
        world.turn()
    assert world.state() == "CompleteCommit"
    assert all(len(partitions) <= MARKERS_PER_TURN for _, _, _, partitions in world.markers)
    assert [partition for _, _, _, partitions in world.markers for partition in partitions] == MANY


def test_markers_of_very_many_partitions_end_with_the_time_in_charge(world):
    producer = world.producer()
    world.add(producer, *MANY)
    world.end(producer)
    finish(world.transactions.unload(partition_for("t", 4), EPOCH + 1))
    world.advance(10_000)
    assert len(world.markers) == 1, "the rest is for the next coordinator to write"


def test_markers_bear_the_newest_epoch_of_their_coordinator(world):
    producer = world.producer()
    world.add(producer, A)
    world.epoch = EPOCH + 2
    assert world.transactions.load(partition_for("t", 4), world.epoch) is None, "it leads again, and need not read"
    world.end(producer)
    assert world.markers == [(1001, 1, True, (A,))]


def test_markers_are_tried_until_they_are_written(world):
    producer = world.producer()
    world.add(producer, A)
    world.holds_markers = True
    world.end(producer)
    for _ in range(3):
        world.release_markers(StorageError("no"))
        assert world.state() == "PrepareCommit"
        world.advance(1000)
    world.release_markers()
    assert world.state() == "CompleteCommit"
    assert len(world.markers) == 1


def test_the_completion_is_tried_until_it_is_written(world):
    producer = world.producer()
    world.add(producer, A)
    world.holds_markers = True
    world.end(producer)
    world.journal.fails = True
    world.release_markers()
    assert world.state() == "PrepareCommit"
    world.journal.fails = False
    world.advance(1000)
    assert world.state() == "CompleteCommit"
    assert len(world.markers) == 1


def test_what_is_added_during_the_markers_waits_for_them(world):
    producer = world.producer()
    world.add(producer, A)
    world.holds_markers = True
    world.end(producer)
    following = (producer[0], producer[1] + 1)
    waiting = [world.add(following, A), world.add(following, B)]
    assert waiting == [[], []]
    world.release_markers()
    assert waiting == [[codes.NONE], [codes.NONE]]
    assert [each["partitions"] for each in world.transactions.describe(["t"])[0]["topics"]] == [[0], [1]]
    world.advance(1000)
    assert waiting == [[codes.NONE], [codes.NONE]]


def test_what_is_added_during_the_markers_does_not_wait_for_long(world):
    producer = world.producer()
    world.add(producer, A)
    world.holds_markers = True
    world.end(producer)
    waiting = world.add((producer[0], producer[1] + 1), A)
    world.advance(99)
    assert waiting == []
    world.advance(1)
    assert waiting == [codes.CONCURRENT_TRANSACTIONS]
    world.release_markers()
    assert waiting == [codes.CONCURRENT_TRANSACTIONS]


def test_a_zombie_that_waited_is_fenced(world):
    zombie = world.producer()
    world.add(zombie, A)
    world.holds_markers = True
    assert world.init()[0]["error_code"] == codes.CONCURRENT_TRANSACTIONS
    waiting = world.add(zombie, B)
    world.release_markers()
    assert waiting == [codes.PRODUCER_FENCED]


def test_a_new_producer_aborts_what_the_last_one_left_open(world):
    zombie = world.producer()
    world.add(zombie, A)
    assert world.init()[0] == {
        "error_code": codes.CONCURRENT_TRANSACTIONS,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    assert world.markers == [(1001, 1, False, (A,))]
    assert world.producer() == (1001, 2)
    assert world.add(zombie, A) == [codes.PRODUCER_FENCED]
    assert world.end(zombie)[0]["error_code"] == codes.PRODUCER_FENCED
    assert world.transactions.verify("t", *zombie, *A) == codes.PRODUCER_FENCED


def test_offsets_are_a_partition_of_the_offsets_topic(world):
    producer = world.producer()
    answers = ask(lambda answer: world.transactions.add_offsets("t", *producer, "g1", answer))
    assert answers == [{"error_code": codes.NONE}]
    world.end(producer, version=V1)
    assert world.markers == [(1001, 0, True, (("__consumer_offsets", 42),))]


def test_a_batch_is_verified(world):
    producer = world.producer()
    verify = world.transactions.verify
    assert verify("t", *producer, *A) == codes.TRANSACTION_ABORTABLE
    assert ask(lambda answer: world.transactions.add_implicitly("t", *producer, [A], answer)) == [codes.NONE]
    assert verify("t", *producer, *A) == codes.NONE
    assert verify("other", *producer, *A) == codes.INVALID_PRODUCER_ID_MAPPING
    assert verify("", *producer, *A) == codes.INVALID_REQUEST


def test_what_is_not_known_is_said_to_be_so(world):
    assert world.add((1, 0), A, name="x") == [codes.INVALID_PRODUCER_ID_MAPPING]
    assert world.add((1, 0), A, name="") == [codes.INVALID_REQUEST]
    assert world.end((1, 0), name="x") == [{"error_code": codes.INVALID_PRODUCER_ID_MAPPING}]
    assert world.end((1, 0), name="") == [{"error_code": codes.INVALID_REQUEST}]
    assert world.transactions.describe(["x"])[0]["error_code"] == codes.TRANSACTIONAL_ID_NOT_FOUND
    assert world.transactions.describe([""])[0]["error_code"] == codes.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_has_bounds(world, timeout_ms):
    assert world.init(timeout_ms=timeout_ms)[0]["error_code"] == codes.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("name", ["", "é" * 16384])
def test_an_id_has_bounds(world, name):
    assert world.init(name)[0]["error_code"] == codes.INVALID_REQUEST


def test_without_a_producer_id_nothing_begins(world):
    world.no_producer_ids = True
    assert world.init()[0]["error_code"] == codes.COORDINATOR_NOT_AVAILABLE
    world.no_producer_ids = False
    assert world.producer() == (1001, 0)


def test_before_the_journal_is_read_everything_must_wait(world):
    transactions = Transactions(
        world.journal, world.clock, world.call_later, TransactionSettings(), world.producer_id, None, None
    )
    world.transactions = transactions
    assert world.init()[0]["error_code"] == codes.NOT_COORDINATOR, "it is not led here"
    transactions.load(partition_for("t", 4), 0)  # and nothing is read yet
    loading = codes.COORDINATOR_LOAD_IN_PROGRESS
    assert world.init()[0]["error_code"] == loading
    assert world.add((1, 0), A) == [loading]
    assert world.end((1, 0))[0]["error_code"] == loading
    assert transactions.verify("t", 1, 0, *A) == loading
    assert finish(transactions.find())["error_code"] == loading
    assert transactions.describe(["t"])[0]["error_code"] == loading


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_transaction_that_takes_too_long_is_aborted_under_a_new_epoch(world):
    producer = world.producer()
    world.add(producer, A)
    world.advance(TIMEOUT)
    assert world.markers == []
    world.advance(10_000)
    assert world.markers == [(1001, 1, False, (A,))]
    assert world.add(producer, B) == [codes.PRODUCER_FENCED]


def test_the_clock_of_a_transaction_goes_on_during_a_restart(world):
    world.add(world.producer(), A)
    world.clock.advance(TIMEOUT + 1)
    world.restart()
    world.advance(10_000)
    assert world.state() == "CompleteAbort"


def test_an_id_that_nobody_uses_expires(world):
    world.producer("idle")
    busy = world.producer("busy")
    week = 604_800_000
    world.clock.advance(week - 3_600_000)
    world.transactions.remove_expired()
    world.end(busy, False, name="busy")
    world.advance(3_600_000)
    world.transactions.remove_expired()
    assert (world.state("idle"), world.state("busy")) == ("", "CompleteAbort")
    assert ("idle", None) in world.written()
    world.restart()
    assert (world.state("idle"), world.state("busy")) == ("", "CompleteAbort")
    assert world.producer("idle") == (1003, 0)


def test_an_id_whose_tombstone_could_not_be_written_stays(world):
    world.producer()
    world.clock.advance(604_800_000)
    world.journal.fails = True
    world.transactions.remove_expired()
    assert world.state() == "Empty"
    world.journal.fails = False
    assert world.producer() == (1001, 1)


def test_what_waits_for_an_id_that_expires_is_told(world):
    producer = world.producer()
    world.clock.advance(604_800_000)
    world.journal.holds = True
    world.transactions.remove_expired()
    waiting = world.add(producer, A)
    world.journal.release()
    assert waiting == [codes.INVALID_PRODUCER_ID_MAPPING]


# ── restarts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_is_finished_after_a_restart(world, commit):
    producer = world.producer()
    world.add(producer, A, B)
    world.holds_markers = True
    world.end(producer, commit)
    world.holds_markers = False
    world.restart()
    assert world.markers == [(1001, 1, commit, (A, B))]
    assert world.state() == ("CompleteCommit" if commit else "CompleteAbort")


def test_an_open_transaction_is_still_open_after_a_restart(world):
    producer = world.producer()
    world.add(producer, A)
    world.restart()
    assert world.transactions.verify("t", *producer, *A) == codes.NONE
    assert world.end(producer)[0]["error_code"] == codes.NONE
    assert world.markers == [(1001, 1, True, (A,))]


def test_records_that_are_not_understood_are_passed_over(world):
    world.producer()
    world.journal.append(0, [(b"\x00\x00\x00\x01x", b"\x00\x01short"), (b"\x00\x09", b""), (b"", b"")], lambda _: None)
    world.journal.append(0, [(b"\x00\x00\x00\x01y", b"\x00\x07")], lambda _: None)
    world.journal.mark(1, 5, 0, 1)
    world.restart()
    assert [each["transactional_id"] for each in finish(world.transactions.find())["transaction_states"]] == ["t"]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_crashes_when_an_acknowledged_end_holds_and_each_transaction_has_one_outcome(seed):
    """Random clients, writes that are held or fail, and restarts; each transaction must end once, as was answered."""
    chance = random.Random(seed)
    world = World()
    promised = {}  # (producer id, epoch of its markers): what the client was told
    answers = []
    for _ in range(120):
        world.journal.holds = chance.random() < 0.2
        world.journal.fails = chance.random() < 0.1
        world.holds_markers = chance.random() < 0.3
        roll = chance.random()
        state = world.transactions.describe(["t"])[0]
        producer = state["producer_id"], state["producer_epoch"]
        if roll < 0.15:
            world.init()
        elif roll < 0.55:
            world.add(producer, chance.choice([A, B]))
        elif roll < 0.85 and state["transaction_state"] == "Ongoing":
            commit = chance.random() < 0.5
            answers.append(((producer[0], producer[1] + 1), commit, world.end(producer, commit)))
        elif roll < 0.9:
            world.journal._held.clear()  # what was not written when the power went
            world.restart()
        else:
            world.advance(chance.choice([50, 1000, 80_000]))
        world.journal.release()
        if chance.random() < 0.5:
            world.release_markers(StorageError("no") if chance.random() < 0.3 else None)
        for key, commit, answer in answers:
            if answer and answer[0]["error_code"] == codes.NONE:
                promised[key] = commit
    world.journal.holds = world.journal.fails = world.holds_markers = False
    world.restart()
    outcomes = {}
    for producer_id, epoch, commit, _ in world.markers:
        assert outcomes.setdefault((producer_id, epoch), commit) == commit
    assert promised.items() <= outcomes.items()
    assert not world.state().startswith("Prepare")


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_transactions_are_listed_by_state_producer_duration_and_name(world):
    world.producer("app-1")
    world.add(world.producer("app-2"), A, name="app-2")
    world.producer("app:3")

    def names(**filters):
        return [each["transactional_id"] for each in finish(world.transactions.find(**filters))["transaction_states"]]

    assert names() == ["app-1", "app-2", "app:3"]
    assert names(states=["Ongoing"]) == ["app-2"]
    assert names(states=["Bogus"]) == []
    assert finish(world.transactions.find(states=["Bogus", "Empty"]))["unknown_state_filters"] == ["Bogus"]
    assert names(producer_ids=[1001, 1002]) == ["app-1", "app-2"]
    world.clock.advance(500)
    assert names(duration_ms=499) == ["app-1", "app-2", "app:3"]  # no transaction: as in Kafka, since ever
    assert names(duration_ms=500) == ["app-1", "app:3"]
    assert names(id_pattern="app-.*") == ["app-1", "app-2"]
    assert names(id_pattern="app.3") == ["app:3"]
    assert names(id_pattern="app") == []
    assert names(id_pattern="") == ["app-1", "app-2", "app:3"]
    assert finish(world.transactions.find(id_pattern="("))["error_code"] == codes.INVALID_REGULAR_EXPRESSION


def test_an_expression_that_would_run_away_is_not_run():
    world = World()
    world.producer(":" + "a" * 40)
    assert finish(world.transactions.find(id_pattern=":(a+)+b"))["transaction_states"] == []


def test_a_transaction_is_described(world):
    world.add(world.producer(), A, B, ("a", 3))
    assert world.transactions.describe(["t"]) == [
        {
            "error_code": codes.NONE,
            "transactional_id": "t",
            "transaction_state": "Ongoing",
            "transaction_timeout": TIMEOUT,
            "transaction_start_time": world.clock.now_ms(),
            "producer_id": 1001,
            "producer_epoch": 0,
            "topics": [{"topic": "a", "partitions": [0, 3]}, {"topic": "b", "partitions": [1]}],
        }
    ]


def test_a_setting_that_makes_no_sense_is_refused():
    with pytest.raises(OperatorError, match=r"transaction\.max\.timeout\.ms=0"):
        TransactionSettings(max_timeout_ms=0)
